// Runtime: one rank of one job, or of one process set: the background thread, its states, and
// everything it owns. Several live in one process: the job's, in process_runtime.h, and those of
// process sets, in process_sets.h.
#ifndef HOROVOD_TF_COMMON_RUNTIME_RUNTIME_H_
#define HOROVOD_TF_COMMON_RUNTIME_RUNTIME_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/config.h"
#include "horovod_tf/common/base/logging.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/collectives/registry.h"
#include "horovod_tf/common/runtime/job_end.h"
#include "horovod_tf/common/runtime/runtime_state.h"
#include "horovod_tf/common/runtime/tensor_entry.h"
#include "horovod_tf/common/transport/topology.h"
#include "horovod_tf/common/transport/transport.h"

namespace horovod_tf {

struct RuntimeOptions {
  Config config;
  const Clock* clock = &Clock::Real();
  // The start ends by then, by `clock`, if the configured time would go further.
  TimePoint start_deadline = kNever;
  // Settings beside the configuration's own that all ranks must share (name, value).
  std::vector<std::pair<std::string, std::string>> agreements;
  std::unique_ptr<Transport> transport;
  BackendRegistry backends;
  std::shared_ptr<Logger> logger;
  // What texts call it, if it is a process set's: "process set 1 [0, 2]". `logger` knows it too.
  std::string process_set;
  // Called once, when the runtime begins to end and before its tensors are told; on any thread.
  // Must not wait. May be empty.
  EndFunction on_end;
};

// Thread rule: all public functions are for any thread.
class Runtime {
 public:
  explicit Runtime(RuntimeOptions options);
  // Stops, with the configured deadline, if that has not been done. REQUIRES: not called on its own
  // background thread.
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Starts the thread, meets the other ranks, and returns when all have agreed, when the start has
  // failed, or when the configured time is over (then the text says who is missing). REQUIRES:
  // called once.
  Status Start();

  // The one entry point: the kind of collective is data. All of the group or none; every completion
  // is finished exactly once whatever happens, perhaps before this returns, perhaps on another
  // thread.
  void Enqueue(std::vector<TensorEntry> group);

  // The tensors with this ticket are not wanted any more (their step was cancelled). They end soon:
  // with Cancelled, unless all ranks have asked for one by now; then with its result. Peers that
  // wait for one get an error that names this rank and `reason`, if it does not ask for the tensor
  // again within the configured time. Returns at once; calls back no completion. Harmless when
  // repeated and for tensors that have ended; without effect on those not enqueued yet.
  void Withdraw(std::uint64_t ticket, std::string_view reason);

  // The same for all tensors that have waited here for the configured time: the program is asked to
  // end, and does not get to it while it waits for them.
  void Interrupt(std::string_view reason);

  // Asks all ranks to stop, waits until this one has stopped (or for the configured time, then
  // fails), and joins the thread; every completion has been finished then. OK, or the first failure
  // if the runtime has failed. A thread that is stuck in somebody else's code (a callback, a
  // backend) even after the failure is left behind, with all that it uses; the text says so, and
  // its tensors end if it ever comes back. Harmless when repeated, also from several threads at
  // once, and before Start. From a completion's callback, whatever its thread, it only asks.
  Status Stop(std::string_view reason);

  // What Stop does before it waits.
  void AskToStop(std::string_view reason);

  // Ends this runtime from outside: fails it, or asks it to stop. Harmless when it is gone.
  EndFunction Ender();

  // From now on rank 0 writes a timeline to this file; on other ranks nothing happens. Another file
  // that it writes is finished; the same one again changes nothing. An error if the file cannot be
  // made.
  Status StartTimeline(const std::string& path);
  // Finishes the file, if there is one.
  void StopTimeline();

  // What this rank does and waits for, who is missing, and the environment in force: for people.
  // Waits for the background thread and rank 0, but not for long.
  std::string Describe();

  RuntimeState state() const;
  // OK while not failed; the first failure afterwards.
  Status failure() const;
  // OK while tensors are taken; else what they are told.
  Status Refusal() const;
  // Whether the caller is a guest of this runtime's background thread (a callback, a backend).
  bool OnBackgroundThread() const;
  // REQUIRES: Start() has returned OK.
  const Topology& topology() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // shared with the background thread, which may be left behind
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_RUNTIME_H_
