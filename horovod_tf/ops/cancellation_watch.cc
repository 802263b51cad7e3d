#include "horovod_tf/ops/cancellation_watch.h"

#include "horovod_tf/common/runtime/process_runtime.h"

namespace horovod_tf {
namespace {

constexpr char kReason[] =
    "its step was cancelled: another operation of the step failed, its time was over, or its "
    "session was closed";

std::uint64_t NextTicket() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

CancellationWatch::CancellationWatch(tensorflow::CancellationManager* manager)
    : manager_(manager), ticket_(NextTicket()) {}

bool CancellationWatch::Start() {
  if (manager_ == nullptr) return true;
  token_ = manager_->get_cancellation_token();
  return manager_->RegisterCallback(token_, [self = shared_from_this()] { self->Cancel(); });
}

// The note first. If Submitted does not see it, the call comes after the submission.
void CancellationWatch::Cancel() {
  cancelled_.store(true);
  ProcessWithdraw(ticket_, kReason);
}

void CancellationWatch::Submitted() {
  if (cancelled_.load()) ProcessWithdraw(ticket_, kReason);
}

void CancellationWatch::Stop() {
  // Without waiting for a callback that runs now: it has all it needs.
  if (manager_ != nullptr) manager_->TryDeregisterCallback(token_);
}

}  // namespace horovod_tf
