// The coordinator and time, shutdown, what its observer hears, and peers that break the rules.
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "horovod_tf/common/protocol/coordinator.h"
#include "test/cpp/support/step_cluster.h"

namespace horovod_tf {
namespace {

constexpr TimePoint kStart{std::chrono::hours(10)};

CoordinatorOptions Options(int size) {
  CoordinatorOptions options = StepCluster::DefaultOptions();
  options.size = size;
  return options;
}

// One coordinator, fed with structs.
class CoordinatorStepsTest : public testing::Test {
 protected:
  void Make(const CoordinatorOptions& options, NegotiationObserver* observer = nullptr) {
    coordinator_ = std::make_unique<Coordinator>(options, observer);
    applied_ = 0;
  }
  // In full; as a rank that has applied everything.
  Status Full(int rank, const Request& request) {
    Announce announce;
    announce.requests = {request};
    return Send(rank, std::move(announce));
  }
  Status ById(int rank, std::vector<TensorId> ids) {
    Announce announce;
    announce.known = std::move(ids);
    return Send(rank, std::move(announce));
  }
  Status Shutdown(int rank, const std::string& reason) {
    Announce announce;
    announce.shutdown = true;
    announce.shutdown_reason = reason;
    return Send(rank, std::move(announce));
  }
  Status Send(int rank, Announce announce) {
    announce.applied = applied_;
    return coordinator_->OnAnnounce(rank, announce, now_);
  }
  std::vector<LogRecord> Advance() {
    Log log;
    log.records.emplace_back(ForgetRecord{});  // must be cleared
    coordinator_->Advance(now_, &log);
    EXPECT_EQ(log.first_sequence, applied_);
    applied_ += log.records.size();
    return log.records;
  }
  // Defines `request` as the next id.
  void Teach(int size, const Request& request) {
    for (int rank = 0; rank < size; ++rank) ASSERT_TRUE(Full(rank, request).ok());
    ASSERT_EQ(Advance().size(), 2u);
  }
  void ExpectViolation(const Status& status, const std::string& part) {
    EXPECT_EQ(status.code(), StatusCode::kInternal) << status;
    EXPECT_NE(status.message().find(part), std::string::npos) << status;
  }

