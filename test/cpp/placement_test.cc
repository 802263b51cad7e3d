#include "horovod_tf/common/runtime/placement.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "test/cpp/support/thread_exchange.h"

namespace horovod_tf {
namespace {

// A rank that may use processors [begin, end).
Placement On(int rank, const std::string& host, std::size_t begin, std::size_t end) {
  Placement placement{rank, host, std::vector<bool>(end, false)};
  for (std::size_t cpu = begin; cpu < end; ++cpu) placement.processors[cpu] = true;
  return placement;
}

TEST(Placement, RanksThatMayUseAllOfTheHost_AreFine) {
  EXPECT_EQ(JudgePlacement({On(0, "a#0", 0, 16), On(1, "a#0", 0, 16)}, "a#0", 16), "");
  EXPECT_EQ(JudgePlacement({On(0, "a#0", 0, 1)}, "a#0", 1), "");
}

// One rank a core is how many jobs are meant to be.
TEST(Placement, AsManyRanksAsCoresEachBoundToOne_AreFine) {
  std::vector<Placement> ranks;
  for (int rank = 0; rank < 8; ++rank) {
    const auto cpu = static_cast<std::size_t>(rank);
    ranks.push_back(On(rank, "a#0", cpu, cpu + 1));
  }
  EXPECT_EQ(JudgePlacement(ranks, "a#0", 8), "");
  EXPECT_EQ(JudgePlacement({On(0, "a#0", 0, 1), On(1, "a#0", 1, 2)}, "a#0", 2), "");
}

TEST(Placement, RanksBoundToLargePartsOfTheHost_AreFine) {
  EXPECT_EQ(JudgePlacement({On(0, "a#0", 0, 16), On(1, "a#0", 32, 48)}, "a#0", 64), "");
}

TEST(Placement, MoreRanksThanProcessors_AreWarnedOf) {
  std::vector<Placement> ranks;
  for (int rank = 0; rank < 4; ++rank) ranks.push_back(On(rank, "a#0", 0, 2));
  const std::string text = JudgePlacement(ranks, "a#0", 2);
  EXPECT_NE(text.find("the 4 ranks of host a share 2 processors"), std::string::npos) << text;
  EXPECT_EQ(text.find("--bind-to"), std::string::npos) << text;
}

TEST(Placement, RanksBoundToTheSameProcessor_AreToldHowNotTo) {
  const std::string text = JudgePlacement({On(0, "a#0", 3, 4), On(1, "a#0", 3, 4)}, "a#0", 8);
  EXPECT_NE(text.find("the 2 ranks of host a share 1 processor, to which they are bound, of 8"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("`mpirun --bind-to none`"), std::string::npos) << text;
}

TEST(Placement, RankBoundToOneCoreOfMany_IsToldHowNotTo) {
  // Two hyperthreads of a core.
  const std::string text = JudgePlacement({On(0, "a#0", 0, 2), On(1, "a#0", 2, 4)}, "a#0", 16);
  EXPECT_NE(text.find("rank 0 is bound to 2 processors of the 16 of host a"), std::string::npos)
      << text;
  EXPECT_NE(text.find("the 2 ranks could have 8 each"), std::string::npos) << text;
  EXPECT_NE(text.find("`mpirun --bind-to none`"), std::string::npos) << text;
}

TEST(Placement, EachHost_IsJudgedByItsOwnRanks) {
  const std::vector<Placement> ranks = {On(0, "a#0", 0, 4), On(1, "b#1", 0, 1), On(2, "b#1", 0, 1)};
  EXPECT_EQ(JudgePlacement(ranks, "a#0", 4), "");
  EXPECT_NE(JudgePlacement(ranks, "b#1", 4).find("host b share 1 processor"), std::string::npos);
}

TEST(Placement, SystemThatDoesNotSay_IsNotJudged) {
  EXPECT_EQ(JudgePlacement({{0, "a#0", {}}, {1, "a#0", {}}}, "a#0", 1), "");
}

// With the real processors of this machine: one more rank than there are.
TEST(Placement, OnlyTheFirstRankOfAHost_Logs) {
  cpu_set_t own;
  ASSERT_EQ(sched_getaffinity(0, sizeof own, &own), 0);
  const auto size = static_cast<std::size_t>(CPU_COUNT(&own)) + 1;
  const auto hub = std::make_shared<ExchangeHub>(size);
  std::vector<std::string> lines(size);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadExchange exchange(hub, static_cast<int>(rank));
      const Logger logger(LogLevel::kWarning, true,
                          [&](std::string_view line) { lines[rank] += line; });
      EXPECT_TRUE(WarnOfPlacement(exchange, "a#0", logger).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(lines[0].find("the " + std::to_string(size) + " ranks of host a share"),
            std::string::npos)
      << lines[0];
  for (std::size_t rank = 1; rank < size; ++rank) EXPECT_EQ(lines[rank], "");
}

TEST(Placement, BrokenExchange_IsItsError) {
  ThreadExchange exchange(std::make_shared<ExchangeHub>(1), 0, 0);
  const Logger logger;
  EXPECT_EQ(WarnOfPlacement(exchange, "a#0", logger).code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace horovod_tf
