#include "test/cpp/support/fake_clock.h"

#include <chrono>

#include "horovod_tf/common/base/check.h"

namespace horovod_tf {

TimePoint FakeClock::Now() const {
  return TimePoint(Duration(since_epoch_.load(std::memory_order_acquire)));
}

void FakeClock::WaitUntil(CondVar& condition, Mutex& mutex, TimePoint deadline) const {
  if (Now() >= deadline) return;
  // Advance cannot know the sleepers without keeping references to mutexes that may die, so the
  // sleepers look.
  condition.WaitUntil(mutex, std::chrono::steady_clock::now() + std::chrono::milliseconds(1));
}

void FakeClock::Advance(Duration step) {
  HVD_CHECK(step >= Duration::zero(), "time does not go back");
  since_epoch_.fetch_add(step.count(), std::memory_order_acq_rel);
}

}  // namespace horovod_tf
