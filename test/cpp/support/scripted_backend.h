// ScriptedBackend: a backend that does what a test tells it.
#ifndef TEST_CPP_SUPPORT_SCRIPTED_BACKEND_H_
#define TEST_CPP_SUPPORT_SCRIPTED_BACKEND_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/mutex.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/collectives/collective_backend.h"

namespace horovod_tf {

enum class ScriptAction {
  kFinish,      // copies each input to the beginning of its output; OK
  kError,       // returns `status`
  kThrow,       // throws std::runtime_error with the text of `status`
  kThrowOther,  // throws something else
  kLater,       // as kFinish, but the completion is taken over; see BackendScript::TakeLater
  kLaterError,  // takes the completion over and returns `status` nevertheless
  kBlock,       // waits for Release, then as kFinish; returns Interrupted() when that is not OK
};

struct ScriptStep {
  ScriptAction action = ScriptAction::kFinish;
  Status status;
  std::size_t scratch = 0;              // bytes to ask for; 0: does not ask
  std::vector<const char*> activities;  // to report, in order
};

// What the test and the backend share. Thread rule: any thread.
class BackendScript {
 public:
  // The next Run without a step does this; kFinish when all are used up.
  void Push(ScriptStep step);
  void Push(ScriptAction action, Status status = Status::Ok()) {
    Push(ScriptStep{action, std::move(status), 0, {}});
  }
  // What Supports answers from now on.
  void SetSupports(Status answer);
  // Lets a Run that blocks, or the next that would, go on.
  void Release();

  // The oldest completion that was taken over and not yet given out; waits for it until `deadline`
  // of the real clock, then returns null.
  std::function<void(const Status&)> TakeLater(TimePoint deadline);
  // Whether Run has been entered `count` times, now or until `deadline` of the real clock.
  bool WaitForRuns(std::size_t count, TimePoint deadline);

  // The names of each batch that was run.
  std::vector<std::vector<std::string>> batches() const;
  // The last batch that was run, whole; its buffers may be gone.
  Batch last_batch() const;
  // The scratch buffers that were handed out, in order; null where there was an error.
  std::vector<void*> scratch_buffers() const;
  std::vector<Status> scratch_answers() const;

 private:
  friend class ScriptedBackend;

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<ScriptStep> steps_ HVD_GUARDED_BY(mutex_);
  std::deque<std::function<void(const Status&)>> later_ HVD_GUARDED_BY(mutex_);
  std::vector<Batch> run_ HVD_GUARDED_BY(mutex_);
  std::vector<void*> scratch_buffers_ HVD_GUARDED_BY(mutex_);
  std::vector<Status> scratch_answers_ HVD_GUARDED_BY(mutex_);
  Status supports_ HVD_GUARDED_BY(mutex_);
  bool released_ HVD_GUARDED_BY(mutex_) = false;
};

// Thread rule: as CollectiveBackend.
class ScriptedBackend final : public CollectiveBackend {
 public:
  explicit ScriptedBackend(std::shared_ptr<BackendScript> script, std::string name = "scripted",
                           int score = 1)
      : script_(std::move(script)), name_(std::move(name)), score_(score) {}

  std::string_view name() const override { return name_; }
  int score() const override { return score_; }
  Status Supports(const Batch& batch) const override;
  Status Run(Batch& batch, RunContext& context) override;

 private:
  ScriptStep NextStep(const Batch& batch);
  Status Block(RunContext& context);
  void KeepLater(RunContext& context);

  const std::shared_ptr<BackendScript> script_;
  const std::string name_;
  const int score_;
};

}  // namespace horovod_tf

#endif  // TEST_CPP_SUPPORT_SCRIPTED_BACKEND_H_