  std::unique_ptr<Coordinator> coordinator_;
  std::uint64_t applied_ = 0;
  TimePoint now_ = kStart;
  const Request a_ = AllreduceRequest("a", {10});  // 40 bytes
  const Request b_ = AllreduceRequest("b", {20});
  const Request c_ = AllreduceRequest("c", {30});
};

using CoordinatorViolationTest = CoordinatorStepsTest;
using CoordinatorCycleTimeTest = CoordinatorStepsTest;
using CoordinatorStallTest = CoordinatorStepsTest;
using CoordinatorShutdownTest = CoordinatorStepsTest;
using CoordinatorObserverTest = CoordinatorStepsTest;

// ---- peers that break the rules ----------------------------------------------------------------

TEST_F(CoordinatorViolationTest, RankThatDoesNotExist) {
  Make(Options(2));
  ExpectViolation(Full(2, a_), "Rank 2 broke the control protocol: there are only ranks 0 to 1");
  ExpectViolation(Full(-1, a_), "Rank -1");
  EXPECT_TRUE(Full(1, a_).ok());
}

TEST_F(CoordinatorViolationTest, SameTensorTwiceInFull) {
  Make(Options(2));
  ASSERT_TRUE(Full(1, a_).ok());
  ExpectViolation(Full(1, a_), "Rank 1 broke the control protocol: it announced tensor 'a' twice");
  // Also between the last announcement and the decision.
  ASSERT_TRUE(Full(0, a_).ok());
  ExpectViolation(Full(0, a_), "'a' twice");
}

TEST_F(CoordinatorViolationTest, SameTensorTwiceByIdOrOnceEachWay) {
  Make(Options(2));
  Teach(2, a_);
  ASSERT_TRUE(ById(1, {0}).ok());
  ExpectViolation(ById(1, {0}), "'a' twice");
  ExpectViolation(Full(1, a_), "'a' twice");
  ASSERT_TRUE(Full(0, b_).ok());
  ASSERT_TRUE(Full(0, a_).ok());
  ExpectViolation(ById(0, {0}), "'a' twice");
}

TEST_F(CoordinatorViolationTest, SameTensorTwiceWhileItsExecutionIsHeldBack) {
  CoordinatorOptions options = Options(2);
  options.cycle_time = FromSeconds(1);
  for (const std::int64_t capacity : {0, 8}) {
    options.capacity = capacity;
    Make(options);
    ASSERT_TRUE(Full(0, c_).ok());  // keeps it waiting
    for (int rank : {0, 1}) ASSERT_TRUE(Full(rank, a_).ok());
    EXPECT_EQ(Advance().size(), capacity == 0 ? 0u : 1u);
    ExpectViolation(Full(1, a_), "'a' twice");
  }
}

TEST_F(CoordinatorViolationTest, IdWithoutMeaning) {
  Make(Options(2));
  ExpectViolation(ById(0, {0}), "tensor id 0, which has no meaning");
  Teach(2, a_);
  ExpectViolation(ById(0, {1}), "tensor id 1, which has no meaning");
  ExpectViolation(ById(0, {kMaxTensorIds - 1}), "has no meaning");
  EXPECT_TRUE(ById(0, {0}).ok());
}

TEST_F(CoordinatorViolationTest, IdBeforeItsDefinitionHasBeenApplied) {
  Make(Options(2));
  Teach(2, a_);
  applied_ = 0;
  ExpectViolation(ById(0, {0}), "tensor id 0, which has no meaning after log record 0");
  ExpectViolation(Full(0, a_), "'a' twice");
  applied_ = 1;
  EXPECT_TRUE(ById(0, {0}).ok());
}

TEST_F(CoordinatorViolationTest, ForgottenIdByARankThatKnowsIt) {
  CoordinatorOptions options = Options(2);
  options.capacity = 1;
  Make(options);
  Teach(2, a_);
  for (int rank : {0, 1}) ASSERT_TRUE(Full(rank, b_).ok());
  ASSERT_EQ(Advance().size(), 2u);  // b once, forget a
  applied_ = 3;
  EXPECT_TRUE(ById(1, {0}).ok());  // has not seen the last record
  applied_ = 4;
  ExpectViolation(ById(1, {0}), "tensor id 0, which has no meaning after log record 4");
}

TEST_F(CoordinatorStepsTest, NumbersThatRestAreRoomEnough_NothingMoreIsForgotten) {
  CoordinatorOptions options = Options(2);
  options.capacity = 2;
  Make(options);
  Teach(2, a_);
  Teach(2, b_);
  for (int rank : {0, 1}) ASSERT_TRUE(Full(rank, c_).ok());
  EXPECT_EQ(Advance().size(), 2u);  // c once; a is forgotten
  applied_ -= 1;                    // nobody has seen that yet
  for (int rank : {0, 1}) ASSERT_TRUE(Full(rank, c_).ok());
  applied_ += 1;
  const auto records = Advance();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<ExecuteOnceRecord>(records[0]));
}

TEST_F(CoordinatorViolationTest, AppliedRecordsThatDoNotExistOrGrowLess) {
  Make(Options(2));
  Teach(2, a_);
  applied_ = 3;
  ExpectViolation(ById(0, {}), "applied 3 log records, after 0 of the 2 there are");
  applied_ = 2;
  ASSERT_TRUE(ById(0, {}).ok());
  applied_ = 1;
  ExpectViolation(ById(0, {}), "applied 1 log records, after 2 of the 2");
}

// ---- cycle time --------------------------------------------------------------------------------

TEST_F(CoordinatorCycleTimeTest, HoldsCompleteTensorsBackForTheOthers) {
  CoordinatorOptions options = Options(2);
  options.cycle_time = FromSeconds(0.005);
  Make(options);
  Teach(2, a_);  // alone: at once
  Teach(2, b_);
  Teach(2, c_);
  ASSERT_TRUE(ById(0, {0, 1, 2}).ok());
  ASSERT_TRUE(ById(1, {0}).ok());
  EXPECT_TRUE(Advance().empty());
  EXPECT_EQ(coordinator_->NextDeadline(), kStart + FromSeconds(0.005));
  now_ += FromSeconds(0.003);
  ASSERT_TRUE(ById(1, {1}).ok());
  EXPECT_TRUE(Advance().empty());
  EXPECT_EQ(coordinator_->NextDeadline(), kStart + FromSeconds(0.005));  // since the first
  now_ = kStart + FromSeconds(0.005);
  const auto records = Advance();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(std::get<ExecuteRecord>(records[0]).ids, (std::vector<TensorId>{0, 1}));
  EXPECT_EQ(coordinator_->NextDeadline(), kStart + FromSeconds(58));  // c's stall
}

TEST_F(CoordinatorCycleTimeTest, EndsWhenNothingElseIsAwaited) {
  CoordinatorOptions options = Options(2);
  options.cycle_time = FromSeconds(3600);
  Make(options);
  Teach(2, a_);
  Teach(2, b_);
  ASSERT_TRUE(ById(0, {0, 1}).ok());
  ASSERT_TRUE(ById(1, {0}).ok());
  EXPECT_TRUE(Advance().empty());
  ASSERT_TRUE(ById(1, {1}).ok());
  EXPECT_EQ(coordinator_->NextDeadline(), kStart);  // at once
  EXPECT_EQ(Advance().size(), 1u);
  EXPECT_EQ(coordinator_->NextDeadline(), kNever);
}

TEST_F(CoordinatorCycleTimeTest, EndsWhenAFusedOperationIsFull) {
  CoordinatorOptions options = Options(2);
  options.cycle_time = FromSeconds(3600);
  options.fusion_threshold = 120;
  Make(options);
  Teach(2, a_);  // 40
  Teach(2, b_);  // 80
  Teach(2, c_);
  ASSERT_TRUE(ById(0, {0, 1, 2}).ok());
  ASSERT_TRUE(ById(1, {1}).ok());
  EXPECT_TRUE(Advance().empty());
  ASSERT_TRUE(ById(1, {0}).ok());
  EXPECT_EQ(Advance().size(), 1u);
}

TEST_F(CoordinatorCycleTimeTest, CountsOnlyTheBytesThatAreHeldBack) {
  CoordinatorOptions options = Options(2);
  options.cycle_time = FromSeconds(3600);
  options.fusion_threshold = 120;
  Make(options);
  Teach(2, a_);  // 40
  Teach(2, b_);  // 80
  Teach(2, c_);
  for (int rank : {0, 1}) ASSERT_TRUE(ById(rank, {1}).ok());
  EXPECT_EQ(Advance().size(), 1u);
  ASSERT_TRUE(ById(0, {0, 2}).ok());
  ASSERT_TRUE(ById(1, {0}).ok());
  EXPECT_TRUE(Advance().empty());  // 40 bytes, not 120
}

TEST_F(CoordinatorCycleTimeTest, DoesNotMatterWithoutFusion) {
  CoordinatorOptions options = Options(2);
  options.cycle_time = FromSeconds(3600);
  options.fusion_threshold = 0;
  Make(options);
  ASSERT_TRUE(Full(0, b_).ok());
  for (int rank : {0, 1}) ASSERT_TRUE(Full(rank, a_).ok());
  EXPECT_EQ(Advance().size(), 2u);
}

TEST_F(CoordinatorCycleTimeTest, DoesNotDelayErrors) {
  CoordinatorOptions options = Options(2);
  options.cycle_time = FromSeconds(3600);
  Make(options);
  ASSERT_TRUE(Full(0, b_).ok());
  ASSERT_TRUE(Full(0, a_).ok());
  ASSERT_TRUE(Full(1, AllreduceRequest("a", {11})).ok());
  const auto records = Advance();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<ErrorRecord>(records[0]));
}

