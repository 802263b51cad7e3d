// Ranks that have no more data: what the others get meanwhile, and when it ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "test/cpp/support/step_cluster.h"

namespace horovod_tf {
namespace {

Request Float(const std::string& name) { return AllreduceRequest(name, {3}); }

// "a-{1} join(2)": what a rank was told, with those that were absent.
std::string Story(const StepCluster& cluster, int rank) {
  std::string text;
  for (const StepCluster::Event& event : cluster.events(rank)) {
    if (!text.empty()) text += ' ';
    if (event.type == Response::Type::kJoined) {
      text += "join(" + std::to_string(event.last_rank) + ")";
      continue;
    }
    if (event.type != Response::Type::kExecute) {
      text += "error";
      continue;
    }
    for (const TensorDefinition& definition : event.definitions) {
      text += definition.common.name;
      for (const std::uint32_t absent : definition.absent) text += "-" + std::to_string(absent);
    }
  }
  return text;
}

TEST(Join, OthersGoOnWithoutIt_UntilAllHaveJoined) {
  StepCluster cluster(3);
  cluster.SubmitEverywhere(Float("a"));
  cluster.Settle();
  cluster.Join(1);
  for (const int rank : {0, 2}) cluster.Submit(rank, Float("a"));  // by id
  cluster.Settle();
  for (const int rank : {0, 2}) cluster.Submit(rank, Float("b"));  // never seen before
  cluster.Settle();
  cluster.Join(2);
  cluster.Submit(0, Float("a"));
  cluster.Settle();
  cluster.Join(0);
  cluster.Settle();
  cluster.SubmitEverywhere(Float("a"));
  cluster.Settle();
  ASSERT_TRUE(cluster.failure().ok()) << cluster.failure();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(Story(cluster, rank), "a a-1 b-1 a-1-2 join(0) a") << rank;
    for (const int answers : cluster.answers(rank)) EXPECT_EQ(answers, 1);
  }
  EXPECT_TRUE(cluster.coordinator().Pending().empty());
  EXPECT_EQ(cluster.coordinator().NextDeadline(), kNever);
}

TEST(Join, OnlyRank_IsOverAtOnce) {
  StepCluster cluster(1);
  cluster.Join(0);
  cluster.Cycle();
  EXPECT_EQ(Story(cluster, 0), "join(0)");
}

TEST(Join, WhatItHasAskedForBefore_CountsAsItsOwn) {
  StepCluster cluster(2);
  cluster.Submit(1, Float("a"));
  cluster.Join(1);  // the same message
  cluster.Settle();
  cluster.Submit(0, Float("a"));
  cluster.Settle();
  EXPECT_EQ(Story(cluster, 0), "a");
  EXPECT_EQ(cluster.events(1).front().names, std::vector<std::string>{"a"});
}

TEST(Join, EachWaitsForSomethingElse_BothRunWhenBothHaveJoined) {
  StepCluster cluster(2);
  for (const int rank : {0, 1}) {
    cluster.Submit(rank, Float("of_rank_" + std::to_string(rank)));
    cluster.Join(rank);
    cluster.Settle();
  }
  EXPECT_EQ(Story(cluster, 0), "of_rank_1-0 of_rank_0-1 join(1)");
  EXPECT_EQ(Story(cluster, 1), Story(cluster, 0));
}

TEST(Join, WhatItAsksForMeanwhile_WaitsUntilItIsOver) {
  StepCluster cluster(2);
  cluster.Join(1);
  cluster.Settle();
  cluster.Submit(1, Float("a"));
  cluster.Submit(1, Float("dropped"));
  cluster.Withdraw(1, "dropped", "a test");
  cluster.Submit(0, Float("a"));
  cluster.Settle();
  EXPECT_EQ(Story(cluster, 0), "a-1");
  EXPECT_TRUE(cluster.InFlight(1, "a"));
  cluster.Join(0);
  cluster.Submit(0, Float("a"));
  cluster.Settle();
  EXPECT_EQ(Story(cluster, 0), "a-1 join(0) a");
  EXPECT_EQ(Story(cluster, 1), "error a-1 join(0) a");
  ASSERT_TRUE(cluster.failure().ok()) << cluster.failure();
}

TEST(Join, GatherHasNoRowsOfIt) {
  StepCluster cluster(3);
  cluster.Join(0);
  cluster.Settle();
  for (const int rank : {1, 2}) cluster.Submit(rank, AllgatherRequest("a", {rank, 4}));
  cluster.Settle();
  ASSERT_EQ(cluster.events(0).size(), 1u);
  const TensorDefinition& definition = cluster.events(0).front().definitions.front();
  EXPECT_EQ(definition.first_dims, (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(definition.absent, std::vector<std::uint32_t>{0});
}

TEST(Join, BroadcastWhoseRootHasJoined_FailsForTheOthersWhoGoOn) {
  StepCluster cluster(3);
  cluster.Join(0);
  cluster.Settle();
  cluster.Submit(0, Float("a"));  // for later
  for (const int rank : {1, 2}) cluster.Submit(rank, BroadcastRequest("a", {2}, 0));
  cluster.Settle();
  EXPECT_TRUE(cluster.events(0).empty());
  for (const int rank : {1, 2}) {
    ASSERT_EQ(cluster.errors(rank).size(), 1u);
    const Status status = cluster.errors(rank).front().status;
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find("rank 0, the root of this BROADCAST"), std::string::npos);
  }
  for (const int rank : {1, 2}) cluster.Submit(rank, BroadcastRequest("a", {2}, 1));
  cluster.Settle();
  EXPECT_EQ(Story(cluster, 1), "error a-0");
  EXPECT_EQ(Story(cluster, 0), "a-0");
}

TEST(Join, MismatchOfTheOthers_NamesThem) {
  StepCluster cluster(3);
  cluster.Join(0);
  cluster.Settle();
  cluster.Submit(1, AllreduceRequest("a", {3}));
  cluster.Submit(2, AllreduceRequest("a", {4}));
  cluster.Settle();
  ASSERT_EQ(cluster.errors(1).size(), 1u);
  EXPECT_EQ(cluster.errors(1).front().status.message(),
            "Mismatched ALLREDUCE tensor shapes: rank 1 has shape [3] for tensor 'a', but rank 2 "
            "has shape [4].");
  EXPECT_TRUE(cluster.events(0).empty());
}

TEST(Join, Withdrawn_TheRankIsWaitedForAgain) {
  StepCluster cluster(2);
  cluster.Join(1);
  cluster.Settle();
  cluster.Withdraw(1, std::string(kJoinName), "a test");
  cluster.Settle();
  ASSERT_EQ(cluster.errors(1).size(), 1u);
  EXPECT_EQ(cluster.errors(1).front().status.code(), StatusCode::kCancelled);
  EXPECT_TRUE(cluster.errors(0).empty());
  cluster.Submit(0, Float("a"));
  cluster.Settle();
  EXPECT_EQ(Story(cluster, 0), "");
  cluster.Submit(1, Float("a"));
  cluster.Settle();
  EXPECT_EQ(Story(cluster, 0), "a");
  for (const int rank : {0, 1}) cluster.Join(rank);
  cluster.Settle();
  EXPECT_EQ(Story(cluster, 0), "a join(1)");
}

TEST(Join, WithdrawnBeforeAnybodyWasTold_IsOverAtOnce) {
  StepCluster cluster(2);
  cluster.Join(1);
  cluster.Submit(1, Float("a"));
  cluster.Withdraw(1, std::string(kJoinName), "a test");
  cluster.Submit(0, Float("a"));
  cluster.Settle();
  EXPECT_EQ(Story(cluster, 1), "error a");
}

TEST(Join, StallNamesOnlyThoseThatHaveNotJoined) {
  StepCluster cluster(3);
  cluster.Join(1);
  cluster.Submit(0, Float("a"));
  cluster.Settle();
  cluster.now += std::chrono::seconds(61);
  cluster.Settle();
  const std::vector<std::string> warnings = cluster.coordinator().TakeWarnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings.front().find("missing ranks: 2]"), std::string::npos) << warnings.front();
}

TEST(Join, WaitingInJoinIsNoStall_ButCanBeAskedFor) {
  StepCluster cluster(3);
  cluster.Join(1);
  cluster.Settle();
  EXPECT_EQ(cluster.coordinator().NextDeadline(), kNever);
  cluster.now += std::chrono::hours(9);
  cluster.Settle();
  EXPECT_TRUE(cluster.coordinator().TakeWarnings().empty());
  const std::vector<PendingTensor> pending = cluster.coordinator().Pending();
  ASSERT_EQ(pending.size(), 1u);
  EXPECT_EQ(pending.front().name, kJoinName);
  EXPECT_EQ(pending.front().ready_ranks, std::vector<int>{1});
  EXPECT_EQ(pending.front().missing_ranks, (std::vector<int>{0, 2}));
}

TEST(Join, ShutdownAnswersIt_AndWhatItHoldsBack) {
  StepCluster cluster(2);
  cluster.Join(1);
  cluster.Submit(1, Float("a"));
  cluster.Settle();
  cluster.RequestShutdown(0, "a test");
  cluster.Settle();
  EXPECT_TRUE(cluster.InFlight(1).empty());
  for (const int answers : cluster.answers(1)) EXPECT_EQ(answers, 1);
}

TEST(Join, WithdrawalOfARankThatHasJoinedSince_IsNoReasonToFail) {
  CoordinatorOptions options = StepCluster::DefaultOptions();
  options.withdrawal_grace = std::chrono::seconds(1);
  StepCluster cluster(3, options);
  cluster.Submit(1, Float("a"));
  cluster.Settle();
  cluster.Withdraw(1, "a", "out of data");
  cluster.Settle();
  cluster.Join(1);
  cluster.Submit(0, Float("a"));
  cluster.Settle();
  cluster.now += std::chrono::seconds(5);
  cluster.Settle();
  cluster.Submit(2, Float("a"));
  cluster.Settle();
  EXPECT_EQ(Story(cluster, 0), "a-1");
}

TEST(Join, AnnouncementOfARankThatHasJoined_BreaksTheProtocol) {
  CoordinatorOptions options = StepCluster::DefaultOptions();
  options.size = 2;
  Coordinator coordinator(options);
  Announce join;
  join.joins = true;
  ASSERT_TRUE(coordinator.OnAnnounce(1, join, TimePoint{}).ok());
  EXPECT_EQ(coordinator.OnAnnounce(1, join, TimePoint{}).code(), StatusCode::kInternal);
  Announce tensor;
  tensor.requests.push_back(Float("a"));
  EXPECT_EQ(coordinator.OnAnnounce(1, tensor, TimePoint{}).code(), StatusCode::kInternal);
}

TEST(Join, ExecutionWithoutARankThatHasNotJoined_IsRefused) {
  Negotiator negotiator(1, 2);
  Log log;
  ExecuteOnceRecord once;
  once.definition.common = Float("a");
  once.definition.absent = {1};
  log.records.emplace_back(once);
  std::vector<Response> responses;
  EXPECT_EQ(negotiator.OnLog(log, &responses).code(), StatusCode::kInternal);
  Negotiator other(1, 2);
  log.records = {JoinRecord{0}};
  EXPECT_EQ(other.OnLog(log, &responses).code(), StatusCode::kInternal);
  EXPECT_TRUE(responses.empty());
}

// ---- random moments ----------------------------------------------------------------------------

constexpr int kTensors = 3;
constexpr int kEpochs = 3;

// Every rank submits each tensor as often as it has data, in an order of its own, and joins, and
// that several times. The model: the k-th execution of a tensor between two joins is one over
// exactly those ranks that have more than k to submit.
class RandomJoins {
 public:
  RandomJoins(int ranks, std::int64_t capacity, std::uint32_t seed)
      : engine_(seed), cluster_(ranks, Options(capacity)), ranks_(static_cast<std::size_t>(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) Plan();
  }

