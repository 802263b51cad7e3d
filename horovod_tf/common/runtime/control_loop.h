// ControlLoop: one rank's part in the protocol, driven: moves submissions, messages and the log
// between the tensor queue, the transport, the negotiator, rank 0's coordinator and the executor.
#ifndef HOROVOD_TF_COMMON_RUNTIME_CONTROL_LOOP_H_
#define HOROVOD_TF_COMMON_RUNTIME_CONTROL_LOOP_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/config.h"
#include "horovod_tf/common/base/logging.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/collectives/registry.h"
#include "horovod_tf/common/protocol/coordinator.h"
#include "horovod_tf/common/protocol/coordinator_watch.h"
#include "horovod_tf/common/protocol/negotiator.h"
#include "horovod_tf/common/runtime/activity.h"
#include "horovod_tf/common/runtime/executor.h"
#include "horovod_tf/common/runtime/in_flight.h"
#include "horovod_tf/common/runtime/inbox.h"
#include "horovod_tf/common/runtime/status_desk.h"
#include "horovod_tf/common/runtime/tensor_queue.h"
#include "horovod_tf/common/runtime/timeline.h"
#include "horovod_tf/common/transport/transport.h"

namespace horovod_tf {

// What a loop works with; all of it outlives the loop. `timeline` may be null.
struct LoopSurroundings {
  const Config& config;
  const Clock& clock;
  const Logger& logger;
  Transport& transport;
  const BackendRegistry& backends;
  TensorQueue& queue;
  Timeline* timeline;
  StatusDesk& status_desk;
};

// Thread rule: for the background thread. Tensors' callbacks run inside Turn and Execute.
class ControlLoop {
 public:
  explicit ControlLoop(const LoopSurroundings& surroundings);

  // Does everything that can be done now, without waiting; `*worked` says whether there was
  // anything, so that it is worth looking again before sleeping until NextDeadline(). An error is
  // the end of the job.
  Status Turn(bool* worked);
  TimePoint NextDeadline() const;
  // Whether peers owe this rank something that it waits for.
  Expectation expectation() const;

  // Asks all ranks to stop, after what is in the queue now.
  void RequestShutdown(std::string reason);
  // Once the ranks have agreed to stop: why, as tensors are told; OK before.
  const Status& shutdown() const { return shutdown_; }

  // Everything in flight, for the caller to finish. Nothing may be called afterwards.
  std::vector<TensorEntry> TakeAll() { return in_flight_.TakeAll(); }

 private:
  bool stopped() const { return !shutdown_.ok(); }
  void Submit(std::vector<TensorEntry> entries);
  void Withdraw(const std::vector<TensorWithdrawal>& withdrawn);
  bool waits() const { return !in_flight_.empty() || asked_to_stop_; }
  Status TakeMessages(bool* worked);
  Status Take(Received received);
  Status Answer(int rank);
  Report MakeReport(TimePoint now) const;
  // What waits in the whole job, and for whom. REQUIRES: this is rank 0.
  std::vector<WaitingTensor> JobWaits(TimePoint now) const;
  Status AnswerStatusDesk();
  Status AnnounceNew(bool* worked);
  Status Decide(bool* worked);
  Status AskMissingRanks();
  Status WatchCoordinator();
  Status Apply(const Log& log);
  Status Act(Response& response);

  const LoopSurroundings with_;
  InFlight in_flight_;
  Negotiator negotiator_;
  std::unique_ptr<Coordinator> coordinator_;  // rank 0 only
  CoordinatorWatch watch_;                    // the other ranks
  Activity activity_;
  Executor executor_;
  bool asked_to_stop_ = false;
  Status shutdown_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_CONTROL_LOOP_H_
