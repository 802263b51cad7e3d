#include "horovod_tf/common/protocol/fusion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace horovod_tf {
namespace {

using Plan = std::vector<std::vector<std::size_t>>;

constexpr std::uint32_t kA = 1;
constexpr std::uint32_t kB = 2;

TEST(Fusion, Nothing_GivesNoBatch) { EXPECT_EQ(PlanFusion({}, 100), Plan()); }

TEST(Fusion, AllThatFits_IsOneBatch) {
  EXPECT_EQ(PlanFusion({{kA, 40}, {kA, 50}, {kA, 10}}, 100), (Plan{{0, 1, 2}}));
}

TEST(Fusion, OneByteTooMany_StartsAnotherBatch) {
  EXPECT_EQ(PlanFusion({{kA, 40}, {kA, 50}, {kA, 11}}, 100), (Plan{{0, 1}, {2}}));
}

TEST(Fusion, ATensorThatDoesNotFit_LeavesRoomForSmallerOnes) {
  EXPECT_EQ(PlanFusion({{kA, 60}, {kA, 70}, {kA, 40}, {kA, 30}}, 100), (Plan{{0, 2}, {1, 3}}));
}

TEST(Fusion, ATensorLargerThanTheThreshold_IsAlone) {
  EXPECT_EQ(PlanFusion({{kA, 30}, {kA, 101}, {kA, 30}}, 100), (Plan{{0, 2}, {1}}));
}

TEST(Fusion, LargeTensors_DoNotCloseTheBatchWithRoom) {
  std::vector<FusionCandidate> ready(50, {kA, 100});
  ready.front().bytes = 30;
  ready.back().bytes = 70;
  const Plan plan = PlanFusion(ready, 100);
  ASSERT_EQ(plan.size(), 49u);
  EXPECT_EQ(plan.front(), (std::vector<std::size_t>{0, 49}));
}

TEST(Fusion, Classes_AreNeverMixed) {
  EXPECT_EQ(PlanFusion({{kA, 10}, {kB, 10}, {kA, 10}, {kB, 10}}, 100), (Plan{{0, 2}, {1, 3}}));
}

TEST(Fusion, NeverFused_IsAlwaysAlone) {
  EXPECT_EQ(PlanFusion({{kNeverFused, 1}, {kA, 1}, {kNeverFused, 1}, {kA, 1}}, 100),
            (Plan{{0}, {1, 3}, {2}}));
}

TEST(Fusion, ThresholdZeroOrLess_MeansNoFusion) {
  for (const std::int64_t threshold : {std::int64_t{0}, std::int64_t{-5}}) {
    EXPECT_EQ(PlanFusion({{kA, 0}, {kA, 0}, {kA, 1}}, threshold), (Plan{{0}, {1}, {2}}));
  }
}

TEST(Fusion, EmptyTensors_FuseWithOthers) {
  EXPECT_EQ(PlanFusion({{kA, 0}, {kA, 100}, {kA, 0}}, 100), (Plan{{0, 1, 2}}));
}

TEST(Fusion, BytesNearTheLargestNumber_DoNotWrap) {
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(PlanFusion({{kA, kLargest - 1}, {kA, 2}, {kA, 1}}, kLargest), (Plan{{0, 2}, {1}}));
}

TEST(Fusion, OpenBatches_AreBounded) {
  // Six that leave room for 10 each, then one that fits: the oldest two are closed by then.
  std::vector<FusionCandidate> ready(6, {kA, 90});
  ready.push_back({kA, 10});
  EXPECT_EQ(PlanFusion(ready, 100), (Plan{{0}, {1}, {2, 6}, {3}, {4}, {5}}));
}

TEST(Fusion, ClassNumbers_MayBeAnything) {
  const std::uint32_t large = std::numeric_limits<std::uint32_t>::max();
  EXPECT_EQ(
      PlanFusion({{large, 1}, {5, 1}, {large, 1}, {kNeverFused, 1}, {5, 1}, {kNeverFused, 1}}, 100),
      (Plan{{0, 2}, {1, 4}, {3}, {5}}));
}

// What must hold for any input.
void ExpectWellFormed(const std::vector<FusionCandidate>& ready, std::int64_t threshold,
                      const Plan& plan) {
  std::vector<int> seen(ready.size(), 0);
  std::size_t previous_first = 0;
  for (const auto& batch : plan) {
    ASSERT_FALSE(batch.empty());
    EXPECT_TRUE(&batch == &plan.front() || batch.front() > previous_first);
    previous_first = batch.front();
    EXPECT_TRUE(std::is_sorted(batch.begin(), batch.end()));
    std::int64_t bytes = 0;
    for (std::size_t i : batch) {
      ++seen.at(i);
      bytes += ready[i].bytes;
      EXPECT_EQ(ready[i].fusion_class, ready[batch.front()].fusion_class);
    }
    if (batch.size() > 1) {
      EXPECT_LE(bytes, threshold);
      EXPECT_NE(ready[batch.front()].fusion_class, kNeverFused);
    }
  }
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
}

TEST(Fusion, RandomInputs_KeepEveryProperty) {
  std::mt19937 random(4242);
  for (int round = 0; round < 2000; ++round) {
    const std::uint32_t class_step = round % 3 == 0 ? 100000007u : 1u;
    const std::int64_t threshold = static_cast<std::int64_t>(random() % 1000) - 20;
    std::vector<FusionCandidate> ready(random() % 60);
    for (FusionCandidate& candidate : ready) {
      candidate.fusion_class = static_cast<std::uint32_t>(random() % 5) * class_step;
      candidate.bytes = static_cast<std::int64_t>(random() % 600);
    }
    const Plan plan = PlanFusion(ready, threshold);
    ExpectWellFormed(ready, threshold, plan);
    EXPECT_EQ(plan, PlanFusion(ready, threshold)) << "not deterministic";
    ASSERT_FALSE(testing::Test::HasFailure()) << "round " << round;
  }
}

TEST(Fusion, RandomInputs_WithoutSizePressure_GiveOneBatchPerClass) {
  std::mt19937 random(99);
  for (int round = 0; round < 200; ++round) {
    std::vector<FusionCandidate> ready(random() % 60 + 1);
    std::vector<std::uint32_t> classes;
    for (FusionCandidate& candidate : ready) {
      candidate.fusion_class = static_cast<std::uint32_t>(random() % 7 + 1);
      candidate.bytes = static_cast<std::int64_t>(random() % 100);
      classes.push_back(candidate.fusion_class);
    }
    std::sort(classes.begin(), classes.end());
    classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
    EXPECT_EQ(PlanFusion(ready, 6000).size(), classes.size());
  }
}

}  // namespace
}  // namespace horovod_tf
