// FakeClock: time that moves only when a test says so.
#ifndef TEST_CPP_SUPPORT_FAKE_CLOCK_H_
#define TEST_CPP_SUPPORT_FAKE_CLOCK_H_

#include <atomic>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/mutex.h"

namespace horovod_tf {

// Thread rule: safe for use from any thread.
class FakeClock final : public Clock {
 public:
  // Starts at a time that no deadline of a test reaches by accident.
  FakeClock() = default;

  TimePoint Now() const override;
  // Returns when notified, when Advance has passed `deadline`, and otherwise about once in a real
  // millisecond: callers loop on their condition, and so they see the time that Advance has made.
  void WaitUntil(CondVar& condition, Mutex& mutex, TimePoint deadline) const override
      HVD_REQUIRES(mutex);

  // REQUIRES: step >= 0.
  void Advance(Duration step);

 private:
  static constexpr Duration kStart = std::chrono::hours(1000);
  std::atomic<Duration::rep> since_epoch_{kStart.count()};
};

}  // namespace horovod_tf

#endif  // TEST_CPP_SUPPORT_FAKE_CLOCK_H_
