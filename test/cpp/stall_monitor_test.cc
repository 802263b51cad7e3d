#include "horovod_tf/common/protocol/stall_monitor.h"

#include <gtest/gtest.h>

#include <numeric>

namespace horovod_tf {
namespace {

TimePoint At(double seconds) { return TimePoint() + FromSeconds(seconds); }

StallOptions Options(double warning, double shutdown = 0) {
  StallOptions options;
  options.warning_time = FromSeconds(warning);
  options.shutdown_time = FromSeconds(shutdown);
  return options;
}

PendingTensor Pending(const std::string& name, double since, std::vector<int> ready = {0},
                      std::vector<int> missing = {1}) {
  return {name, At(since), std::move(ready), std::move(missing)};
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(StallMonitor, Warning_NamesTensorTimeAndRanks) {
  StallMonitor monitor(Options(60));
  const StallReport report =
      monitor.Check(At(161.5), {Pending("grad/w:0", 100, {0, 1, 2, 3, 7}, {4, 5, 6, 8, 10})});
  EXPECT_TRUE(report.shutdown.ok());
  const std::string head =
      "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of "
      "ranks";
  const std::string tensor =
      "'grad/w:0' (allreduce) for 61.5 s [ready ranks: 0-3, 7] [missing ranks: 4-6, 8, 10]";
  const std::string setting = "HOROVOD_STALL_CHECK_TIME_SECONDS";
  for (const std::string& part : {head, std::string("different tensors"), std::string("deadlock"),
                                  std::string("more than 60 s"), tensor, setting}) {
    EXPECT_TRUE(Contains(report.warning, part)) << part << " not in:\n" << report.warning;
  }
}

TEST(StallMonitor, ItSaysOfWhomItComplains) {
  StallMonitor monitor(Options(60, 100));
  const std::vector<PendingTensor> pending = {
      Pending("a", 0, {0}, {1, 4}), Pending("b", 1, {0}, {3, 4}), Pending("young", 90, {0}, {2})};
  EXPECT_EQ(monitor.Check(At(61), pending).missing_ranks, (std::vector<int>{1, 3, 4}));
  EXPECT_EQ(monitor.Check(At(62), pending).missing_ranks, std::vector<int>());
  EXPECT_EQ(monitor.Check(At(100), pending).missing_ranks, (std::vector<int>{1, 2, 3, 4}));
}

TEST(StallMonitor, ATensorYoungerThanTheTime_IsNotNamed) {
  StallMonitor monitor(Options(60));
  EXPECT_EQ(monitor.Check(At(159.999), {Pending("young", 100)}).warning, "");
  const StallReport report = monitor.Check(At(160), {Pending("old", 100), Pending("young", 100.1)});
  EXPECT_TRUE(Contains(report.warning, "'old'"));
  EXPECT_FALSE(Contains(report.warning, "'young'"));
}

TEST(StallMonitor, AWarning_ComesAgainOncePerInterval) {
  StallMonitor monitor(Options(10));
  const std::vector<PendingTensor> pending = {Pending("x", 0)};
  std::vector<int> warned_at;
  for (int second = 0; second <= 45; ++second) {
    if (!monitor.Check(At(second), pending).warning.empty()) warned_at.push_back(second);
  }
  EXPECT_EQ(warned_at, (std::vector<int>{10, 20, 30, 40}));
}

TEST(StallMonitor, ASecondTensor_WaitsForTheNextInterval) {
  StallMonitor monitor(Options(10));
  EXPECT_NE(monitor.Check(At(10), {Pending("x", 0), Pending("y", 2)}).warning, "");
  EXPECT_EQ(monitor.NextCheck(At(2)), At(20));
  EXPECT_EQ(monitor.Check(At(12), {Pending("y", 2)}).warning, "");
  EXPECT_TRUE(Contains(monitor.Check(At(20), {Pending("y", 2)}).warning, "'y'"));
}

TEST(StallMonitor, NothingPending_SleepsForEver) {
  const StallMonitor monitor(Options(10, 20));
  EXPECT_EQ(monitor.NextCheck(std::nullopt), kNever);
}

TEST(StallMonitor, NextCheck_IsTheFirstTimeWithSomethingToSay) {
  StallMonitor monitor(Options(10, 25));
  const std::vector<PendingTensor> pending = {Pending("x", 3)};
  std::vector<TimePoint> checks;
  for (TimePoint now = At(3); checks.size() < 3;) {
    now = monitor.NextCheck(At(3));
    EXPECT_EQ(monitor.Check(now - Duration(1), pending).warning, "") << "too early";
    const StallReport report = monitor.Check(now, pending);
    EXPECT_TRUE(!report.warning.empty() || !report.shutdown.ok()) << "would spin";
    checks.push_back(now);
  }
  EXPECT_EQ(checks, (std::vector<TimePoint>{At(13), At(23), At(28)}));
}

TEST(StallMonitor, ShutdownTime_NamesTensorAndMissingRanks) {
  StallMonitor monitor(Options(10, 30));
  const std::vector<PendingTensor> pending = {Pending("y", 1), Pending("x", 0, {0, 2}, {1, 3, 4})};
  EXPECT_TRUE(monitor.Check(At(29), pending).shutdown.ok());
  const StallReport report = monitor.Check(At(30), pending);
  const Status& shutdown = report.shutdown;
  EXPECT_EQ(shutdown.code(), StatusCode::kUnknown);
  EXPECT_TRUE(Contains(shutdown.message(),
                       "'x' (allreduce) for 30 s [ready ranks: 0, 2] [missing ranks: 1, "
                       "3-4]"))
      << shutdown;
  EXPECT_TRUE(Contains(shutdown.message(), "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"));
  EXPECT_TRUE(Contains(report.also_waiting, "\nAlso waiting: 'y' (allreduce) for 29 s [ready"));
  EXPECT_FALSE(Contains(report.also_waiting, "'x'"));
}

TEST(StallMonitor, ShutdownBeforeTheWarning_NeedsNoWarning) {
  StallMonitor monitor(Options(60, 5));
  EXPECT_EQ(monitor.NextCheck(At(0)), At(5));
  const StallReport report = monitor.Check(At(5), {Pending("x", 0)});
  EXPECT_FALSE(report.shutdown.ok());
  EXPECT_EQ(report.warning, "");
}

TEST(StallMonitor, ShutdownTimeZero_NeverShutsDown) {
  StallMonitor monitor(Options(10, 0));
  EXPECT_TRUE(monitor.Check(At(1e6), {Pending("x", 0)}).shutdown.ok());
}

// What the line about these two says, if there is one.
std::string Explained(PendingTensor a, PendingTensor b) {
  StallMonitor monitor(Options(10, 30));
  const StallReport report = monitor.Check(At(30), {std::move(a), std::move(b)});
  const auto line_of = [](const std::string& text) {
    const std::size_t begin = text.find("\n[ranks: ");
    return begin == std::string::npos ? "" : text.substr(begin, text.find("name=", begin) - begin);
  };
  EXPECT_EQ(line_of(report.warning), line_of(report.also_waiting));
  return line_of(report.warning);
}

TEST(StallMonitor, NamesThatDifferInTensorFlowsNumbersOnly_AreExplained) {
  const std::string said =
      Explained(Pending("HorovodAllreduce_dense_MatMul_1_0", 0, {0, 2}, {1, 3}),
                Pending("HorovodAllreduce_dense_1_MatMul_2_0", 29, {1, 3}, {0, 2}));
  EXPECT_TRUE(Contains(said, "[ranks: 0, 2] wait for 'HorovodAllreduce_dense_MatMul_1_0' and"));
  EXPECT_TRUE(Contains(said, "[ranks: 1, 3] for 'HorovodAllreduce_dense_1_MatMul_2_0'"));
  EXPECT_TRUE(Contains(said, "do the ranks build different graphs?"));
  EXPECT_NE(Explained(Pending("x", 0, {0}, {1}), Pending("x_1", 0, {1}, {0})), "");
  EXPECT_NE(Explained(Pending("a_1/x@7:3", 0, {0}, {1}), Pending("a/x_4@7:3", 0, {1}, {0})), "");
}

TEST(StallMonitor, OtherNames_AreNotExplained) {
  EXPECT_EQ(Explained(Pending("x", 0, {0}, {1}), Pending("y", 0, {1}, {0})), "");
  EXPECT_EQ(Explained(Pending("x_1of2", 0, {0}, {1}), Pending("x_2of2", 0, {1}, {0})), "");
  EXPECT_EQ(Explained(Pending("x1", 0, {0}, {1}), Pending("x2", 0, {1}, {0})), "");
  EXPECT_EQ(Explained(Pending("_", 0, {0}, {1}), Pending("_a_", 0, {1}, {0})), "");
  // One rank waits for both: it numbers nothing differently.
  EXPECT_EQ(Explained(Pending("x", 0, {0, 1}, {2}), Pending("x_1", 0, {1}, {0, 2})), "");
}

TEST(StallMonitor, TensorsThatDifferInMoreThanNames_AreNotExplained) {
  PendingTensor a = Pending("x", 0, {0}, {1});
  PendingTensor b = Pending("x_1", 0, {1}, {0});
  a.signature = "ALLREDUCE of float32";
  b.signature = "ALLREDUCE of float64";
  EXPECT_EQ(Explained(a, b), "");
  b.signature = a.signature;
  EXPECT_NE(Explained(a, b), "");
}

TEST(StallMonitor, OfManyPairs_AFewAreExplained) {
  std::vector<PendingTensor> pending;
  for (int i = 0; i < 10; ++i) {
    const std::string name(1, static_cast<char>('a' + i));
    pending.push_back(Pending(name, 0, {0}, {1}));
    pending.push_back(Pending(name + "_1", 0, {1}, {0}));
  }
  StallMonitor monitor(Options(10));
  const std::string warning = monitor.Check(At(10), pending).warning;
  EXPECT_TRUE(Contains(warning, "] for 'c_1'"));
  EXPECT_FALSE(Contains(warning, "] for 'd_1'"));
}

TEST(StallMonitor, Disabled_SaysNothing) {
  StallOptions options = Options(10, 20);
  options.enabled = false;
  StallMonitor monitor(options);
  EXPECT_EQ(monitor.NextCheck(At(0)), kNever);
  const StallReport report = monitor.Check(At(1000), {Pending("x", 0)});
  EXPECT_EQ(report.warning, "");
  EXPECT_TRUE(report.shutdown.ok());
}

TEST(StallMonitor, ManyTensors_AreCutShortWithTheOldestFirst) {
  StallMonitor monitor(Options(10));
  std::vector<PendingTensor> pending;
  pending.reserve(57);
  for (int i = 0; i < 57; ++i) pending.push_back(Pending("t" + std::to_string(i), 57 - i));
  const std::string warning = monitor.Check(At(1000), pending).warning;
  EXPECT_TRUE(Contains(warning, "... and 37 more"));
  EXPECT_TRUE(Contains(warning, "'t56'"));
  EXPECT_TRUE(Contains(warning, "'t37'"));
  EXPECT_FALSE(Contains(warning, "'t36'"));
  EXPECT_LT(warning.find("'t56'"), warning.find("'t55'"));
}

TEST(StallMonitor, ManyRanks_AreOneRange) {
  std::vector<int> ready(511);
  std::iota(ready.begin(), ready.end(), 0);
  StallMonitor monitor(Options(10));
  const std::string warning = monitor.Check(At(10), {Pending("x", 0, ready, {511})}).warning;
  EXPECT_TRUE(Contains(warning, "[ready ranks: 0-510] [missing ranks: 511]"));
}

TEST(StallMonitor, TimesTooLargeToAdd_AreNever) {
  StallMonitor monitor(Options(1e300));
  EXPECT_EQ(monitor.NextCheck(TimePoint::max() - Duration(1)), kNever);
}

}  // namespace
}  // namespace horovod_tf