TEST_F(CoordinatorCycleTimeTest, ShutdownFirstDoesWhatWasHeldBack) {
  CoordinatorOptions options = Options(2);
  options.cycle_time = FromSeconds(3600);
  Make(options);
  ASSERT_TRUE(Full(0, b_).ok());
  for (int rank : {0, 1}) ASSERT_TRUE(Full(rank, a_).ok());
  EXPECT_EQ(Advance().size(), 1u);  // the definition
  ASSERT_TRUE(Shutdown(1, "done").ok());
  const auto records = Advance();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(std::get<ExecuteRecord>(records[0]).ids, std::vector<TensorId>{0});
  EXPECT_EQ(std::get<ShutdownRecord>(records[1]).rank, 1);
}

// ---- stalls ------------------------------------------------------------------------------------

TEST_F(CoordinatorStallTest, NothingPending_NeedsNoWaking) {
  Make(Options(2));
  EXPECT_EQ(coordinator_->NextDeadline(), kNever);
  Teach(2, a_);
  EXPECT_EQ(coordinator_->NextDeadline(), kNever);
  for (int rank : {0, 1}) ASSERT_TRUE(ById(rank, {0}).ok());
  Advance();
  now_ += FromSeconds(1000);
  EXPECT_EQ(coordinator_->NextDeadline(), kNever);
  Advance();
  EXPECT_TRUE(coordinator_->TakeWarnings().empty());
}

