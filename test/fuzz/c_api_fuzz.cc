// The C interface and the operations' door, called in any order with any text, by a job of one.
#include <fuzzer/FuzzedDataProvider.h>
#include <stdlib.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "horovod_tf/common/base/check.h"
#include "horovod_tf/common/c_api.h"
#include "horovod_tf/common/runtime/process_runtime.h"

namespace horovod_tf {
namespace {

// Whose values are tried. None that writes files, and no time to wait.
constexpr std::array<const char*, 9> kVariables = {
    "HOROVOD_CYCLE_TIME",
    "HOROVOD_FUSION_THRESHOLD",
    "HOROVOD_CACHE_CAPACITY",
    "HOROVOD_STALL_CHECK_TIME_SECONDS",
    "HOROVOD_TF_SHM_CHUNK_BYTES",
    "HOROVOD_THREAD_AFFINITY",
    "HOROVOD_HIERARCHICAL_ALLREDUCE",
    "HOROVOD_TF_INTERRUPT_GRACE_SECONDS",
    "OMPI_COMM_WORLD_SIZE",
};

std::string Text(FuzzedDataProvider& bytes) { return bytes.ConsumeRandomLengthString(300); }

void SetVariable(FuzzedDataProvider& bytes) {
  const char* const name = bytes.PickValueInArray(kVariables);
  const bool remove = bytes.ConsumeBool();
  const std::string value = Text(bytes);
  if (remove) {
    unsetenv(name);
  } else {
    setenv(name, value.c_str(), 1);
  }
}

// Tensors that have been submitted, and that have ended.
std::atomic<int> submitted{0};
std::atomic<int> ended{0};

// Room for what is gathered: a job of one has its own rows only.
class Room : public OpContext {
 public:
  Status AllocateOutput(const TensorShape& shape, TensorView* output) override {
    output->shape = shape;
    output->data = bytes_.data();
    return Status::Ok();
  }

 private:
  std::vector<double> bytes_ = std::vector<double>(64);
};

// With its buffers, which live as long as it.
TensorEntry Entry(FuzzedDataProvider& bytes) {
  TensorEntry entry;
  Request& request = entry.request;
  request.name = Text(bytes);
  request.kind = *CollectiveKindFromInt(bytes.ConsumeIntegralInRange<std::uint64_t>(0, 2));
  request.dtype = static_cast<DataType>(bytes.ConsumeIntegralInRange<int>(0, 10));
  request.reduce_op = bytes.PickValueInArray(
      {ReduceOp::kAverage, ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct});
  request.prescale = bytes.ConsumeFloatingPoint<double>();
  request.root_rank = bytes.ConsumeIntegral<int>();
  std::vector<std::int64_t> dims(bytes.ConsumeIntegralInRange<std::size_t>(0, 3));
  for (std::int64_t& dim : dims) dim = bytes.ConsumeIntegralInRange<std::int64_t>(0, 4);
  request.shape = TensorShape(dims);
  const auto buffers = std::make_shared<std::vector<double>>(2 * 64);
  entry.ticket = bytes.ConsumeIntegralInRange<std::uint64_t>(0, 3);
  entry.input = {request.dtype, request.shape, buffers->data()};
  entry.output = {request.dtype, request.shape, buffers->data() + 64};
  entry.context = std::make_shared<Room>();
  entry.done = Completion([buffers](const Status&) { ++ended; });
  ++submitted;
  return entry;
}

void Enqueue(FuzzedDataProvider& bytes) {
  std::vector<TensorEntry> group;
  const int count = bytes.ConsumeIntegralInRange<int>(0, 3);
  for (int i = 0; i < count; ++i) group.push_back(Entry(bytes));
  ProcessEnqueue(std::move(group));
}

void Ask() {
  for (auto* const question : {horovod_rank, horovod_size, horovod_local_rank, horovod_cross_size,
                               horovod_is_homogeneous, horovod_mpi_threads_supported}) {
    HVD_CHECK(question() >= -1, "an answer that is none");
  }
  HVD_CHECK(horovod_last_error() != nullptr && horovod_version() != nullptr, "no text");
}

void Call(FuzzedDataProvider& bytes) {
  switch (bytes.ConsumeIntegralInRange<int>(0, 9)) {
    case 0:
      return (void)horovod_init();
    case 1:
      return (void)horovod_shutdown();
    case 2:
      return (void)horovod_shutdown_because(Text(bytes).c_str());
    case 3: {
      const std::string name = Text(bytes);
      return (void)horovod_agree_on(name.c_str(), Text(bytes).c_str());
    }
    case 4:
      return Ask();
    case 5:
      return (void)horovod_status();
    case 6:
      return horovod_interrupt(Text(bytes).c_str());
    case 7:
      return SetVariable(bytes);
    case 8:
      return ProcessWithdraw(bytes.ConsumeIntegralInRange<std::uint64_t>(0, 3), Text(bytes));
    default:
      return Enqueue(bytes);
  }
}

void Check(FuzzedDataProvider& bytes) {
  while (bytes.remaining_bytes() > 0) Call(bytes);
  for (const char* const name : kVariables) unsetenv(name);
  HVD_CHECK(horovod_shutdown() == 0, horovod_last_error());
  HVD_CHECK(ended.load() == submitted.load(), "a tensor without an end");
}

}  // namespace
}  // namespace horovod_tf

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  setenv("HOROVOD_LOG_LEVEL", "fatal", 1);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider bytes(data, size);
  horovod_tf::Check(bytes);
  return 0;
}
