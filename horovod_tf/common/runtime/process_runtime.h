// The process's one Runtime: the only mutable object at namespace scope is behind these functions.
#ifndef HOROVOD_TF_COMMON_RUNTIME_PROCESS_RUNTIME_H_
#define HOROVOD_TF_COMMON_RUNTIME_PROCESS_RUNTIME_H_

#include <optional>
#include <string_view>
#include <vector>

#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/runtime/tensor_entry.h"
#include "horovod_tf/common/transport/topology.h"

namespace horovod_tf {

// Thread rule: all functions are for any thread.

// Reads the environment, assembles transport and backends, and starts. OK and nothing else if it
// runs already; works again after ProcessShutdown and after a failure.
Status ProcessInit();
// Stops it. OK if there is none. Later operations fail with a text that says so.
Status ProcessShutdown(std::string_view reason);
// Nothing before init and after shutdown.
std::optional<Topology> ProcessTopology();
// Whether MPI may be called from several threads at once; nothing before init.
std::optional<bool> ProcessMpiThreadsSupported();
// As Runtime::Enqueue; before init everything is finished with FailedPrecondition.
void ProcessEnqueue(std::vector<TensorEntry> group);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_PROCESS_RUNTIME_H_