  void Run() {
    for (int steps = 0; !Finished(); ++steps) {
      ASSERT_LT(steps, 200000) << "does not come to an end";
      ASSERT_TRUE(cluster_.failure().ok()) << cluster_.failure();
      Step();
    }
    cluster_.Settle();
    ASSERT_TRUE(cluster_.failure().ok()) << cluster_.failure();
    for (int rank = 0; rank < cluster_.size(); ++rank) Check(rank);
    EXPECT_TRUE(cluster_.coordinator().Pending().empty());
    EXPECT_EQ(cluster_.coordinator().NextDeadline(), kNever);
  }

 private:
  static CoordinatorOptions Options(std::int64_t capacity) {
    CoordinatorOptions options = StepCluster::DefaultOptions();
    options.capacity = capacity;
    options.stall.enabled = false;
    return options;
  }
  static std::string NameOf(int tensor) { return std::string(1, static_cast<char>('a' + tensor)); }
  static Request RequestOf(int tensor, int rank) {
    if (tensor == 1) return AllgatherRequest(NameOf(tensor), {rank + 1, 2});
    return AllreduceRequest(NameOf(tensor), {tensor + 1});
  }
  int Roll(int n) { return static_cast<int>(engine_() % static_cast<std::uint32_t>(n)); }

  // How often this rank submits each tensor before each join. A rank with more of one tensor has
  // not less of another, or ranks could wait for each other's tensors, as without joins.
  void Plan() {
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      const int steps = Roll(5);
      for (int tensor = 0; tensor < kTensors; ++tensor) {
        counts_[std::make_pair(epoch, tensor)].push_back(std::min(steps, 2 + tensor));
      }
    }
  }

