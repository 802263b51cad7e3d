#include "horovod_tf/common/base/clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "horovod_tf/common/base/mutex.h"

namespace horovod_tf {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

TEST(Clock, AfterDelay_AddsAndStopsAtNever) {
  const TimePoint now{seconds(100)};
  EXPECT_EQ(AfterDelay(now, seconds(5)), TimePoint{seconds(105)});
  EXPECT_EQ(AfterDelay(now, Duration::zero()), now);
  EXPECT_EQ(AfterDelay(now, Duration::max()), kNever);
  EXPECT_EQ(AfterDelay(kNever, seconds(1)), kNever);
  EXPECT_EQ(AfterDelay(kNever, Duration::zero()), kNever);
  EXPECT_EQ(AfterDelay(kNever - seconds(1), seconds(1)), kNever);
  EXPECT_EQ(AfterDelay(kNever - seconds(2), seconds(1)), kNever - seconds(1));
}

TEST(Clock, FromSeconds_TakesFractionsAndCapsTheHuge) {
  EXPECT_EQ(FromSeconds(0), Duration::zero());
  EXPECT_EQ(FromSeconds(1.5), milliseconds(1500));
  EXPECT_EQ(FromSeconds(1e300), hours(24 * 365 * 100));
  EXPECT_LT(AfterDelay(Clock::Real().Now(), FromSeconds(1e300)), kNever);
}

TEST(Clock, ToSeconds_IsTheInverse) {
  EXPECT_DOUBLE_EQ(ToSeconds(milliseconds(250)), 0.25);
  EXPECT_DOUBLE_EQ(ToSeconds(FromSeconds(12.75)), 12.75);
}

TEST(Clock, Real_NeverRunsBackwards) {
  TimePoint last = Clock::Real().Now();
  for (int i = 0; i < 1000; ++i) {
    const TimePoint now = Clock::Real().Now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(Clock, RealWaitWithoutNotification_ReturnsAtTheDeadline) {
  Mutex mutex;
  CondVar condition;
  MutexLock lock(mutex);
  const Clock& clock = Clock::Real();
  const TimePoint deadline = clock.Now() + milliseconds(20);
  while (clock.Now() < deadline) clock.WaitUntil(condition, mutex, deadline);
  EXPECT_LT(clock.Now(), deadline + seconds(20));
}

// Counts what a waiter has seen.
struct Gate {
  Mutex mutex;
  CondVar condition;
  bool open HVD_GUARDED_BY(mutex) = false;
};

// Waits for the gate with waits that end at `each_deadline`; false after 30 seconds.
bool WaitForGate(Gate& gate, TimePoint each_deadline) {
  const TimePoint limit = Clock::Real().Now() + seconds(30);
  MutexLock lock(gate.mutex);
  while (!gate.open) {
    if (Clock::Real().Now() > limit) return false;
    Clock::Real().WaitUntil(gate.condition, gate.mutex, std::min(each_deadline, limit));
  }
  return true;
}

TEST(Clock, NotifiedRealWait_ReturnsLongBeforeItsDeadline) {
  for (const TimePoint deadline : {Clock::Real().Now() + hours(1), kNever}) {
    Gate gate;
    std::thread opener([&gate] {
      std::this_thread::sleep_for(milliseconds(10));
      MutexLock lock(gate.mutex);
      gate.open = true;
      gate.condition.NotifyAll();
    });
    EXPECT_TRUE(WaitForGate(gate, deadline));
    opener.join();
  }
}

TEST(CondVar, WaitWithoutADeadline_ReturnsWhenNotified) {
  Gate gate;
  std::thread opener([&gate] {
    MutexLock lock(gate.mutex);
    gate.open = true;
    gate.condition.NotifyOne();
  });
  {
    MutexLock lock(gate.mutex);
    while (!gate.open) gate.condition.WaitUntil(gate.mutex, kNever);
    EXPECT_TRUE(gate.open);
  }
  opener.join();
}

TEST(Mutex, TwoThreadsThatCount_LoseNothing) {
  Mutex mutex;
  int count = 0;
  const auto add = [&](int times) {
    for (int i = 0; i < times; ++i) {
      MutexLock lock(mutex);
      ++count;
    }
  };
  std::thread other(add, 3000);
  add(2000);
  other.join();
  EXPECT_EQ(count, 5000);
}

}  // namespace
}  // namespace horovod_tf
