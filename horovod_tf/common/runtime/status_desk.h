// StatusDesk: where threads that want to know what this rank does meet the background thread, which
// knows it.
#ifndef HOROVOD_TF_COMMON_RUNTIME_STATUS_DESK_H_
#define HOROVOD_TF_COMMON_RUNTIME_STATUS_DESK_H_

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/mutex.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/protocol/message.h"

namespace horovod_tf {

// What the background thread says for a status.
struct StatusAnswer {
  Status ended;       // not OK: why this rank does nothing any more
  bool here = false;  // it has said what this rank does
  Report report;
  bool complete = false;               // it has also said who is missing, or nothing waits
  std::vector<WaitingTensor> waiting;  // the job's open tensors and who is missing, as rank 0 says
};

// Thread rule: Ask is for any thread but the background one; the rest is for that one.
class StatusDesk {
 public:
  // `clock` outlives it.
  explicit StatusDesk(const Clock& clock) : clock_(clock) {}

  // Asks, calls `wake`, and waits for a complete answer, until `deadline` at most; one at a time.
  StatusAnswer Ask(const std::function<void()>& wake, TimePoint deadline);

  // Whether somebody has asked since the last call. Cheap.
  bool TakeQuestion() { return wanted_.exchange(false, std::memory_order_acq_rel); }
  void SayHere(Report report, bool complete);
  void SayWaiting(std::vector<WaitingTensor> waiting);

 private:
  const Clock& clock_;
  std::atomic<bool> wanted_{false};
  Mutex one_at_a_time_;
  Mutex mutex_;
  CondVar changed_;
  StatusAnswer answer_ HVD_GUARDED_BY(mutex_);
};

// All of it, for people. `config` is the environment in force, a line each; empty: not to be said.
std::string StatusText(const StatusAnswer& answer, int rank, int size, const std::string& host,
                       const std::string& config);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_STATUS_DESK_H_
