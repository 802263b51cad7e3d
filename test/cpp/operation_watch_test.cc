#include "horovod_tf/common/runtime/operation_watch.h"

#include <gtest/gtest.h>

#include <vector>

#include "test/cpp/support/fake_clock.h"

namespace horovod_tf {
namespace {

std::string What() { return "allreduce of tensor 'x'"; }

class OperationWatchTest : public testing::Test {
 protected:
  static StallOptions Options(double warning, double shutdown) {
    StallOptions options;
    options.warning_time = FromSeconds(warning);
    options.shutdown_time = FromSeconds(shutdown);
    return options;
  }

  FakeClock clock_;
  std::vector<std::string> lines_;
  const Logger logger_{LogLevel::kWarning, true,
                       [this](std::string_view line) { lines_.emplace_back(line); }};
};

TEST_F(OperationWatchTest, ALongOperation_IsWarnedOfAndThenFails) {
  OperationWatch watch(Options(60, 150), clock_, logger_);
  EXPECT_TRUE(watch.Look(What).ok());
  clock_.Advance(FromSeconds(59));
  EXPECT_TRUE(watch.Look(What).ok());
  EXPECT_TRUE(lines_.empty());
  clock_.Advance(FromSeconds(1));
  EXPECT_TRUE(watch.Look(What).ok());
  EXPECT_TRUE(watch.Look(What).ok());
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_NE(lines_[0].find("the allreduce of tensor 'x' has not ended for 60 s"),
            std::string::npos);
  clock_.Advance(FromSeconds(60));
  EXPECT_TRUE(watch.Look(What).ok());
  EXPECT_EQ(lines_.size(), 2u);
  clock_.Advance(FromSeconds(30));
  const Status status = watch.Look(What);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"), std::string::npos);
}

TEST_F(OperationWatchTest, AnotherOperation_BeginsAgain) {
  OperationWatch watch(Options(60, 60), clock_, logger_);
  for (int operation = 0; operation < 10; ++operation) {
    watch.Restart();
    EXPECT_TRUE(watch.Look(What).ok());
    clock_.Advance(FromSeconds(59));
    EXPECT_TRUE(watch.Look(What).ok());
  }
  EXPECT_TRUE(lines_.empty());
}

TEST_F(OperationWatchTest, OffOrWithoutALimit_NeverFails) {
  StallOptions off = Options(60, 60);
  off.enabled = false;
  for (const StallOptions& options : {off, Options(60, 0)}) {
    lines_.clear();
    OperationWatch watch(options, clock_, logger_);
    for (int minute = 0; minute < 100; ++minute) {
      EXPECT_TRUE(watch.Look(What).ok());
      clock_.Advance(FromSeconds(60));
    }
    EXPECT_EQ(lines_.size(), options.enabled ? 99u : 0u);
  }
}

}  // namespace
}  // namespace horovod_tf