TEST_F(CoordinatorStallTest, WarnsOncePerIntervalNamingTensorsAndRanks) {
  Make(Options(3));
  Teach(3, a_);
  ASSERT_TRUE(ById(1, {0}).ok());
  EXPECT_EQ(coordinator_->NextDeadline(), kStart + FromSeconds(58));
  now_ += FromSeconds(30);
  ASSERT_TRUE(Full(2, b_).ok());
  now_ = kStart + FromSeconds(59);
  Advance();
  EXPECT_TRUE(coordinator_->TakeWarnings().empty());
  now_ = kStart + FromSeconds(60);
  Advance();
  std::vector<std::string> warnings = coordinator_->TakeWarnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("'a'"), std::string::npos) << warnings[0];
  EXPECT_EQ(warnings[0].find("'b'"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find("ready ranks: 1]"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find("missing ranks: 0, 2]"), std::string::npos) << warnings[0];
  EXPECT_TRUE(coordinator_->TakeWarnings().empty());
  EXPECT_EQ(coordinator_->NextDeadline(), kStart + FromSeconds(118));
  now_ = kStart + FromSeconds(119);
  Advance();
  EXPECT_TRUE(coordinator_->TakeWarnings().empty());
  now_ = kStart + FromSeconds(120);
  Advance();
  warnings = coordinator_->TakeWarnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("'b'"), std::string::npos) << warnings[0];
}

