// Bytes from a peer, whatever they are: a Status, or the message whose encoding they are.
#include <fuzzer/FuzzedDataProvider.h>

#include <string>

#include "horovod_tf/common/base/check.h"
#include "horovod_tf/common/protocol/message.h"
#include "horovod_tf/common/protocol/wire.h"

namespace horovod_tf {
namespace {

// Mostly with a header that is right, or nothing behind it would be reached.
std::string Frame(FuzzedDataProvider& bytes) {
  if (bytes.ConsumeProbability<double>() < 0.1) return bytes.ConsumeRemainingBytesAsString();
  WireWriter frame;
  frame.U16(kWireMagic);
  frame.U8(kWireVersion);
  frame.U8(bytes.ConsumeIntegralInRange<std::uint8_t>(0, std::variant_size_v<Message> + 1));
  frame.Varint(bytes.ConsumeIntegralInRange<std::uint32_t>(0, 3));
  const std::string payload = bytes.ConsumeRemainingBytesAsString();
  frame.U32(static_cast<std::uint32_t>(payload.size()));
  frame.Raw(payload);
  return frame.Take();
}

void Check(FuzzedDataProvider& bytes) {
  DecodeLimits limits;
  limits.world_size = bytes.ConsumeIntegralInRange<int>(1, 5);
  const std::string frame = Frame(bytes);
  Message message;
  std::uint32_t process_set = 0;
  const Status status = DecodeMessage(frame, limits, &message, &process_set);
  if (!status.ok()) {
    HVD_CHECK(status.code() == StatusCode::kInvalidArgument, status.message());
    return;
  }
  HVD_CHECK(EncodeMessage(message, process_set) == frame, "another encoding");
}

}  // namespace
}  // namespace horovod_tf

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider bytes(data, size);
  horovod_tf::Check(bytes);
  return 0;
}
