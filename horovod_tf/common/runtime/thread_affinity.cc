#include "horovod_tf/common/runtime/thread_affinity.h"

#include <sched.h>

#include <cerrno>
#include <cstddef>
#include <string>
#include <system_error>
#include <vector>

namespace horovod_tf {
namespace {

constexpr char kVariable[] = "HOROVOD_THREAD_AFFINITY";

// A set of processors of any number, as the system takes it: bits of unsigned longs.
std::vector<cpu_set_t> SetOf(int processor) {
  const auto number = static_cast<std::size_t>(processor);
  std::vector<cpu_set_t> set(number / CPU_SETSIZE + 1);
  for (cpu_set_t& part : set) CPU_ZERO(&part);
  CPU_SET(number % CPU_SETSIZE, &set.back());
  return set;
}

}  // namespace

Status BindThisThread(const Config& config, const Topology& topology) {
  const std::vector<int>& processors = config.thread_affinity;
  if (processors.empty()) return Status::Ok();
  const auto count = processors.size();
  if (count > 1 && count < static_cast<std::size_t>(topology.local_size)) {
    return Status::InvalidArgument(
        std::string(kVariable) + " names " + std::to_string(count) + " processors, but there are " +
        std::to_string(topology.local_size) + " ranks on the host of rank " +
        std::to_string(topology.rank) + ": name one for each of them, or one for all");
  }
  const int processor =
      count == 1 ? processors.front() : processors[static_cast<std::size_t>(topology.local_rank)];
  const std::vector<cpu_set_t> set = SetOf(processor);
  if (sched_setaffinity(0, set.size() * sizeof(cpu_set_t), set.data()) == 0) return Status::Ok();
  return Status::InvalidArgument(std::string(kVariable) + " wants rank " +
                                 std::to_string(topology.rank) + " on processor " +
                                 std::to_string(processor) +
                                 ", which it cannot use: " + std::system_category().message(errno));
}

}  // namespace horovod_tf
