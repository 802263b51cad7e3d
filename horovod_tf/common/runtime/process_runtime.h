// The process's one Runtime: the only mutable object at namespace scope is behind these functions.
#ifndef HOROVOD_TF_COMMON_RUNTIME_PROCESS_RUNTIME_H_
#define HOROVOD_TF_COMMON_RUNTIME_PROCESS_RUNTIME_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/export.h"
#include "horovod_tf/common/runtime/process_sets.h"
#include "horovod_tf/common/runtime/tensor_entry.h"
#include "horovod_tf/common/transport/topology.h"

namespace horovod_tf {

// Thread rule: all functions are for any thread.

// All ranks must have said the same of this by their next ProcessInit, or it fails on all of them
// and names two that differ: the framework's version, say. The last value of a name counts.
HVD_EXPORT void ProcessAgreeOn(std::string_view name, std::string_view value);
// Reads the environment, assembles transport and backends, and starts. Returns within the
// configured time and a second or two, whatever it waits for; then with DeadlineExceeded. OK and
// nothing else if it runs already; works again after ProcessShutdown, after another rank's shutdown
// and after a failure. Several callers at once get one start and its result. FailedPrecondition
// from a completion's callback (unless it runs already), and in a process that was forked after
// init: the job's threads are not in it.
// `members` (empty: all) are the processes that are the job, by rank in it, of those that were
// started together: MPI's ranks of its world. InvalidArgument if this is none of them (which it
// finds out after MPI has been initialised, as the others wait for that), if one is twice there or
// none of MPI's ranks; FailedPrecondition if a job of others runs already.
HVD_EXPORT Status ProcessInit(const std::vector<int>& members = {});
// Stops it; the first failure if it has failed. OK if there is none. Later operations fail with a
// text that says why. From a completion's callback it only asks. While an init is at work, that one
// gives up, or ends first. Does nothing in a process that was forked after init.
HVD_EXPORT Status ProcessShutdown(std::string_view reason);
// To be called when the process ends, after ProcessShutdown: finalises MPI if this library has
// initialised it and all went well, else does nothing. ProcessInit may fail afterwards.
HVD_EXPORT Status ProcessFinalize();
// Nothing before init and after this process's own shutdown; a job that failed or that another rank
// ended still has one.
HVD_EXPORT std::optional<Topology> ProcessTopology();
// Why ProcessTopology says nothing; not OK.
HVD_EXPORT Status ProcessNotInitialized();
// Whether MPI may be called from several threads at once; nothing before init.
HVD_EXPORT std::optional<bool> ProcessMpiThreadsSupported();
// As Runtime::Describe; without a job, why there is none.
HVD_EXPORT std::string ProcessStatus();
// As Runtime::Enqueue, in this process set (0: the whole job); before init everything is finished
// with FailedPrecondition.
HVD_EXPORT void ProcessEnqueue(std::vector<TensorEntry> group, int process_set = 0);

// As ProcessSets; ProcessNotInitialized without a job.
HVD_EXPORT Status ProcessAddSet(const std::vector<int>& ranks, int* id);
HVD_EXPORT Status ProcessRemoveSet(int id);
// Nothing where ProcessTopology says nothing.
HVD_EXPORT std::optional<std::vector<ProcessSetView>> ProcessSetList();

// As Runtime's, of the whole job; ProcessNotInitialized without one.
HVD_EXPORT Status ProcessStartTimeline(const std::string& path);
HVD_EXPORT Status ProcessStopTimeline();

// As Runtime::Withdraw; nothing if there is no job.
HVD_EXPORT void ProcessWithdraw(std::uint64_t ticket, std::string_view reason);

// As Runtime::Interrupt; nothing if there is no job.
HVD_EXPORT void ProcessInterrupt(std::string_view reason);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_PROCESS_RUNTIME_H_
