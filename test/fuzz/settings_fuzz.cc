// The environment, whatever is in it: an error that names a variable, or settings in force.
#include <fuzzer/FuzzedDataProvider.h>

#include <string>

#include "horovod_tf/common/base/check.h"
#include "horovod_tf/common/base/config.h"
#include "horovod_tf/common/base/config_table.h"

namespace horovod_tf {
namespace {

Environment Consume(FuzzedDataProvider& bytes) {
  Environment environment;
  const auto known = ConfigVariables();
  while (bytes.remaining_bytes() > 0) {
    const bool misspelt = bytes.ConsumeProbability<float>() < 0.1F;
    const auto which = bytes.ConsumeIntegralInRange<std::size_t>(0, known.size() - 1);
    std::string name = misspelt ? "HOROVOD_" + bytes.ConsumeRandomLengthString(40)
                                : std::string(known.begin()[which].name);
    environment.emplace_back(std::move(name), bytes.ConsumeRandomLengthString(60));
  }
  return environment;
}

void Check(FuzzedDataProvider& bytes) {
  Config config;
  const Status status = ParseConfig(Consume(bytes), &config);
  if (!status.ok()) {
    HVD_CHECK(status.message().find("HOROVOD_") != std::string::npos, status.message());
  } else {
    HVD_CHECK(!DescribeConfig(config).empty(), "no settings");
  }
}

}  // namespace
}  // namespace horovod_tf

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider bytes(data, size);
  horovod_tf::Check(bytes);
  return 0;
}