  void Step() {
    const int rank = Roll(cluster_.size());
    switch (Roll(7)) {
      case 0:
      case 1:
        return Submit(rank);
      case 2:
        cluster_.Announce(rank);
        return;
      case 3:
        cluster_.Collect(rank);
        return;
      case 4:
        cluster_.Advance();
        return;
      case 5:
        // It thinks better of it, and then joins all the same.
        if (Roll(10) == 0 && cluster_.InFlight(rank, std::string(kJoinName))) {
          cluster_.Withdraw(rank, std::string(kJoinName), "a test");
        }
        return;
      default:
        cluster_.Deliver(rank);
        return;
    }
  }
  // Something that it has data for, or its join; again, if that was withdrawn. Nothing of the next
  // epoch before the join has been answered, for it might be withdrawn.
  void Submit(int rank) {
    if (cluster_.InFlight(rank, std::string(kJoinName))) return;
    Rank& it = ranks_[static_cast<std::size_t>(rank)];
    if (it.joined && LastJoinFailed(rank)) {
      cluster_.Join(rank);
      return;
    }
    if (std::exchange(it.joined, false)) {
      ++it.epoch;
      it.done.assign(kTensors, 0);
    }
    if (it.epoch == kEpochs) return;
    const auto left = [&](int tensor) {
      return counts_[std::make_pair(it.epoch, tensor)][static_cast<std::size_t>(rank)] -
             it.done[static_cast<std::size_t>(tensor)];
    };
    const int tensor = Roll(kTensors);
    if (left(0) + left(1) + left(2) == 0) {
      cluster_.Join(rank);
      it.joined = true;
    } else if (left(tensor) > 0 && !cluster_.InFlight(rank, NameOf(tensor))) {
      cluster_.Submit(rank, RequestOf(tensor, rank));
      ++it.done[static_cast<std::size_t>(tensor)];
    }
  }
  bool LastJoinFailed(int rank) const {
    for (auto it = cluster_.events(rank).rbegin(); it != cluster_.events(rank).rend(); ++it) {
      if (it->type == Response::Type::kJoined) return false;
      if (it->type == Response::Type::kError) return true;
    }
    return false;
  }
  bool Finished() const {
    for (int rank = 0; rank < cluster_.size(); ++rank) {
      const auto& events = cluster_.events(rank);
      const auto joins = std::count_if(events.begin(), events.end(), [](const auto& event) {
        return event.type == Response::Type::kJoined;
      });
      if (joins < kEpochs) return false;
    }
    return true;
  }

