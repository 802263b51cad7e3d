#include "horovod_tf/ops/cancellation_watch.h"

#include <string_view>
#include <unordered_map>

#include "horovod_tf/common/base/mutex.h"
#include "horovod_tf/common/runtime/process_runtime.h"

namespace horovod_tf {
namespace {

using tensorflow::CancellationManager;

constexpr std::string_view kReason =
    "its step was cancelled: another operation of the step failed, its time was over, or its "
    "session was closed";

}  // namespace

// The watches of the steps that have operations in flight: as many as steps run at once. A watch is
// entered with its step's first operation here and goes with the last one, before that is done: so
// its manager is alive, and no other one can have the same address.
//
// Lock order: mutex_ before a manager's own, which TensorFlow does not hold while it calls back.
class CancellationWatch::Registry {
 public:
  static Registry& Global() {
    // Never destroyed: operations may still end when the process does.
    static Registry* const registry = std::make_unique<Registry>().release();
    return *registry;
  }

  std::shared_ptr<CancellationWatch> Join(CancellationManager* manager) HVD_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto found = watches_.find(manager);
    std::shared_ptr<CancellationWatch> watch =
        found != watches_.end() ? found->second : Start(manager);
    // A new one may have been called back by now: it is never entered, as nobody would leave it.
    if (watch == nullptr || watch->cancelled_.load()) return nullptr;
    if (++watch->users_ == 1) watches_.emplace(manager, watch);
    return watch;
  }

  // Whether it was the last user.
  bool Leave(CancellationWatch* watch) HVD_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (--watch->users_ > 0) return false;
    watches_.erase(watch->manager_);
    return true;
  }

 private:
  // Null: the step is cancelled.
  std::shared_ptr<CancellationWatch> Start(CancellationManager* manager) HVD_REQUIRES(mutex_) {
    const std::shared_ptr<CancellationWatch> watch(new CancellationWatch(manager, ++last_ticket_));
    watch->token_ = manager->get_cancellation_token();
    const bool going = manager->RegisterCallback(watch->token_, [watch] { watch->Cancel(); });
    return going ? watch : nullptr;
  }

  Mutex mutex_;
  std::unordered_map<CancellationManager*, std::shared_ptr<CancellationWatch>> watches_
      HVD_GUARDED_BY(mutex_);
  std::uint64_t last_ticket_ HVD_GUARDED_BY(mutex_) = 0;
};

std::shared_ptr<CancellationWatch> CancellationWatch::Join(CancellationManager* manager) {
  if (manager != nullptr) return Registry::Global().Join(manager);
  static const auto* const never =
      new std::shared_ptr<CancellationWatch>(new CancellationWatch(nullptr, /*ticket=*/0));
  return *never;
}

// The note first. If Submitted does not see it, the call comes after the submission.
void CancellationWatch::Cancel() {
  cancelled_.store(true);
  ProcessWithdraw(ticket_, kReason);
}

void CancellationWatch::Submitted() {
  if (cancelled_.load()) ProcessWithdraw(ticket_, kReason);
}

void CancellationWatch::Leave() {
  if (manager_ == nullptr || !Registry::Global().Leave(this)) return;
  // Without waiting for a callback that runs now: it has all it needs.
  manager_->TryDeregisterCallback(token_);
}

}  // namespace horovod_tf
