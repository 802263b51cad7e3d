#include "horovod_tf/common/protocol/coordinator_watch.h"

#include <gtest/gtest.h>

namespace horovod_tf {
namespace {

TimePoint At(double seconds) { return TimePoint() + FromSeconds(seconds); }

StallOptions Options(double warning, double shutdown) {
  StallOptions options;
  options.warning_time = FromSeconds(warning);
  options.shutdown_time = FromSeconds(shutdown);
  return options;
}

bool Silent(const CoordinatorWatch::Verdict& verdict) {
  return !verdict.ask && verdict.warning.empty() && verdict.failure.ok();
}

TEST(CoordinatorWatch, ASilence_IsAskedAboutWarnedOfAndAtLastFatal) {
  CoordinatorWatch watch(Options(60, 150));
  watch.Restart(At(10));
  EXPECT_EQ(watch.NextCheck(), At(68));
  EXPECT_TRUE(Silent(watch.Check(At(67))));
  EXPECT_TRUE(watch.Check(At(68)).ask);
  EXPECT_TRUE(Silent(watch.Check(At(68))));
  EXPECT_EQ(watch.NextCheck(), At(128));
  const CoordinatorWatch::Verdict warned = watch.Check(At(128));
  EXPECT_FALSE(warned.ask);
  EXPECT_NE(warned.warning.find("Rank 0 has not answered for 60 s"), std::string::npos);
  EXPECT_EQ(watch.NextCheck(), At(188));
  EXPECT_FALSE(watch.Check(At(188)).warning.empty());
  EXPECT_EQ(watch.NextCheck(), At(218));
  EXPECT_TRUE(Silent(watch.Check(At(217))));
  const Status failure = watch.Check(At(218)).failure;
  EXPECT_NE(failure.message().find("Rank 0 has not answered for 150 s"), std::string::npos);
  EXPECT_NE(failure.message().find("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"), std::string::npos);
}

TEST(CoordinatorWatch, AnAnswer_BeginsAllAgain) {
  CoordinatorWatch watch(Options(60, 60));
  watch.Restart(At(0));
  for (double now = 58; now < 1000; now += 58.5) {
    EXPECT_TRUE(watch.Check(At(now)).ask);
    watch.Restart(At(now + 0.5));
  }
}

// Whoever was stopped for an hour himself asks first.
TEST(CoordinatorWatch, ALateLook_AsksBeforeItBlames) {
  CoordinatorWatch watch(Options(60, 600));
  watch.Restart(At(0));
  const CoordinatorWatch::Verdict verdict = watch.Check(At(3600));
  EXPECT_TRUE(verdict.ask);
  EXPECT_TRUE(verdict.warning.empty());
  EXPECT_TRUE(verdict.failure.ok());
  EXPECT_EQ(watch.NextCheck(), At(3660));
}

TEST(CoordinatorWatch, NoLimit_OnlyWarns) {
  CoordinatorWatch watch(Options(60, 0));
  watch.Restart(At(0));
  EXPECT_TRUE(watch.Check(At(58)).ask);
  for (int round = 1; round < 100; ++round) {
    EXPECT_EQ(watch.NextCheck(), At(58 + 60.0 * round));
    const CoordinatorWatch::Verdict verdict = watch.Check(watch.NextCheck());
    EXPECT_FALSE(verdict.warning.empty());
    EXPECT_TRUE(verdict.failure.ok());
  }
}

TEST(CoordinatorWatch, ALimitBeforeTheWarning_Stands) {
  CoordinatorWatch watch(Options(60, 4));
  watch.Restart(At(0));
  EXPECT_EQ(watch.NextCheck(), At(3));
  EXPECT_TRUE(watch.Check(At(3)).ask);
  EXPECT_EQ(watch.NextCheck(), At(7));
  EXPECT_FALSE(watch.Check(At(7)).failure.ok());
}

TEST(CoordinatorWatch, WithoutTheStallCheck_Sleeps) {
  StallOptions options = Options(60, 600);
  options.enabled = false;
  CoordinatorWatch watch(options);
  watch.Restart(At(0));
  EXPECT_EQ(watch.NextCheck(), kNever);
  EXPECT_TRUE(Silent(watch.Check(At(1e6))));
}

}  // namespace
}  // namespace horovod_tf
