// A rank takes back what it asked for: what it, and those that wait for it, are told.
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <thread>
#include <utility>

#include "test/cpp/support/local_cluster.h"
#include "test/cpp/support/step_cluster.h"

namespace horovod_tf {
namespace {

const Request kA = AllreduceRequest("a", {3});
const Request kB = AllreduceRequest("b", {5});
constexpr Duration kGrace = std::chrono::seconds(4);
constexpr Duration kMoment = std::chrono::milliseconds(1);

CoordinatorOptions Options(std::int64_t capacity = 64) {
  CoordinatorOptions options = StepCluster::DefaultOptions();
  options.withdrawal_grace = kGrace;
  options.capacity = capacity;
  return options;
}

// The one error of a rank, or OK.
Status ErrorOf(const StepCluster& cluster, int rank) {
  const std::vector<StepCluster::Event> errors = cluster.errors(rank);
  EXPECT_LE(errors.size(), 1u);
  return errors.empty() ? Status::Ok() : errors[0].status;
}

// With and without an id.
class WithdrawalTest : public testing::TestWithParam<std::int64_t> {
 protected:
  void Pass(Duration time) {
    cluster_.now += time;
    cluster_.Settle();
  }
  void ExpectWorks() {
    cluster_.SubmitEverywhere(kA);
    cluster_.SubmitEverywhere(kB);
    cluster_.Settle();
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(cluster_.events(rank).back().type, Response::Type::kExecute);
      EXPECT_TRUE(cluster_.InFlight(rank).empty());
    }
    EXPECT_TRUE(cluster_.coordinator().Pending().empty());
    Pass(10 * kGrace);
    EXPECT_EQ(cluster_.coordinator().NextDeadline(), kNever) << "something is remembered";
    EXPECT_TRUE(cluster_.failure().ok()) << cluster_.failure();
  }