TEST_F(CoordinatorStallTest, AsksWhomItWillComplainOfAndSaysWhatTheyDo) {
  CoordinatorOptions options = Options(3);
  options.stall.shutdown_time = FromSeconds(90);
  Make(options);
  Teach(3, a_);
  ASSERT_TRUE(Full(1, b_).ok());
  now_ = kStart + FromSeconds(58);
  EXPECT_TRUE(Advance().empty());
  EXPECT_EQ(coordinator_->TakeInquiries(), (std::vector<int>{0, 2}));
  EXPECT_EQ(coordinator_->NextDeadline(), kStart + FromSeconds(60));
  coordinator_->OnReport(0, Report{1, "allreduce of 'a'", 57000, {}}, now_);
  now_ = kStart + FromSeconds(60);
  EXPECT_TRUE(Advance().empty());
  const std::vector<std::string> warnings = coordinator_->TakeWarnings();
  ASSERT_EQ(warnings.size(), 1u);
  for (const char* part :
       {"Rank 0 is in user code for 59 s, since allreduce of 'a', its collective 1.",
        "Rank 2 has not answered for 2 s"}) {
    EXPECT_NE(warnings[0].find(part), std::string::npos) << part << " not in " << warnings[0];
  }
  // Who owes an answer is not asked again.
  now_ = kStart + FromSeconds(88);
  Advance();
  EXPECT_EQ(coordinator_->TakeInquiries(), std::vector<int>{0});
  now_ = kStart + FromSeconds(90);
  const auto records = Advance();
  ASSERT_EQ(records.size(), 1u);
  const Status status = std::get<ShutdownRecord>(records[0]).status;
  for (const char* part :
       {"executed 1 collectives; this is number 2", "Rank 2 has not answered for 32 s"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << part << " not in " << status;
  }
}

TEST_F(CoordinatorStallTest, BusyJobNeverWarnsAndTheDeadlineAlwaysMovesOn) {
  // Something is always pending, but nothing for long.
  Make(Options(2));
  Teach(2, a_);
  Teach(2, b_);
  ASSERT_TRUE(ById(0, {0}).ok());
  for (int second = 0; second < 300; ++second) {
    now_ += FromSeconds(1);
    const TensorId open = second % 2 == 0 ? 0u : 1u;
    ASSERT_TRUE(ById(0, {1 - open}).ok());
    ASSERT_TRUE(ById(1, {open}).ok());
    EXPECT_EQ(Advance().size(), 1u);
    EXPECT_GT(coordinator_->NextDeadline(), now_);
    EXPECT_NE(coordinator_->NextDeadline(), kNever);
  }
  EXPECT_TRUE(coordinator_->TakeWarnings().empty());
}

TEST_F(CoordinatorStallTest, ShutsDownAfterTheShutdownTime) {
  CoordinatorOptions options = Options(2);
  options.stall.shutdown_time = FromSeconds(90);
  Make(options);
  ASSERT_TRUE(Full(1, a_).ok());
  now_ = kStart + FromSeconds(60);
  EXPECT_TRUE(Advance().empty());
  EXPECT_EQ(coordinator_->NextDeadline(), kStart + FromSeconds(88));
  now_ = kStart + FromSeconds(90);
  const auto records = Advance();
  ASSERT_EQ(records.size(), 1u);
  const Status status = std::get<ShutdownRecord>(records[0]).status;
  EXPECT_EQ(status.code(), StatusCode::kUnknown);
  EXPECT_NE(status.message().find("'a'"), std::string::npos) << status;
  EXPECT_NE(status.message().find("ready ranks: 1]"), std::string::npos) << status;
  EXPECT_NE(status.message().find("missing ranks: 0]"), std::string::npos) << status;
  EXPECT_TRUE(coordinator_->stopped());
  EXPECT_EQ(coordinator_->NextDeadline(), kNever);
}

TEST_F(CoordinatorStallTest, DisabledCheckIsSilent) {
  CoordinatorOptions options = Options(2);
  options.stall.enabled = false;
  options.stall.shutdown_time = FromSeconds(1);
  Make(options);
  ASSERT_TRUE(Full(1, a_).ok());
  EXPECT_EQ(coordinator_->NextDeadline(), kNever);
  now_ += FromSeconds(10000);
  EXPECT_TRUE(Advance().empty());
  EXPECT_TRUE(coordinator_->TakeWarnings().empty());
}

// ---- shutdown ----------------------------------------------------------------------------------

TEST_F(CoordinatorShutdownTest, FirstToAskDecidesTheTextAndNothingFollows) {
  Make(Options(3));
  ASSERT_TRUE(Full(0, a_).ok());
  ASSERT_TRUE(Shutdown(2, "training is over").ok());
  ASSERT_TRUE(Shutdown(1, "me too").ok());
  EXPECT_EQ(coordinator_->NextDeadline(), kStart);
  EXPECT_FALSE(coordinator_->stopped());
  const auto records = Advance();
  ASSERT_EQ(records.size(), 1u);
  const auto& shutdown = std::get<ShutdownRecord>(records[0]);
  EXPECT_EQ(shutdown.rank, 2);
  EXPECT_EQ(shutdown.status.code(), StatusCode::kUnknown);
  EXPECT_EQ(shutdown.status.message().rfind(
                "Horovod has been shut down: rank 2 asked for it (training is over).", 0),
            0u)
      << shutdown.status;
  EXPECT_TRUE(coordinator_->stopped());
  EXPECT_TRUE(coordinator_->Pending().empty());
  // What comes too late is no violation, whatever it says, and answers nothing.
  for (int rank : {0, 1, 2}) EXPECT_TRUE(Full(rank, a_).ok());
  EXPECT_TRUE(ById(0, {77}).ok());
  now_ += FromSeconds(1000);
  EXPECT_TRUE(Advance().empty());
  EXPECT_EQ(coordinator_->NextDeadline(), kNever);
}

TEST_F(CoordinatorShutdownTest, AnswersEverythingInFlightOnEveryRank) {
  StepCluster cluster(3);
  cluster.SubmitEverywhere(AllreduceRequest("done", {2}));
  cluster.Submit(0, AllreduceRequest("waiting", {2}));
  cluster.RequestShutdown(1, "");
  cluster.Cycle();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(cluster.Executed(rank), "done");
    ASSERT_EQ(cluster.events(rank).size(), 2u);
    const StepCluster::Event& last = cluster.events(rank)[1];
    EXPECT_EQ(last.type, Response::Type::kShutdown);
    EXPECT_EQ(last.names,
              rank == 0 ? std::vector<std::string>{"waiting"} : std::vector<std::string>{});
    EXPECT_NE(last.status.message().find("rank 1 asked for it (no reason given)"),
              std::string::npos);
    EXPECT_TRUE(cluster.InFlight(rank).empty());
  }
  EXPECT_TRUE(cluster.failure().ok()) << cluster.failure();
}

