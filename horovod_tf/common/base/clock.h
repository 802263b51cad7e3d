// Clock: where time comes from. Protocol code takes `now` as an argument; code that waits takes a
// Clock, so that tests can turn minutes into microseconds.
#ifndef HOROVOD_TF_COMMON_BASE_CLOCK_H_
#define HOROVOD_TF_COMMON_BASE_CLOCK_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "horovod_tf/common/base/thread_annotations.h"

namespace horovod_tf {

class CondVar;
class Mutex;

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

// "No deadline."
inline constexpr TimePoint kNever = TimePoint::max();

// now + delay, or kNever where that would overflow.
TimePoint AfterDelay(TimePoint now, Duration delay);

// Seconds, fractions allowed, as a Duration. REQUIRES: 0 <= seconds; more than 100 years is capped.
Duration FromSeconds(double seconds);
double ToSeconds(Duration duration);
// Whole ones. REQUIRES: not negative.
std::uint64_t Milliseconds(Duration duration);
Duration OfMilliseconds(std::uint64_t count);
// "1.5 s", for texts.
std::string SecondsText(Duration duration);

// Safe for use from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
  // Waits on `condition` until it is notified or `deadline` has passed on this clock. May return
  // early. REQUIRES: `mutex` is held, and is the one that guards what the caller waits for.
  virtual void WaitUntil(CondVar& condition, Mutex& mutex, TimePoint deadline) const
      HVD_REQUIRES(mutex) = 0;

  // The machine's steady clock.
  static const Clock& Real();
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_BASE_CLOCK_H_
