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
    : manager_(manager), state_(std::make_shared<State>()) {
  state_->ticket = NextTicket();
}

bool CancellationWatch::Start() {
  if (manager_ == nullptr) return true;
  token_ = manager_->get_cancellation_token();
  return manager_->RegisterCallback(token_, [state = state_] {
    // The note first. If Submitted does not see it, this call comes after the submission.
    state->cancelled.store(true);
    ProcessWithdraw(state->ticket, kReason);
  });
}

void CancellationWatch::Submitted() {
  if (state_->cancelled.load()) ProcessWithdraw(state_->ticket, kReason);
}

void CancellationWatch::Stop() {
  // Without waiting for a callback that runs now: it has all it needs.
  if (manager_ != nullptr) manager_->TryDeregisterCallback(token_);
}

}  // namespace horovod_tf