  void Check(int rank) {
    for (const int answers : cluster_.answers(rank)) ASSERT_EQ(answers, 1) << "rank " << rank;
    int epoch = 0;
    std::map<int, int> executed;
    for (const StepCluster::Event& event : cluster_.events(rank)) {
      if (event.type == Response::Type::kJoined) {
        for (int tensor = 0; tensor < kTensors; ++tensor) {
          const std::vector<int>& counts = counts_[std::make_pair(epoch, tensor)];
          ASSERT_EQ(executed[tensor], *std::max_element(counts.begin(), counts.end()));
        }
        executed.clear();
        ++epoch;
      }
      if (event.type != Response::Type::kExecute) continue;
      for (const TensorDefinition& definition : event.definitions) {
        const int tensor = definition.common.name[0] - 'a';
        const int round = executed[tensor]++;
        std::vector<std::uint32_t> absent;
        const std::vector<int>& counts = counts_[std::make_pair(epoch, tensor)];
        for (std::size_t r = 0; r < counts.size(); ++r) {
          if (counts[r] <= round) absent.push_back(static_cast<std::uint32_t>(r));
        }
        ASSERT_EQ(definition.absent, absent) << "epoch " << epoch << " tensor " << tensor;
        const bool here = counts[static_cast<std::size_t>(rank)] > round;
        ASSERT_EQ(event.names.empty(), !here);
        for (std::size_t r = 0; r < definition.first_dims.size(); ++r) {
          ASSERT_EQ(definition.first_dims[r], counts[r] > round ? static_cast<int>(r) + 1 : 0);
        }
      }
    }
    ASSERT_EQ(epoch, kEpochs);
  }

  std::mt19937 engine_;
  StepCluster cluster_;
  struct Rank {
    int epoch = 0;
    bool joined = false;                                    // has asked for it
    std::vector<int> done = std::vector<int>(kTensors, 0);  // in this epoch
  };
  std::vector<Rank> ranks_;
  std::map<std::pair<int, int>, std::vector<int>> counts_;  // by epoch and tensor: of each rank
};

TEST(JoinInterleaving, AtRandomMoments_EveryExecutionIsOverThoseWithData) {
  for (const int ranks : {1, 2, 3, 5}) {
    for (const std::int64_t capacity : {0, 1, 2, 64}) {
      for (std::uint32_t seed = 0; seed < 100; ++seed) {
        SCOPED_TRACE("ranks " + std::to_string(ranks) + " capacity " + std::to_string(capacity) +
                     " seed " + std::to_string(seed));
        RandomJoins(ranks, capacity, 1000 * static_cast<std::uint32_t>(ranks) + seed).Run();
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace horovod_tf
