#include "horovod_tf/common/protocol/tensor_table.h"

#include <gtest/gtest.h>

#include "test/cpp/support/step_cluster.h"

namespace horovod_tf {
namespace {

TensorDefinition Scaled(const std::string& name, double prescale) {
  TensorDefinition definition;
  definition.common = AllreduceRequest(name, {2});
  definition.common.prescale = prescale;
  return definition;
}

bool NoneBusy(TensorId) { return false; }

TEST(FusionClasses, EqualTensorsShareANumberUntilTheLastIsGone) {
  FusionClasses classes;
  const std::uint32_t one = classes.Acquire(Scaled("a", 1));
  EXPECT_NE(one, kNeverFused);
  EXPECT_EQ(classes.Acquire(Scaled("b", 1)), one);
  const std::uint32_t two = classes.Acquire(Scaled("c", 2));
  EXPECT_NE(two, one);
  EXPECT_NE(two, kNeverFused);
  classes.Release(one);
  EXPECT_EQ(classes.size(), 2u);
  EXPECT_EQ(classes.Acquire(Scaled("b", 1)), one);
  classes.Release(one);
  classes.Release(one);
  EXPECT_EQ(classes.size(), 1u);
  EXPECT_EQ(classes.Acquire(Scaled("d", 3)), one);  // the number is free again
}

TEST(FusionClasses, KindsThatAreNotFusedHaveNoNumber) {
  FusionClasses classes;
  TensorDefinition broadcast;
  broadcast.common = BroadcastRequest("w", {2}, 0);
  EXPECT_EQ(classes.Acquire(broadcast), kNeverFused);
  classes.Release(kNeverFused);
  EXPECT_EQ(classes.size(), 0u);
}

TEST(TensorTable, FactorsThatChangeWithEveryStepDoNotPileUp) {
  TensorTable table(8);
  ASSERT_EQ(table.Define(Scaled("a", 0.5)), TensorId{0});
  for (int step = 1; step <= 1000; ++step) {
    table.Redefine(0, Scaled("a", step));
    ASSERT_LE(table.candidate(0).fusion_class, 2u);
  }
  EXPECT_EQ(table.definition(0).common.prescale, 1000);
}

TEST(TensorTable, ForgottenTensorsGiveTheirFusionClassBack) {
  TensorTable table(1);
  for (std::uint64_t step = 0; step < 100; ++step) {
    ASSERT_EQ(table.Define(Scaled("a", static_cast<double>(step))), TensorId{0});
    ASSERT_LE(table.candidate(0).fusion_class, 1u);
    ASSERT_EQ(table.Evict(1, NoneBusy, step), std::vector<TensorId>{0});
    table.EndRest(step + 1);
  }
}

TEST(TensorTable, LowestFreeIdIsGivenFirst) {
  TensorTable table(4);
  for (TensorId id = 0; id < 4; ++id) {
    ASSERT_EQ(table.Define(Scaled(std::to_string(id), 1)), id);
  }
  EXPECT_EQ(table.Define(Scaled("more", 1)), std::nullopt);
  table.NoteExecuted(0);
  EXPECT_EQ(table.Evict(1, NoneBusy, 10), std::vector<TensorId>{1});
  EXPECT_EQ(table.Evict(1, NoneBusy, 10), std::vector<TensorId>{2});
  EXPECT_EQ(table.Define(Scaled("more", 1)), std::nullopt);  // they rest
  table.EndRest(10);
  EXPECT_EQ(table.Define(Scaled("more", 1)), std::nullopt);  // somebody has not seen record 10
  table.EndRest(11);
  EXPECT_EQ(table.Define(Scaled("more", 1)), TensorId{1});
  EXPECT_EQ(table.Find("more"), TensorId{1});
  EXPECT_EQ(table.Find("1"), std::nullopt);
}

TEST(TensorTable, NegativeCapacityIsNone) {
  TensorTable table(-5);
  EXPECT_EQ(table.Define(Scaled("a", 1)), std::nullopt);
  EXPECT_TRUE(table.Evict(3, NoneBusy, 0).empty());
  EXPECT_FALSE(table.Resting(0, 0));
}

TEST(TensorTableDeathTest, IdThatChangesItsTensor_IsABugOfTheCaller) {
  TensorTable table(2);
  ASSERT_EQ(table.Define(Scaled("a", 1)), TensorId{0});
  EXPECT_DEATH(table.Redefine(0, Scaled("b", 1)), "an id keeps its tensor");
}

}  // namespace
}  // namespace horovod_tf
