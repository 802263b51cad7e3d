// The states of a Runtime: one enum, one table of transitions, one mutex.
#ifndef HOROVOD_TF_COMMON_RUNTIME_RUNTIME_STATE_H_
#define HOROVOD_TF_COMMON_RUNTIME_RUNTIME_STATE_H_

#include <optional>
#include <string>
#include <string_view>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/mutex.h"
#include "horovod_tf/common/base/status.h"

namespace horovod_tf {

// Idle -> Starting -> Running -> Draining -> Stopped, and Failed from any but Stopped. Forward
// only.
enum class RuntimeState { kIdle, kStarting, kRunning, kDraining, kStopped, kFailed };
std::string_view RuntimeStateName(RuntimeState state);
// Whether the table of transitions has this one.
bool TransitionAllowed(RuntimeState from, RuntimeState to);

// What a tensor that comes before Start is told.
Status NotInitializedStatus();

// Where a runtime is in its life, and why: shared between the threads that use it and its
// background thread.
//
// Thread rule: safe for use from any thread. Calls nobody while its lock is held.
class RuntimeLifecycle {
 public:
  // `clock` outlives it.
  explicit RuntimeLifecycle(const Clock& clock) : clock_(clock) {}

  RuntimeState state() const;
  // OK while not failed; the first failure afterwards.
  Status failure() const;
  // OK while tensors are taken; else what they are told.
  Status Refusal() const;

  // REQUIRES: idle.
  void BeginStart();
  // The ranks have met: running, or draining at once if somebody has asked to stop. Does nothing
  // after a failure.
  void FinishStart();
  // From now on tensors are refused. The background thread learns it from TakeStopRequest. Only
  // the first call counts; without effect before the start and after the end.
  void AskToStop(std::string_view reason);
  // For the background thread: the reason, once, if a running one was asked to stop.
  std::optional<std::string> TakeStopRequest();
  bool StopRequested() const;
  // All ranks stop together; `why` (not OK) is what tensors are told from now on.
  void BeginDraining(const Status& why);
  // Draining is over. Does nothing after a failure.
  void FinishDraining();
  // Keeps the first failure. Does nothing once stopped or failed. REQUIRES: !failure.ok().
  void Fail(const Status& failure);

  // The background thread is about to return and will not touch the runtime's tensors again.
  void MarkThreadEnded();

  // Whether starting has ended, well or badly, before `deadline`.
  bool WaitUntilStarted(TimePoint deadline);
  // Whether the background thread ended before `deadline`.
  bool WaitUntilThreadEnded(TimePoint deadline);

 private:
  void MoveTo(RuntimeState next) HVD_REQUIRES(mutex_);

  const Clock& clock_;
  mutable Mutex mutex_;
  CondVar changed_;
  RuntimeState state_ HVD_GUARDED_BY(mutex_) = RuntimeState::kIdle;
  Status failure_ HVD_GUARDED_BY(mutex_);
  Status shutdown_ HVD_GUARDED_BY(mutex_);  // not OK from draining on
  std::optional<std::string> stop_reason_ HVD_GUARDED_BY(mutex_);
  bool stop_request_taken_ HVD_GUARDED_BY(mutex_) = false;
  bool thread_ended_ HVD_GUARDED_BY(mutex_) = false;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_RUNTIME_STATE_H_
