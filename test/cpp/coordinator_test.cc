#include "horovod_tf/common/protocol/coordinator.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "test/cpp/support/step_cluster.h"

namespace horovod_tf {
namespace {

template <typename Record>
std::vector<Record> All(const std::vector<LogRecord>& log) {
  std::vector<Record> found;
  for (const LogRecord& record : log) {
    if (const auto* it = std::get_if<Record>(&record)) found.push_back(*it);
  }
  return found;
}

CoordinatorOptions Options() { return StepCluster::DefaultOptions(); }
CoordinatorOptions WithCapacity(std::int64_t capacity) {
  CoordinatorOptions options = Options();
  options.capacity = capacity;
  return options;
}

TEST(Coordinator, FirstRound_DefinesAndExecutes_LaterRoundsOnlyExecute) {
  StepCluster cluster(3);
  cluster.SubmitEverywhere(AllreduceRequest("a", {2}));
  cluster.SubmitEverywhere(AllreduceRequest("b", {3}));
  cluster.Cycle();
  ASSERT_EQ(cluster.log().size(), 3u);
  EXPECT_EQ(std::get<DefineRecord>(cluster.log()[0]).id, 0u);
  EXPECT_EQ(std::get<DefineRecord>(cluster.log()[1]).id, 1u);
  EXPECT_EQ(std::get<ExecuteRecord>(cluster.log()[2]).ids, (std::vector<TensorId>{0, 1}));
  const std::size_t first_bytes = cluster.last_announce_bytes(2);

  cluster.SubmitEverywhere(AllreduceRequest("b", {3}));
  cluster.SubmitEverywhere(AllreduceRequest("a", {2}));
  cluster.Cycle();
  ASSERT_EQ(cluster.log().size(), 4u);
  EXPECT_EQ(std::get<ExecuteRecord>(cluster.log()[3]).ids, (std::vector<TensorId>{0, 1}));
  EXPECT_LT(cluster.last_announce_bytes(2), first_bytes);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(cluster.Executed(rank), "a+b a+b");
  EXPECT_TRUE(cluster.failure().ok()) << cluster.failure();
}

TEST(Coordinator, NothingComplete_SaysNothing) {
  StepCluster cluster(2);
  EXPECT_FALSE(cluster.Advance());
  cluster.Submit(1, AllreduceRequest("a", {2}));
  cluster.Cycle();
  EXPECT_TRUE(cluster.log().empty());
  const std::vector<PendingTensor> pending = cluster.coordinator().Pending();
  ASSERT_EQ(pending.size(), 1u);
  EXPECT_EQ(pending[0].name, "a");
  EXPECT_EQ(pending[0].ready_ranks, std::vector<int>{1});
  EXPECT_EQ(pending[0].missing_ranks, std::vector<int>{0});
  EXPECT_TRUE(cluster.InFlight(1, "a"));
}

TEST(Coordinator, Pending_ListsTheOldestFirstWithAndWithoutId) {
  StepCluster cluster(130);
  cluster.SubmitEverywhere(AllreduceRequest("known", {2}));
  cluster.Cycle();
  EXPECT_TRUE(cluster.coordinator().Pending().empty());
  cluster.now += FromSeconds(1);
  cluster.Submit(129, AllreduceRequest("new", {2}));
  cluster.Cycle();
  cluster.now += FromSeconds(1);
  for (int rank : {0, 64, 128}) cluster.Submit(rank, AllreduceRequest("known", {2}));
  cluster.Cycle();
  const std::vector<PendingTensor> pending = cluster.coordinator().Pending();
  ASSERT_EQ(pending.size(), 2u);
  EXPECT_EQ(pending[0].name, "new");
  EXPECT_EQ(pending[0].ready_ranks, std::vector<int>{129});
  EXPECT_EQ(pending[0].missing_ranks.size(), 129u);
  EXPECT_EQ(pending[1].name, "known");
  EXPECT_EQ(pending[1].ready_ranks, (std::vector<int>{0, 64, 128}));
  EXPECT_EQ(pending[1].missing_ranks.size(), 127u);
  EXPECT_EQ(pending[1].missing_ranks.back(), 129);
  EXPECT_EQ(pending[1].since - pending[0].since, FromSeconds(1));
}

TEST(Coordinator, Order_IsThatOfCompletion) {
  CoordinatorOptions options = Options();
  options.fusion_threshold = 0;
  StepCluster cluster(2, options);
  for (const char* name : {"a", "b", "c"}) cluster.Submit(0, AllreduceRequest(name, {2}));
  for (const char* name : {"c", "a", "b"}) cluster.Submit(1, AllreduceRequest(name, {2}));
  cluster.Cycle();
  EXPECT_EQ(cluster.Executed(0), "c a b");
  EXPECT_EQ(cluster.Executed(1), "c a b");
}

TEST(Coordinator, BytesOfAllReadyTensorsBeyond63Bits_RunAsLargeOnes) {
  StepCluster cluster(1);
  const std::int64_t half = (std::int64_t{1} << 60) + 1;  // two of float32 are more than 2^63 bytes
  for (const char* name : {"a", "b", "c"}) {
    ASSERT_TRUE(ValidateRequest(AllreduceRequest(name, {half}), 1).ok());
    cluster.SubmitEverywhere(AllreduceRequest(name, {half}));
  }
  cluster.Cycle();
  EXPECT_EQ(cluster.Executed(0), "a b c");
  EXPECT_TRUE(cluster.failure().ok()) << cluster.failure();
}

// A sum that wraps is negative, which would be "not yet enough to run".
TEST(Coordinator, BytesOfAllReadyTensorsBeyond63Bits_DoNotWaitForOthers) {
  CoordinatorOptions options = Options();
  options.cycle_time = FromSeconds(1000);
  StepCluster cluster(2, options);
  cluster.Submit(0, AllreduceRequest("waits", {1}));
  const std::int64_t half = (std::int64_t{1} << 60) + 1;
  for (const char* name : {"a", "b"}) cluster.SubmitEverywhere(AllreduceRequest(name, {half}));
  cluster.Cycle();
  EXPECT_EQ(cluster.Executed(1), "a b");
}

TEST(Coordinator, Fusion_TakesOnlyTensorsOfOneKindTypeOperationFactorsAndDevices) {
  StepCluster cluster(2);
  const auto submit = [&](const char* name, const std::function<void(Request*, int rank)>& change) {
    for (int rank = 0; rank < 2; ++rank) {
      Request request = AllreduceRequest(name, {2});
      change(&request, rank);
      cluster.Submit(rank, request);
    }
  };
  for (int round = 0; round < 2; ++round) {
    submit("a", [](Request*, int) {});
    submit("dtype", [](Request* r, int) { r->dtype = DataType::kFloat64; });
    submit("kind", [](Request* r, int) { r->kind = CollectiveKind::kBroadcast; });
    submit("gather", [](Request* r, int) { r->kind = CollectiveKind::kAllgather; });
    submit("gather2", [](Request* r, int) { r->kind = CollectiveKind::kAllgather; });
    submit("op", [](Request* r, int) { r->reduce_op = ReduceOp::kMax; });
    submit("pre", [](Request* r, int) { r->prescale = 0.5; });
    submit("post", [](Request* r, int) { r->postscale = 0.5; });
    submit("gpu", [](Request* r, int rank) { r->device = rank; });
    submit("gpu2", [](Request* r, int rank) { r->device = rank; });
    submit("gpu3", [](Request* r, int rank) { r->device = 1 - rank; });
    submit("z", [](Request*, int) {});
    cluster.Cycle();
  }
  const std::string step = "a+z dtype kind gather gather2 op pre post gpu+gpu2 gpu3";
  EXPECT_EQ(cluster.Executed(0), step + " " + step);
  EXPECT_TRUE(cluster.failure().ok()) << cluster.failure();
}

TEST(Coordinator, Fusion_KeepsToTheThresholdAndLooksPastWhatDoesNotFit) {
  CoordinatorOptions options = Options();
  options.fusion_threshold = 40;
  StepCluster cluster(2, options);
  for (int round = 0; round < 2; ++round) {
    cluster.SubmitEverywhere(AllreduceRequest("a", {5}));  // 20 bytes
    cluster.SubmitEverywhere(AllreduceRequest("big", {99}));
    cluster.SubmitEverywhere(AllreduceRequest("b", {6}));  // 24: does not fit
    cluster.SubmitEverywhere(AllreduceRequest("c", {5}));  // 20: fits beside a
    cluster.Cycle();
  }
  EXPECT_EQ(cluster.Executed(1), "a+c big b a+c big b");
}

// ---- mismatches ------------------------------------------------------------------------------

struct Mismatch {
  const char* what;
  Request everybody;
  std::function<void(Request*)> on_rank_2;
  std::vector<std::string> texts;
};

std::vector<Mismatch> Mismatches() {
  return {
      {"type",
       AllreduceRequest("t", {3}),
       [](Request* r) { r->dtype = DataType::kInt64; },
       {"Mismatched data types", "float32", "int64"}},
      {"kind",
       AllreduceRequest("t", {3}),
       [](Request* r) { r->kind = CollectiveKind::kAllgather; },
       {"Mismatched", "operations", "ALLREDUCE", "ALLGATHER"}},
      {"allreduce shape",
       AllreduceRequest("t", {3}),
       [](Request* r) { r->shape = {4}; },
       {"Mismatched ALLREDUCE tensor shapes", "[3]", "[4]"}},
      {"broadcast shape",
       BroadcastRequest("t", {3}, 1),
       [](Request* r) {
         r->shape = {3, 1};
       },
       {"Mismatched BROADCAST tensor shapes", "[3]", "[3, 1]"}},
      {"operation",
       AllreduceRequest("t", {3}),
       [](Request* r) { r->reduce_op = ReduceOp::kMin; },
       {"Sum", "Min"}},
      {"factor", AllreduceRequest("t", {3}), [](Request* r) { r->prescale = 0.5; }, {"0.5"}},
      {"gathered scalar",
       AllgatherRequest("t", {3}),
       [](Request* r) { r->shape = {}; },
       {"rank-zero"}},
      {"number of dimensions",
       AllgatherRequest("t", {3, 2}),
       [](Request* r) { r->shape = {3}; },
       {"[3, 2]", "[3]"}},
      {"later dimension",
       AllgatherRequest("t", {3, 2}),
       [](Request* r) {
         r->shape = {9, 5};
       },
       {"[3, 2]", "[9, 5]"}},
      {"root",
       BroadcastRequest("t", {3}, 1),
       [](Request* r) { r->root_rank = 0; },
       {"root rank", "1", "0"}},
      {"device",
       AllreduceRequest("t", {3}),
       [](Request* r) { r->device = 0; },
       {"CPU/GPU device selection", "CPU", "GPU 0"}},
  };
}

// Submits `t`, wrong on rank 2, beside a tensor that is right, and expects the error everywhere.
void ExpectMismatch(const Mismatch& mismatch, StepCluster* cluster) {
  Request wrong = mismatch.everybody;
  mismatch.on_rank_2(&wrong);
  for (int rank = 0; rank < 3; ++rank) {
    cluster->Submit(rank, rank == 2 ? wrong : mismatch.everybody);
  }
  cluster->SubmitEverywhere(AllreduceRequest("good", {2}));
  cluster->Cycle();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(cluster->InFlight(rank).empty());
    ASSERT_FALSE(cluster->errors(rank).empty());
    const StepCluster::Event error = cluster->errors(rank).back();
    EXPECT_EQ(error.names, std::vector<std::string>{"t"});
    EXPECT_EQ(error.status.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(error.status.message().find("'t'"), std::string::npos) << error.status;
    for (const std::string& text : mismatch.texts) {
      EXPECT_NE(error.status.message().find(text), std::string::npos)
          << text << " in " << error.status;
    }
  }
}

TEST(Coordinator, Mismatch_ReachesEveryRankAndNothingElseSuffers) {
  for (const Mismatch& mismatch : Mismatches()) {
    for (const std::int64_t capacity : {0, 1, 100}) {
      SCOPED_TRACE(mismatch.what + (" with capacity " + std::to_string(capacity)));
      StepCluster cluster(3, WithCapacity(capacity));
      ExpectMismatch(mismatch, &cluster);  // in the first round
      cluster.SubmitEverywhere(mismatch.everybody);
      cluster.Cycle();
      ExpectMismatch(mismatch, &cluster);  // of a tensor that has been right before
      cluster.SubmitEverywhere(mismatch.everybody);
      cluster.Cycle();
      for (int rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(cluster.errors(rank).size(), 2u);
        EXPECT_EQ(cluster.Executed(rank), "good t good t");
      }
      EXPECT_TRUE(cluster.failure().ok()) << cluster.failure();
    }
  }
}

TEST(Coordinator, MismatchOfAKnownTensor_KeepsItsDefinition) {
  StepCluster cluster(2);
  cluster.SubmitEverywhere(AllreduceRequest("t", {3}));
  cluster.Cycle();
  cluster.Submit(0, AllreduceRequest("t", {3}));
  cluster.Submit(1, AllreduceRequest("t", {4}));
  cluster.Cycle();
  cluster.SubmitEverywhere(AllreduceRequest("t", {3}));
  cluster.Cycle();
  EXPECT_EQ(All<DefineRecord>(cluster.log()).size(), 1u);
  EXPECT_EQ(All<ErrorRecord>(cluster.log()).size(), 1u);
  EXPECT_EQ(cluster.Executed(0), "t t");
}

TEST(Coordinator, GatherOfMoreRowsThanAnyMachineHolds_IsAnErrorEvenWhenAllRanksAgree) {
  StepCluster cluster(4);
  Request huge = AllgatherRequest("g", {std::int64_t{1} << 60});
  cluster.SubmitEverywhere(huge);
  cluster.Cycle();
  EXPECT_EQ(cluster.errors(3).size(), 1u);
  EXPECT_EQ(cluster.Executed(3), "");
}

// ---- definitions -----------------------------------------------------------------------------

TEST(Coordinator, ChangedEverywhere_IsRedefinedUnderTheSameId) {
  StepCluster cluster(2);
  cluster.SubmitEverywhere(AllreduceRequest("other", {2}));
  cluster.SubmitEverywhere(AllreduceRequest("t", {3}));
  cluster.Cycle();
  cluster.SubmitEverywhere(AllreduceRequest("t", {8}));
  cluster.Cycle();
  const auto defines = All<DefineRecord>(cluster.log());
  ASSERT_EQ(defines.size(), 3u);
  EXPECT_EQ(defines[1].id, 1u);
  EXPECT_EQ(defines[2].id, 1u);
  EXPECT_EQ(defines[2].definition.common.shape, TensorShape({8}));
  cluster.SubmitEverywhere(AllreduceRequest("t", {8}));
  cluster.Cycle();
  EXPECT_EQ(All<DefineRecord>(cluster.log()).size(), 3u);
  ASSERT_EQ(cluster.events(1).size(), 3u);
  EXPECT_EQ(cluster.events(1)[2].definitions[0].common.shape, TensorShape({8}));
}

TEST(Coordinator, Redefinition_ChangesWithWhatItIsFused) {
  StepCluster cluster(2);
  for (const char* name : {"a", "b"}) cluster.SubmitEverywhere(AllreduceRequest(name, {2}));
  cluster.Cycle();
  Request b = AllreduceRequest("b", {2});
  b.dtype = DataType::kFloat64;
  for (int round = 0; round < 2; ++round) {
    cluster.SubmitEverywhere(AllreduceRequest("a", {2}));
    cluster.SubmitEverywhere(b);
    cluster.Cycle();
  }
  EXPECT_EQ(cluster.Executed(0), "a+b a b a b");
}

TEST(Coordinator, GatheredRows_MayChangeOnOneRankOnly) {
  StepCluster cluster(3);
  const auto round = [&](std::int64_t rows_of_rank_1) {
    cluster.Submit(0, AllgatherRequest("g", {10, 2}));
    cluster.Submit(1, AllgatherRequest("g", {rows_of_rank_1, 2}));
    cluster.Submit(2, AllgatherRequest("g", {12, 2}));
    cluster.Cycle();
    return cluster.events(2).back().definitions.at(0).first_dims;
  };
  EXPECT_EQ(round(11), (std::vector<std::int64_t>{10, 11, 12}));
  EXPECT_EQ(round(11), (std::vector<std::int64_t>{10, 11, 12}));
  EXPECT_EQ(round(0), (std::vector<std::int64_t>{10, 0, 12}));
  EXPECT_EQ(round(0), (std::vector<std::int64_t>{10, 0, 12}));
  EXPECT_EQ(All<DefineRecord>(cluster.log()).size(), 2u);
  EXPECT_EQ(cluster.Executed(0), "g g g g");
}

TEST(Coordinator, CapacityZero_RunsEverythingOnceAndAlone) {
  StepCluster cluster(2, WithCapacity(0));
  for (int round = 0; round < 2; ++round) {
    for (const char* name : {"a", "b"}) cluster.SubmitEverywhere(AllreduceRequest(name, {2}));
    cluster.Cycle();
  }
  EXPECT_EQ(cluster.log().size(), 4u);
  EXPECT_EQ(All<ExecuteOnceRecord>(cluster.log()).size(), 4u);
  EXPECT_EQ(cluster.Executed(1), "a b a b");
}

TEST(Coordinator, FullTable_ForgetsWhatWasExecutedLongestAgo) {
  StepCluster cluster(2, WithCapacity(3));
  const auto run = [&](const char* name) {
    cluster.SubmitEverywhere(AllreduceRequest(name, {2}));
    cluster.Cycle();
  };
  for (const char* name : {"a", "b", "c", "a", "c"}) run(name);
  EXPECT_EQ(All<ForgetRecord>(cluster.log()).size(), 0u);
  run("d");  // no id yet; b is the oldest
  auto forgets = All<ForgetRecord>(cluster.log());
  ASSERT_EQ(forgets.size(), 1u);
  EXPECT_EQ(forgets[0].ids, std::vector<TensorId>{1});
  EXPECT_EQ(All<ExecuteOnceRecord>(cluster.log()).size(), 1u);
  run("d");  // takes b's number
  const auto defines = All<DefineRecord>(cluster.log());
  ASSERT_EQ(defines.size(), 4u);
  EXPECT_EQ(defines[3].id, 1u);
  EXPECT_EQ(defines[3].definition.common.name, "d");
  run("b");  // now a is the oldest
  forgets = All<ForgetRecord>(cluster.log());
  ASSERT_EQ(forgets.size(), 2u);
  EXPECT_EQ(forgets[1].ids, std::vector<TensorId>{0});
  EXPECT_EQ(cluster.Executed(0), "a b c a c d d b");
}

TEST(Coordinator, FullTable_MakesRoomForSeveralAtOnceAndSparesWhatIsPending) {
  StepCluster cluster(2, WithCapacity(3));
  for (const char* name : {"a", "b", "c"}) cluster.SubmitEverywhere(AllreduceRequest(name, {2}));
  cluster.Cycle();
  cluster.Submit(0, AllreduceRequest("a", {2}));
  for (const char* name : {"x", "y", "z"}) cluster.SubmitEverywhere(AllreduceRequest(name, {2}));
  cluster.Cycle();
  const auto forgets = All<ForgetRecord>(cluster.log());
  ASSERT_EQ(forgets.size(), 1u);
  EXPECT_EQ(forgets[0].ids, (std::vector<TensorId>{1, 2}));
  cluster.Submit(1, AllreduceRequest("a", {2}));
  cluster.Cycle();
  EXPECT_EQ(cluster.Executed(1), "a+b+c x y z a");
}

TEST(Coordinator, ForgottenWhileItsAnnouncementTravels_IsAskedForAgain) {
  StepCluster cluster(2, WithCapacity(1));
  cluster.SubmitEverywhere(AllreduceRequest("a", {2}));
  cluster.Cycle();
  cluster.SubmitEverywhere(AllreduceRequest("b", {2}));
  for (int rank : {0, 1}) ASSERT_TRUE(cluster.Announce(rank));
  const Token a = cluster.Submit(1, AllreduceRequest("a", {2}));
  ASSERT_TRUE(cluster.Announce(1));  // behind b
  ASSERT_TRUE(cluster.Collect(0));
  ASSERT_TRUE(cluster.Collect(1));
  ASSERT_TRUE(cluster.Advance());  // b, and forgets a
  ASSERT_EQ(All<ForgetRecord>(cluster.log()).size(), 1u);
  ASSERT_TRUE(cluster.Collect(1));  // a's id, which has no meaning any more
  EXPECT_TRUE(cluster.failure().ok()) << cluster.failure();
  EXPECT_TRUE(cluster.coordinator().Pending().empty());
  ASSERT_TRUE(cluster.Deliver(1));
  ASSERT_TRUE(cluster.Announce(1));  // again, in full
  ASSERT_TRUE(cluster.Collect(1));
  EXPECT_EQ(cluster.coordinator().Pending().size(), 1u);
  cluster.Submit(0, AllreduceRequest("a", {2}));
  cluster.Settle();
  EXPECT_EQ(cluster.Executed(0), "a b a");
  EXPECT_EQ(cluster.Executed(1), "a b a");
  EXPECT_EQ(cluster.answers(1)[a], 1);
  EXPECT_TRUE(cluster.failure().ok()) << cluster.failure();
}

TEST(Coordinator, ForgottenNumber_RestsUntilEveryRankKnows) {
  StepCluster cluster(2, WithCapacity(1));
  cluster.SubmitEverywhere(AllreduceRequest("a", {2}));
  cluster.Cycle();
  cluster.SubmitEverywhere(AllreduceRequest("b", {2}));
  cluster.Submit(1, AllreduceRequest("c", {2}));
  for (int rank : {0, 1}) ASSERT_TRUE(cluster.Announce(rank));
  for (int rank : {0, 1}) ASSERT_TRUE(cluster.Collect(rank));
  ASSERT_TRUE(cluster.Advance());
  ASSERT_TRUE(cluster.Deliver(0));
  cluster.Submit(0, AllreduceRequest("c", {2}));
  ASSERT_TRUE(cluster.Announce(0));
  ASSERT_TRUE(cluster.Collect(0));
  ASSERT_TRUE(cluster.Advance());  // c is complete, but rank 1 has not said that it knows
  EXPECT_EQ(All<DefineRecord>(cluster.log()).size(), 1u);
  EXPECT_EQ(All<ExecuteOnceRecord>(cluster.log()).size(), 2u);
  cluster.Settle();
  cluster.SubmitEverywhere(AllreduceRequest("c", {2}));
  cluster.Settle();
  ASSERT_EQ(All<DefineRecord>(cluster.log()).size(), 2u);
  EXPECT_EQ(All<DefineRecord>(cluster.log())[1].id, 0u);
  EXPECT_EQ(cluster.Executed(0), "a b c c");
  EXPECT_EQ(cluster.Executed(1), "a b c c");
}

}  // namespace
}  // namespace horovod_tf