// ---- the observer ------------------------------------------------------------------------------

class Listener : public NegotiationObserver {
 public:
  void OnRankReady(const std::string& name, CollectiveKind kind, int rank) override {
    heard_ += name + "/" + std::string(Info(kind).name) + "/" + std::to_string(rank) + " ";
  }
  void OnNegotiated(const std::string& name) override { heard_ += name + "! "; }
  std::string Take() { return std::exchange(heard_, {}); }

 private:
  std::string heard_;
};

TEST_F(CoordinatorObserverTest, HearsEveryRankAndTheEndOfEveryRound) {
  Listener listener;
  Make(Options(2), &listener);
  Teach(2, a_);
  EXPECT_EQ(listener.Take(), "a/allreduce/0 a/allreduce/1 a! ");
  ASSERT_TRUE(ById(1, {0}).ok());
  ASSERT_TRUE(Full(0, AllreduceRequest("a", {11})).ok());  // fails
  Advance();
  EXPECT_EQ(listener.Take(), "a/allreduce/1 a/allreduce/0 a! ");
  ASSERT_TRUE(Full(1, BroadcastRequest("w", {2}, 0)).ok());
  ASSERT_TRUE(ById(0, {0}).ok());
  ASSERT_TRUE(Shutdown(0, "x").ok());
  Advance();
  EXPECT_EQ(listener.Take(), "w/broadcast/1 a/allreduce/0 a! w! ");
}

}  // namespace
}  // namespace horovod_tf
