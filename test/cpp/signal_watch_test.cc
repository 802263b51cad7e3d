#include "horovod_tf/common/base/signal_watch.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <thread>

#include "test/cpp/support/local_cluster.h"

namespace horovod_tf {
namespace {

// Not the one that the process's job uses.
constexpr int kSignal = SIGUSR2;

bool Reaches(const std::atomic<int>& value, int goal) {
  const TimePoint deadline = TestDeadline();
  while (value.load() < goal && Clock::Real().Now() < deadline) std::this_thread::yield();
  return value.load() == goal;
}

TEST(SignalWatch, EachSignal_IsActedUpon) {
  std::atomic<int> actions{0};
  const std::thread::id here = std::this_thread::get_id();
  const SignalWatch watch(kSignal, [&] {
    EXPECT_NE(std::this_thread::get_id(), here);
    ++actions;
  });
  ASSERT_TRUE(watch.watching());
  for (int signal = 1; signal <= 3; ++signal) {
    raise(kSignal);
    EXPECT_TRUE(Reaches(actions, signal));
  }
}

TEST(SignalWatch, AHandlerOfTheProgram_IsLeftAlone) {
  static std::atomic<int> handled;
  handled = 0;
  signal(kSignal, [](int) { ++handled; });
  {
    const SignalWatch watch(kSignal, [] { ADD_FAILURE() << "not its signal"; });
    EXPECT_FALSE(watch.watching());
    raise(kSignal);
    EXPECT_EQ(handled.load(), 1);
  }
  raise(kSignal);
  EXPECT_EQ(handled.load(), 2);
  signal(kSignal, SIG_DFL);
}

TEST(SignalWatch, AHandlerThatComesLater_KeepsTheSignal) {
  static std::atomic<int> handled;
  handled = 0;
  {
    const SignalWatch watch(kSignal, [] { ADD_FAILURE() << "not its signal any more"; });
    ASSERT_TRUE(watch.watching());
    signal(kSignal, [](int) { ++handled; });
    raise(kSignal);
    EXPECT_EQ(handled.load(), 1);
  }
  raise(kSignal);
  EXPECT_EQ(handled.load(), 2);
  signal(kSignal, SIG_DFL);
}

TEST(SignalWatch, Afterwards_TheSignalDoesNothingUntilTheNext) {
  {
    const SignalWatch watch(kSignal, [] {});
  }
  raise(kSignal);
  std::atomic<int> actions{0};
  const SignalWatch again(kSignal, [&] { ++actions; });
  ASSERT_TRUE(again.watching());
  EXPECT_EQ(actions.load(), 0);
  raise(kSignal);
  EXPECT_TRUE(Reaches(actions, 1));
}

TEST(SignalWatch, Afterwards_NoThreadIsLeft) {
  const auto threads = [] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  const auto before = threads();
  {
    const SignalWatch watch(kSignal, [] {});
    EXPECT_EQ(threads(), before + 1);
  }
  EXPECT_EQ(threads(), before);
}

}  // namespace
}  // namespace horovod_tf