  // Every tensor is known where there is a table.
  void SetUp() override {
    cluster_.SubmitEverywhere(kA);
    cluster_.SubmitEverywhere(kB);
    cluster_.Settle();
  }
  StepCluster cluster_{3, Options(GetParam())};
};
INSTANTIATE_TEST_SUITE_P(TableOf, WithdrawalTest, testing::Values(64, 0),
                         testing::PrintToStringParamName());

TEST_P(WithdrawalTest, OfALoneTensor_EndsAtOnce) {
  cluster_.Submit(1, kA);
  cluster_.Submit(1, kB);
  cluster_.Settle();
  cluster_.Withdraw(1, "a", "no data");
  cluster_.Withdraw(1, "b", "no data");
  cluster_.Settle();
  const Status status = ErrorOf(cluster_, 1);  // one record for both
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_NE(status.message().find("no data"), std::string::npos) << status;
  EXPECT_TRUE(cluster_.InFlight(1).empty());
  EXPECT_TRUE(cluster_.coordinator().Pending().empty());
  ExpectWorks();
}

TEST_P(WithdrawalTest, OfAllRanks_IsNobodysError) {
  for (int rank = 0; rank < 2; ++rank) cluster_.Submit(rank, kA);
  cluster_.Settle();
  for (int rank = 0; rank < 2; ++rank) {
    Pass(kGrace / 2);
    cluster_.Withdraw(rank, "a", "no data");
    cluster_.Settle();
    EXPECT_EQ(ErrorOf(cluster_, rank).code(), StatusCode::kCancelled);
  }
  EXPECT_TRUE(cluster_.events(2).size() == cluster_.events(0).size() - 1);
  ExpectWorks();
}

TEST_P(WithdrawalTest, PeersWaitForTheGraceTimeAndAreToldWhoAndWhy) {
  for (int rank : {0, 2}) cluster_.Submit(rank, kA);
  cluster_.Settle();
  cluster_.Withdraw(2, "a", "no data");
  cluster_.Settle();
  EXPECT_EQ(cluster_.coordinator().NextDeadline(), cluster_.now + kGrace);
  Pass(kGrace - kMoment);
  EXPECT_TRUE(cluster_.InFlight(0, "a"));
  Pass(kMoment);
  const Status status = ErrorOf(cluster_, 0);
  EXPECT_EQ(status.code(), StatusCode::kUnknown) << "monitored sessions retry Aborted for ever";
  for (const char* part : {"'a'", "rank 2", "no data", "4 s"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << part << ": " << status;
  }
  EXPECT_TRUE(cluster_.errors(1).empty()) << "it had not asked";
  ExpectWorks();
}

TEST_P(WithdrawalTest, WhoComesLateIsToldToo) {
  cluster_.Submit(0, kA);
  cluster_.Settle();
  cluster_.Withdraw(0, "a", "no data");
  Pass(kGrace / 2);
  cluster_.Submit(1, kA);
  cluster_.Settle();
  Pass(kGrace - kMoment);
  EXPECT_TRUE(cluster_.InFlight(1, "a"));
  Pass(kMoment);
  EXPECT_EQ(ErrorOf(cluster_, 1).code(), StatusCode::kUnknown);
  ExpectWorks();
}

TEST_P(WithdrawalTest, BeforeItsAnnouncement_PeersAreToldAllTheSame) {
  cluster_.Submit(0, kA);
  cluster_.Settle();
  cluster_.Submit(1, kA);
  cluster_.Withdraw(1, "a", "no data");
  EXPECT_EQ(ErrorOf(cluster_, 1).code(), StatusCode::kCancelled);
  cluster_.Settle();
  Pass(kGrace);
  EXPECT_NE(ErrorOf(cluster_, 0).message().find("rank 1"), std::string::npos);
  ExpectWorks();
}

// It is another step's: rank 0 may be doing something that takes its time.
TEST_P(WithdrawalTest, WhoComesMuchLaterWaitsAsAlways) {
  cluster_.Submit(0, kA);
  cluster_.Settle();
  cluster_.Withdraw(0, "a", "no data");
  cluster_.Settle();
  Pass(kGrace + kMoment);
  cluster_.Submit(1, kA);
  cluster_.Submit(2, kA);
  cluster_.Settle();
  Pass(3 * kGrace);
  EXPECT_TRUE(cluster_.InFlight(1, "a"));
  cluster_.Submit(0, kA);
  cluster_.Settle();
  EXPECT_TRUE(cluster_.errors(1).empty());
  EXPECT_FALSE(cluster_.InFlight(1, "a"));
}

TEST_P(WithdrawalTest, WhoComesBackInTimeTakesPart) {
  for (int rank : {0, 1}) cluster_.Submit(rank, kA);
  cluster_.Settle();
  cluster_.Withdraw(1, "a", "no data");
  Pass(kGrace / 2);
  cluster_.Submit(1, kA);
  cluster_.Settle();
  Pass(kGrace);
  EXPECT_TRUE(cluster_.InFlight(0, "a")) << "rank 2 is missing, and has withdrawn nothing";
  cluster_.Submit(2, kA);
  cluster_.Settle();
  EXPECT_TRUE(cluster_.errors(0).empty());
  ExpectWorks();
}

TEST_P(WithdrawalTest, WhoComesBackWithAnotherRequest_IsCheckedByThat) {
  for (int rank : {0, 1}) cluster_.Submit(rank, kA);
  cluster_.Settle();
  cluster_.Withdraw(0, "a", "no data");  // its request may be the one that others are compared with
  cluster_.Settle();
  cluster_.Submit(0, AllreduceRequest("a", {4}));
  cluster_.Submit(2, kA);
  cluster_.Settle();
  for (int rank = 1; rank < 3; ++rank) {
    const Status status = ErrorOf(cluster_, rank);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    EXPECT_NE(status.message().find("[4]"), std::string::npos) << status;
    EXPECT_NE(status.message().find("[3]"), std::string::npos) << status;
  }
  ExpectWorks();
}

TEST_P(WithdrawalTest, OfADifferingRequest_TakesTheDifferenceBack) {
  cluster_.Submit(0, kA);
  cluster_.Submit(1, AllreduceRequest("a", {4}));
  cluster_.Settle();
  cluster_.Withdraw(1, "a", "a mistake");
  cluster_.Settle();
  cluster_.Submit(1, kA);
  cluster_.Submit(2, kA);
  cluster_.Settle();
  EXPECT_TRUE(cluster_.errors(0).empty());
  ExpectWorks();
}

TEST_P(WithdrawalTest, OfWhatIsDecided_ComesTooLate) {
  for (int rank = 0; rank < 3; ++rank) cluster_.Submit(rank, kA);
  for (int rank = 0; rank < 3; ++rank) cluster_.Announce(rank);
  cluster_.Withdraw(1, "a", "no data");
  cluster_.Announce(1);
  cluster_.Settle();
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(cluster_.errors(rank).empty());
  ExpectWorks();
}

// A rank whose announcement is on its way must not be answered by an error for those before it.
TEST_P(WithdrawalTest, AnnouncementsOnTheirWayBelongToTheNextRound) {
  for (int rank : {0, 1}) cluster_.Submit(rank, kA);
  cluster_.Settle();
  cluster_.Withdraw(0, "a", "no data");
  cluster_.Settle();
  cluster_.now += kGrace;
  cluster_.Submit(2, kA);
  cluster_.Announce(2);
  cluster_.Advance();
  cluster_.Settle();
  EXPECT_FALSE(cluster_.InFlight(1, "a"));
  EXPECT_TRUE(cluster_.InFlight(2, "a"));
  for (int rank : {0, 1}) cluster_.Submit(rank, kA);
  cluster_.Settle();
  EXPECT_TRUE(cluster_.errors(2).empty());
  ExpectWorks();
}

TEST_P(WithdrawalTest, SeveralRanks_TheFirstIsNamedOnce) {
  for (int rank : {1, 2}) cluster_.Submit(rank, kA);
  cluster_.Settle();
  for (int rank : {1, 2}) cluster_.Withdraw(rank, "a", "no data");
  cluster_.Settle();
  cluster_.Submit(0, kA);
  cluster_.Settle();
  Pass(kGrace);
  EXPECT_NE(ErrorOf(cluster_, 0).message().find("rank 1 asked"), std::string::npos);
  ExpectWorks();
}

TEST_P(WithdrawalTest, Shutdown_AnswersWhatWasWithdrawn) {
  for (int rank : {0, 1}) cluster_.Submit(rank, kA);
  cluster_.Settle();
  cluster_.Withdraw(1, "a", "no data");
  cluster_.Announce(1);
  cluster_.RequestShutdown(0, "a test");
  cluster_.Settle();
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(cluster_.InFlight(rank).empty());
  EXPECT_EQ(cluster_.coordinator().NextDeadline(), kNever);
  EXPECT_TRUE(cluster_.failure().ok()) << cluster_.failure();
}

// Random submissions and withdrawals in every order of messages. What must hold without a model:
// every submission is answered once; only what was withdrawn, or waited for somebody's withdrawal,
// ends badly; all ranks execute the same; nothing is left.
class RandomWithdrawals {
 public:
  RandomWithdrawals(int ranks, std::int64_t capacity, std::uint32_t seed)
      : ranks_(ranks), random_(seed), cluster_(ranks, Options(capacity)) {}

  void Run() {
    for (int step = 0; step < 1500; ++step) {
      Step();
      ASSERT_TRUE(cluster_.failure().ok()) << cluster_.failure();
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      for (const char* name : kNames) {
        if (cluster_.InFlight(rank, name)) Withdraw(rank, name);
      }
    }
    cluster_.Settle();
    cluster_.now += 2 * kGrace;
    cluster_.Settle();
    Check();
  }
  std::size_t executed() const { return executed_; }
  std::size_t peer_errors() const { return peer_errors_; }

 private:
  static constexpr const char* kNames[] = {"a", "b", "c"};

  int Roll(int n) { return static_cast<int>(random_() % static_cast<std::uint32_t>(n)); }
  void Withdraw(int rank, const std::string& name) {
    cluster_.Withdraw(rank, name, "a test");
    withdrawn_.insert({rank, name});
  }
  void Step() {
    const int rank = Roll(ranks_);
    const std::string name = kNames[Roll(3)];
    cluster_.now += std::chrono::milliseconds(Roll(400));
    switch (Roll(7)) {
      case 0:
      case 1:
        if (!cluster_.InFlight(rank, name)) {
          cluster_.Submit(rank, AllreduceRequest(name, {Roll(20) == 0 ? 4 : 3}));
        }
        break;
      case 2:
        if (Roll(6) == 0 && cluster_.InFlight(rank, name)) Withdraw(rank, name);
        break;
      case 3:
        cluster_.Announce(rank);
        break;
      case 4:
        cluster_.Collect(rank);
        break;
      case 5:
        cluster_.Advance();
        break;
      default:
        cluster_.Deliver(rank);
        break;
    }
  }
  void Check() {
    ASSERT_TRUE(cluster_.failure().ok()) << cluster_.failure();
    ASSERT_TRUE(cluster_.Quiet());
    ASSERT_TRUE(cluster_.coordinator().Pending().empty());
    ASSERT_EQ(cluster_.coordinator().NextDeadline(), kNever);
    for (int rank = 0; rank < ranks_; ++rank) {
      ASSERT_EQ(cluster_.Executed(rank), cluster_.Executed(0));
      ASSERT_TRUE(cluster_.InFlight(rank).empty());
      for (const int answers : cluster_.answers(rank)) ASSERT_EQ(answers, 1);
      for (const StepCluster::Event& error : cluster_.errors(rank)) CheckError(rank, error);
      executed_ += cluster_.events(rank).size() - cluster_.errors(rank).size();
    }
  }
  void CheckError(int rank, const StepCluster::Event& error) {
    for (const std::string& name : error.names) {
      if (error.status.code() == StatusCode::kCancelled) {
        ASSERT_EQ(withdrawn_.count({rank, name}), 1u) << name;
      } else if (error.status.code() == StatusCode::kUnknown) {
        ++peer_errors_;
        ASSERT_NE(error.status.message().find("a test"), std::string::npos) << error.status;
      } else {
        ASSERT_EQ(error.status.code(), StatusCode::kFailedPrecondition) << error.status;
      }
    }
  }

  const int ranks_;
  std::mt19937 random_;
  StepCluster cluster_;
  std::set<std::pair<int, std::string>> withdrawn_;
  std::size_t executed_ = 0;
  std::size_t peer_errors_ = 0;
};

TEST(Withdrawal, AnyOrderOfMessages_AnswersEverythingOnce) {
  for (const int ranks : {1, 2, 3, 5}) {
    for (const std::int64_t capacity : {0, 1, 2, 64}) {
      std::size_t executed = 0;
      std::size_t peer_errors = 0;
      for (std::uint32_t seed = 0; seed < 40; ++seed) {
        SCOPED_TRACE(testing::Message()
                     << ranks << " ranks, capacity " << capacity << ", seed " << seed);
        RandomWithdrawals run(ranks, capacity, seed);
        run.Run();
        if (testing::Test::HasFatalFailure()) return;
        executed += run.executed();
        peer_errors += run.peer_errors();
      }
      EXPECT_GT(executed, 500u);
      EXPECT_GE(peer_errors, ranks > 1 ? 5u : 0u) << ranks << " ranks, capacity " << capacity;
    }
  }
}

// ---- the same through the runtime
// -----------------------------------------------------------------

TestTensorPtr SubmitWithTicket(Runtime& runtime, const std::string& name, int rank, int size,
                               std::uint64_t ticket) {
  const auto tensor = std::make_shared<TestTensor>(TestSpec{name}, rank, size);
  TensorEntry entry = tensor->Entry();
  entry.ticket = ticket;
  runtime.Enqueue(Group(std::move(entry)));
  return tensor;
}

ClusterOptions OneHostWithGrace(int ranks, double seconds) {
  ClusterOptions options;
  options.hosts = OneHost(ranks);
  options.config.withdrawal_grace = FromSeconds(seconds);
  return options;
}

TEST(RuntimeWithdrawal, EndsTheTensorAndTellsThePeers) {
  LocalCluster cluster(OneHostWithGrace(3, 0.5));
  ASSERT_TRUE(cluster.Started());
  const TestTensorPtr mine = SubmitWithTicket(cluster.rank(1), "x", 1, 3, 7);
  const TestTensorPtr other = Submit(cluster.rank(2), TestSpec{"x"}, 2, 3);
  cluster.rank(1).Withdraw(8, "nobody has this ticket");
  cluster.rank(1).Withdraw(7, "no data");
  cluster.rank(1).Withdraw(7, "no data");
  ASSERT_TRUE(mine->Wait());
  EXPECT_TRUE(mine->FailedWith("no data"));
  EXPECT_EQ(mine->status().code(), StatusCode::kCancelled);
  ASSERT_TRUE(other->Wait());
  EXPECT_TRUE(other->FailedWith("rank 1"));
  EXPECT_EQ(other->status().code(), StatusCode::kUnknown);
  cluster.rank(1).Withdraw(7, "it has ended");
  EXPECT_TRUE(cluster.Works(TestSpec{"x"}));
}

TEST(RuntimeWithdrawal, OfAStep_EndsAllItsTensorsAndNoOthers) {
  LocalCluster cluster(OneHostWithGrace(2, 1000));
  ASSERT_TRUE(cluster.Started());
  std::vector<TestTensorPtr> step;
  for (const char* name : {"a", "b", "c"}) {
    step.push_back(SubmitWithTicket(cluster.rank(1), name, 1, 2, 7));
  }
  const TestTensorPtr other = SubmitWithTicket(cluster.rank(1), "d", 1, 2, 8);
  cluster.rank(1).Withdraw(7, "no data");
  for (const TestTensorPtr& tensor : step) {
    ASSERT_TRUE(tensor->Wait());
    EXPECT_TRUE(tensor->FailedWith("no data"));
  }
  const TestTensorPtr peer = Submit(cluster.rank(0), TestSpec{"d"}, 0, 2);
  ASSERT_TRUE(other->Wait() && peer->Wait());
  EXPECT_TRUE(other->Correct());
}

// Whoever has withdrawn it asks again, so that the other one gets its result in any case.
TEST(RuntimeWithdrawal, AtAnyMoment_EndsOnceAndNothingHangs) {
  LocalCluster cluster(OneHostWithGrace(2, 1000));
  ASSERT_TRUE(cluster.Started());
  std::uint64_t ticket = 0;
  for (int round = 0; round < 1000; ++round) {
    const int leaves = round % 2;
    const int stays = 1 - leaves;
    TestTensorPtr mine = SubmitWithTicket(cluster.rank(leaves), "x", leaves, 2, ++ticket);
    const TestTensorPtr other = Submit(cluster.rank(stays), TestSpec{"x"}, stays, 2);
    if (round % 3 == 0) std::this_thread::yield();
    cluster.rank(leaves).Withdraw(ticket, "no data");
    ASSERT_TRUE(mine->Wait()) << "round " << round;
    EXPECT_EQ(mine->calls(), 1);
    if (!mine->status().ok()) {
      EXPECT_EQ(mine->status().code(), StatusCode::kCancelled);
      mine = SubmitWithTicket(cluster.rank(leaves), "x", leaves, 2, ++ticket);
    }
    ASSERT_TRUE(mine->Wait() && other->Wait()) << "round " << round;
    EXPECT_TRUE(mine->Correct());
    EXPECT_TRUE(other->Correct());
  }
}

TEST(RuntimeWithdrawal, OfAnInterruptedProgram_EndsWhatHasWaitedForLong) {
  ClusterOptions options = OneHostWithGrace(2, 0.1);
  options.config.interrupt_grace = FromSeconds(0.05);
  LocalCluster cluster(options);
  ASSERT_TRUE(cluster.Started());
  const TestTensorPtr mine = Submit(cluster.rank(1), TestSpec{"x"}, 1, 2);
  const TimePoint deadline = TestDeadline();
  while (mine->calls() == 0 && Clock::Real().Now() < deadline) {
    cluster.rank(1).Interrupt("SIGINT");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(mine->FailedWith("SIGINT"));
  EXPECT_EQ(mine->status().code(), StatusCode::kCancelled);
  const TestTensorPtr other = Submit(cluster.rank(0), TestSpec{"x"}, 0, 2);
  ASSERT_TRUE(other->Wait());
  EXPECT_TRUE(other->FailedWith("SIGINT"));
  EXPECT_TRUE(cluster.Works(TestSpec{"y"}));
}

TEST(RuntimeWithdrawal, OfAnInterruptedProgram_IsNothingWhereItIsTurnedOff) {
  ClusterOptions options = OneHostWithGrace(2, 0.1);
  options.config.interrupt_grace = Duration{0};
  LocalCluster cluster(options);
  ASSERT_TRUE(cluster.Started());
  const TestTensorPtr mine = Submit(cluster.rank(1), TestSpec{"x"}, 1, 2);
  cluster.rank(1).Interrupt("SIGINT");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  cluster.rank(1).Interrupt("SIGINT");
  const TestTensorPtr other = Submit(cluster.rank(0), TestSpec{"x"}, 0, 2);
  ASSERT_TRUE(mine->Wait() && other->Wait());
  EXPECT_TRUE(mine->Correct());
}

TEST(RuntimeWithdrawal, AfterTheEnd_DoesNothing) {
  LocalCluster cluster(1);
  ASSERT_TRUE(cluster.Started());
  cluster.Stop();
  cluster.rank(0).Withdraw(1, "too late");
  cluster.rank(0).Interrupt("too late");
}

}  // namespace
}  // namespace horovod_tf
