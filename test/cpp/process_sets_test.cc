#include "horovod_tf/common/runtime/process_sets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "horovod_tf/common/runtime/job_exchange.h"
#include "test/cpp/support/set_cluster.h"

namespace horovod_tf {
namespace {

using Ranks = std::vector<int>;

testing::AssertionResult AllOk(const std::vector<Status>& statuses) {
  for (const Status& status : statuses) {
    if (!status.ok()) return testing::AssertionFailure() << status;
  }
  return testing::AssertionSuccess();
}

// All ranks have the same error, which has `part`.
testing::AssertionResult AllFail(const std::vector<Status>& statuses, const std::string& part) {
  for (const Status& status : statuses) {
    if (status.message().find(part) == std::string::npos ||
        status.message() != statuses[0].message()) {
      return testing::AssertionFailure()
             << status << " is not '" << part << "' as on rank 0, " << statuses[0];
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult AllCorrect(const std::vector<TestTensorPtr>& tensors) {
  for (const TestTensorPtr& tensor : tensors) {
    if (!tensor->Wait()) return testing::AssertionFailure() << "it hangs";
    const testing::AssertionResult correct = tensor->Correct();
    if (!correct) return correct;
  }
  return testing::AssertionSuccess();
}

std::vector<TestSpec> EveryKind(const std::string& name, int root) {
  TestSpec gather{name + "/gather", CollectiveKind::kAllgather};
  TestSpec cast{name + "/cast", CollectiveKind::kBroadcast};
  cast.root = root;
  return {TestSpec{name + "/sum"}, gather, cast};
}

std::ptrdiff_t Threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

TEST(ProcessSets, EveryKindOfCollective_IsOfTheMembers) {
  SetCluster cluster(4);
  ASSERT_TRUE(cluster.job().Started());
  int next = 1;
  for (const Ranks& ranks : {Ranks{1, 3}, Ranks{0, 1, 2}, Ranks{2}, Ranks{3, 0}}) {
    int id = 0;
    ASSERT_TRUE(AllOk(cluster.Add(ranks, &id)));
    EXPECT_EQ(id, next++);
    for (int round = 0; round < 3; ++round) {
      for (const TestSpec& spec : EveryKind("t", static_cast<int>(ranks.size()) - 1)) {
        EXPECT_TRUE(AllCorrect(cluster.SubmitOnAll(id, ranks, spec)));
      }
    }
    EXPECT_TRUE(cluster.job().Works(TestSpec{"t/sum"}));
  }
}

TEST(ProcessSets, List_SaysWhoIsInWhat) {
  SetCluster cluster(3);
  ASSERT_TRUE(cluster.job().Started());
  int id = 0;
  ASSERT_TRUE(AllOk(cluster.Add({2, 1}, &id)));
  const std::vector<ProcessSetView> views = cluster.sets(1).List();
  ASSERT_EQ(views.size(), 2U);
  EXPECT_EQ(views[0].id, kWholeJob);
  EXPECT_EQ(views[0].ranks, (Ranks{0, 1, 2}));
  EXPECT_EQ(views[0].rank, 1);
  EXPECT_EQ(views[1].id, id);
  EXPECT_EQ(views[1].ranks, (Ranks{2, 1}));
  EXPECT_EQ(views[1].rank, 1);
  EXPECT_EQ(cluster.sets(0).List()[1].rank, -1);
}

// Each of the sets, and the job, has a tensor of the same name that waits for its last member; they
// come to their ends in the opposite order.
TEST(ProcessSets, OverlappingSets_DoNotWaitForEachOther) {
  SetCluster cluster(3);
  ASSERT_TRUE(cluster.job().Started());
  const std::vector<Ranks> all = {{0, 1}, {1, 2}, {0, 2}};
  std::vector<int> ids(all.size());
  std::vector<TestTensorPtr> first;
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_TRUE(AllOk(cluster.Add(all[i], &ids[i])));
    first.push_back(cluster.Submit(ids[i], all[i], 0, TestSpec{"t"}));
  }
  for (std::size_t i = all.size(); i-- > 0;) {
    const TestTensorPtr second = cluster.Submit(ids[i], all[i], 1, TestSpec{"t"});
    EXPECT_TRUE(AllCorrect({first[i], second}));
    for (std::size_t waiting = 0; waiting < i; ++waiting) EXPECT_EQ(first[waiting]->calls(), 0);
    EXPECT_TRUE(cluster.job().Works(TestSpec{"t"}));
  }
}

TEST(ProcessSets, RanksThatDisagree_AllHearBothWishes) {
  SetCluster cluster(3);
  ASSERT_TRUE(cluster.job().Started());
  EXPECT_TRUE(AllFail(cluster.OnAll([&](int rank) {
    int id = 0;
    return cluster.sets(rank).Add(rank == 2 ? Ranks{0, 2} : Ranks{0, 1}, &id);
  }),
                      "rank 0 adds the ranks [0, 1], and rank 2 adds the ranks [0, 2]"));
  EXPECT_TRUE(AllFail(cluster.OnAll([&](int rank) {
    int id = 0;
    return rank == 0 ? cluster.sets(rank).Remove(1) : cluster.sets(rank).Add({0}, &id);
  }),
                      "rank 0 removes process set 1, and rank 1 adds the ranks [0]"));
  int id = 0;
  ASSERT_TRUE(AllOk(cluster.Add({0, 1}, &id)));
  EXPECT_EQ(id, 1);
}

TEST(ProcessSets, ListsThatAreNoSet_AreRefusedOnAllRanks) {
  SetCluster cluster(2);
  ASSERT_TRUE(cluster.job().Started());
  int id = 0;
  EXPECT_TRUE(AllFail(cluster.Add({}, &id), "needs one rank at least"));
  EXPECT_TRUE(AllFail(cluster.Add({0, 0}, &id), "twice"));
  EXPECT_TRUE(AllFail(cluster.Add({0, 2}, &id), "there is no rank 2"));
  EXPECT_TRUE(AllFail(cluster.Add({-1}, &id), "there is no rank -1"));
  EXPECT_TRUE(AllFail(cluster.Add({0, 1}, &id), "Attempted to add a duplicate process set"));
  EXPECT_TRUE(AllOk(cluster.Add({1}, &id)));
  EXPECT_TRUE(AllFail(cluster.Add({1}, &id), "is process set 1 already"));
  EXPECT_TRUE(AllFail(cluster.Remove(7), "has not been registered"));
  EXPECT_TRUE(AllFail(cluster.Remove(kWholeJob), "cannot be removed"));
}

TEST(ProcessSets, TensorsForNoSetOfThisRank_AreRefused) {
  SetCluster cluster(3);
  ASSERT_TRUE(cluster.job().Started());
  const Ranks ranks = {0, 2};
  int id = 0;
  ASSERT_TRUE(AllOk(cluster.Add(ranks, &id)));
  const auto refused = [&](int rank, int set, int root, const std::string& part) {
    const auto tensor =
        std::make_shared<TestTensor>(TestSpec{"t", CollectiveKind::kBroadcast}, 0, 2);
    TensorEntry entry = tensor->Entry();
    entry.request.root_rank = root;
    cluster.sets(rank).Enqueue(set, Group(std::move(entry)));
    EXPECT_EQ(tensor->status().code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(tensor->FailedWith(part));
  };
  refused(1, id, 0, "rank 1 is not a member of the provided process set 1 [0, 2]");
  refused(0, 9, 0, "does not exist or has not been registered");
  refused(0, id, 1, "invalid root rank 1 for provided process set");
  refused(0, id, 7, "invalid root rank 7 for provided process set");
}

TEST(ProcessSets, ErrorOfOneTensor_SaysWhereItsRanksAreCounted) {
  SetCluster cluster(3);
  ASSERT_TRUE(cluster.job().Started());
  const Ranks ranks = {1, 2};
  int id = 0;
  ASSERT_TRUE(AllOk(cluster.Add(ranks, &id)));
  TestSpec longer{"t"};
  longer.elements = 6;
  const TestTensorPtr one = cluster.Submit(id, ranks, 0, TestSpec{"t"});
  const TestTensorPtr other = cluster.Submit(id, ranks, 1, longer);
  for (const TestTensorPtr& tensor : {one, other}) {
    ASSERT_TRUE(tensor->Wait());
    EXPECT_TRUE(tensor->FailedWith("process set 1 [1, 2], whose ranks are counted from 0 here: "));
    EXPECT_EQ(tensor->status().code(), StatusCode::kFailedPrecondition);
  }
  EXPECT_TRUE(AllCorrect(cluster.SubmitOnAll(id, ranks, TestSpec{"t"})));
}

TEST(ProcessSets, Removal_EndsWhatIsInFlightAndNothingElse) {
  SetCluster cluster(3);
  ASSERT_TRUE(cluster.job().Started());
  const Ranks ranks = {0, 1};
  int id = 0;
  int other = 0;
  ASSERT_TRUE(AllOk(cluster.Add(ranks, &id)));
  ASSERT_TRUE(AllOk(cluster.Add({1, 2}, &other)));
  const TestTensorPtr waits = cluster.Submit(id, ranks, 0, TestSpec{"t"});
  ASSERT_TRUE(AllOk(cluster.Remove(id)));
  ASSERT_TRUE(waits->Wait());
  EXPECT_TRUE(waits->FailedWith("Process set has been removed"));
  EXPECT_EQ(waits->status().code(), StatusCode::kAborted);
  const TestTensorPtr late = cluster.Submit(id, ranks, 0, TestSpec{"t"});
  EXPECT_TRUE(late->FailedWith("has not been registered"));
  EXPECT_TRUE(AllCorrect(cluster.SubmitOnAll(other, {1, 2}, TestSpec{"t"})));
  EXPECT_TRUE(cluster.job().Works(TestSpec{"t"}));
  int again = 0;
  ASSERT_TRUE(AllOk(cluster.Add(ranks, &again)));
  EXPECT_GT(again, other);
}

TEST(ProcessSets, AddingAndRemoving_LeavesNoThreads) {
  SetCluster cluster(2);
  ASSERT_TRUE(cluster.job().Started());
  const std::ptrdiff_t before = Threads();
  for (int round = 0; round < 30; ++round) {
    int id = 0;
    ASSERT_TRUE(AllOk(cluster.Add({1, 0}, &id)));
    ASSERT_TRUE(AllCorrect(cluster.SubmitOnAll(id, {1, 0}, TestSpec{"t"})));
    ASSERT_TRUE(AllOk(cluster.Remove(id)));
  }
  EXPECT_EQ(Threads(), before);
}

TEST(ProcessSets, MemberThatCannotMakeIt_IsToldToAll) {
  SetCluster cluster(3, [](const RankGroup& group, RankExchange&, World*) {
    return group.ranks[static_cast<std::size_t>(group.rank)] == 2 && group.id < 3
               ? Status::ResourceExhausted("no memory")
               : Status::Ok();
  });
  ASSERT_TRUE(cluster.job().Started());
  int id = 0;
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_TRUE(AllFail(cluster.Add({1, 2}, &id), "could not be made: rank 2: no memory"));
  }
  ASSERT_TRUE(AllOk(cluster.Add({1, 2}, &id)));
  EXPECT_TRUE(AllCorrect(cluster.SubmitOnAll(id, {1, 2}, TestSpec{"t"})));
}

// A rank that has no more data brings nothing to what the others say.
TEST(ProcessSets, ChangesWhileARankHasJoined_SayWhy) {
  SetCluster cluster(3);
  ASSERT_TRUE(cluster.job().Started());
  std::int32_t last_rank = -1;
  std::atomic<bool> joined{false};
  const auto join = [&](int rank, std::int32_t* output) {
    TensorEntry entry;
    entry.joins = true;
    entry.request.name = std::string(kJoinName);
    entry.output = {DataType::kInt32, {}, output};
    entry.done = Completion([&joined, rank](const Status&) { joined = joined || rank == 0; });
    cluster.job().rank(rank).Enqueue(Group(std::move(entry)));
  };
  join(0, &last_rank);
  std::vector<Status> statuses(3, Status::FailedPrecondition("only 2 of 3 ranks"));
  OnEveryRank(3, [&](int rank) {
    int id = 0;
    if (rank > 0) statuses[static_cast<std::size_t>(rank)] = cluster.sets(rank).Add({0, 1}, &id);
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    EXPECT_NE(status.message().find("only 2 of 3 ranks"), std::string::npos) << status;
  }
  std::int32_t others[2] = {-1, -1};
  for (const int rank : {1, 2}) join(rank, &others[rank - 1]);
  const TimePoint deadline = TestDeadline();
  while (!joined) ASSERT_LT(Clock::Real().Now(), deadline);
  int id = 0;
  EXPECT_TRUE(AllOk(cluster.Add({0, 1}, &id)));
}

TEST(ProcessSets, MemberThatGivesUpInTheMiddle_EndsTheStepsOfTheOthers) {
  SetCluster cluster(3, [](const RankGroup& group, RankExchange& exchange, World*) {
    if (group.rank == 1) return Status::Unavailable("the wire is cut");
    std::vector<std::string> all;
    return exchange.Gather("step", &all);
  });
  ASSERT_TRUE(cluster.job().Started());
  int id = 0;
  EXPECT_TRUE(AllFail(cluster.Add({0, 1}, &id), "rank 1: the wire is cut"));
  EXPECT_TRUE(cluster.job().Works(TestSpec{"t"}));
}

TEST(ProcessSets, FailureOfTheJob_IsTheSets) {
  SetCluster cluster(3);
  ASSERT_TRUE(cluster.job().Started());
  int id = 0;
  ASSERT_TRUE(AllOk(cluster.Add({1, 2}, &id)));
  const TestTensorPtr waits = cluster.Submit(id, {1, 2}, 0, TestSpec{"t"});
  cluster.job().rank(0).Ender()(Status::Internal("the roof fell in"), /*failed=*/true);
  ASSERT_TRUE(waits->Wait());
  EXPECT_TRUE(waits->FailedWith("the roof fell in"));
  const TestTensorPtr late = cluster.Submit(id, {1, 2}, 0, TestSpec{"t"});
  EXPECT_TRUE(late->FailedWith("the roof fell in"));
  int another = 0;
  EXPECT_FALSE(cluster.sets(1).Add({1}, &another).ok());
}

// Broken control messages are a failure of the set's runtime.
TEST(ProcessSets, FailureOfASet_IsTheJobs) {
  SetCluster cluster(3, [](const RankGroup&, RankExchange&, World*) { return Status::Ok(); });
  ASSERT_TRUE(cluster.job().Started());
  int id = 0;
  ASSERT_TRUE(AllOk(cluster.Add({0, 1}, &id)));
  const TestTensorPtr in_set = cluster.Submit(id, {0, 1}, 0, TestSpec{"t"});
  const TestTensorPtr in_job = Submit(cluster.job().rank(2), TestSpec{"t"}, 2, 3);
  cluster.end(1).Ended(id, Status::Internal("process set 1 broke"), /*failed=*/true);
  for (const TestTensorPtr& tensor : {in_set, in_job}) {
    ASSERT_TRUE(tensor->Wait());
    EXPECT_TRUE(tensor->FailedWith("process set 1 broke"));
  }
}

TEST(ProcessSets, ShutdownOfTheJob_EndsTheSetsToo) {
  SetCluster cluster(3);
  ASSERT_TRUE(cluster.job().Started());
  int id = 0;
  ASSERT_TRUE(AllOk(cluster.Add({1, 2}, &id)));
  const TestTensorPtr waits = cluster.Submit(id, {1, 2}, 0, TestSpec{"t"});
  EXPECT_TRUE(cluster.job().rank(0).Stop("it is late").ok());
  ASSERT_TRUE(waits->Wait());
  EXPECT_TRUE(waits->FailedWith("it is late"));
  EXPECT_TRUE(AllOk(cluster.OnAll([&](int rank) { return cluster.sets(rank).Stop("too"); })));
  int another = 0;
  EXPECT_FALSE(cluster.sets(1).Add({1}, &another).ok());
}

TEST(ProcessSets, WithdrawnAndDescribedLikeTheJob) {
  SetCluster cluster(2);
  ASSERT_TRUE(cluster.job().Started());
  int id = 0;
  ASSERT_TRUE(AllOk(cluster.Add({1}, &id)));
  int both = 0;
  ASSERT_TRUE(AllOk(cluster.Add({1, 0}, &both)));
  const auto tensor = std::make_shared<TestTensor>(TestSpec{"waiting"}, 0, 2);
  TensorEntry entry = tensor->Entry();
  entry.ticket = 7;
  cluster.sets(1).Enqueue(both, Group(std::move(entry)));
  const std::string text = cluster.sets(1).Describe();
  EXPECT_NE(text.find("process set 1 [1]: rank 0 of 1"), std::string::npos) << text;
  EXPECT_NE(text.find("process set 2 [1, 0]: rank 0 of 2"), std::string::npos) << text;
  EXPECT_NE(text.find("'waiting'"), std::string::npos) << text;
  cluster.sets(1).Withdraw(7, "nobody wants it");
  ASSERT_TRUE(tensor->Wait());
  EXPECT_TRUE(tensor->FailedWith("nobody wants it"));
}

TEST(ProcessSets, ChangesFromACallback_AreRefused) {
  SetCluster cluster(1);
  ASSERT_TRUE(cluster.job().Started());
  Status added;
  Status removed;
  const auto tensor = std::make_shared<TestTensor>(TestSpec{"t"}, 0, 1);
  cluster.job().rank(0).Enqueue(Group(tensor->Entry([&](const Status&) {
    int id = 0;
    added = cluster.sets(0).Add({0}, &id);
    removed = cluster.sets(0).Remove(1);
  })));
  ASSERT_TRUE(tensor->Wait());
  EXPECT_EQ(added.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(removed.code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace horovod_tf
