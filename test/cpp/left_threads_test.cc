// No test leaves a thread behind: it would work into the next ones, and a child that a later test
// forks would inherit the locks that it held.

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>

namespace horovod_tf {
namespace {

std::size_t CountThreads() {
  using Entries = std::filesystem::directory_iterator;
  return static_cast<std::size_t>(std::distance(Entries("/proc/self/task"), Entries()));
}

// Fails a test after which there are more threads than before it; those that a test has let go may
// take a moment.
class LeftThreads : public ::testing::EmptyTestEventListener {
  // A sanitizer starts a thread of its own with the first. Death tests, which come before all
  // others, want to be alone.
  void OnTestStart(const ::testing::TestInfo& test) override {
    if (std::string(test.test_suite_name()).find("DeathTest") == std::string::npos)
      std::thread([] {}).join();
    before_ = CountThreads();
  }

  void OnTestEnd(const ::testing::TestInfo& test) override {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (CountThreads() > before_) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << CountThreads() - before_ << " threads are left by "
                      << test.test_suite_name() << '.' << test.name();
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  std::size_t before_ = 0;
};

const bool kListens = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new LeftThreads);
  return true;
}();

TEST(LeftThreads, AreLookedFor) { EXPECT_TRUE(kListens); }

}  // namespace
}  // namespace horovod_tf
