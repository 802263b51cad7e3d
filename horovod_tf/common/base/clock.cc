#include "horovod_tf/common/base/clock.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "horovod_tf/common/base/mutex.h"

namespace horovod_tf {
namespace {

class RealClock final : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
  void WaitUntil(CondVar& condition, Mutex& mutex, TimePoint deadline) const override
      HVD_REQUIRES(mutex) {
    condition.WaitUntil(mutex, deadline);
  }
};

constexpr double kCentury = 100.0 * 365 * 24 * 3600;

}  // namespace

TimePoint AfterDelay(TimePoint now, Duration delay) {
  if (now == kNever || delay >= kNever - now) return kNever;
  return now + delay;
}

Duration FromSeconds(double seconds) {
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(std::min(seconds, kCentury)));
}

double ToSeconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

std::uint64_t Milliseconds(Duration duration) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

Duration OfMilliseconds(std::uint64_t count) {
  return FromSeconds(static_cast<double>(count) / 1000);
}

std::string SecondsText(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g s", ToSeconds(duration));
  return text;
}

const Clock& Clock::Real() {
  // Never destroyed: threads still wait by it while the process ends.
  static const RealClock* const clock = std::make_unique<RealClock>().release();
  return *clock;
}

}  // namespace horovod_tf
