#include "horovod_tf/common/protocol/negotiator.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <utility>

#include "horovod_tf/common/protocol/request_checks.h"
#include "test/cpp/support/step_cluster.h"

namespace horovod_tf {
namespace {

TensorDefinition DefinitionOf(const Request& request) {
  return Define(std::vector<Request>(2, request));
}

// Rank 1 of 2, with a log written by hand.
class NegotiatorTest : public testing::Test {
 protected:
  Status Log(std::vector<LogRecord> records) {
    ::horovod_tf::Log log;
    log.first_sequence = sequence_;
    sequence_ += records.size();
    log.records = std::move(records);
    responses_.clear();
    return negotiator_->OnLog(log, &responses_);
  }
  Announce Take() {
    Announce announce;
    EXPECT_TRUE(negotiator_->TakeAnnounce(&announce));
    return announce;
  }
  bool NothingToSay() {
    Announce announce;
    return !negotiator_->TakeAnnounce(&announce);
  }
  // `request` becomes known under `id`, through a whole first round.
  void Teach(TensorId id, const Request& request, Token token) {
    negotiator_->Submit(request, token);
    Take();
    ASSERT_TRUE(Log({DefineRecord{id, DefinitionOf(request)}, ExecuteRecord{{id}}}).ok());
    ASSERT_EQ(responses_.size(), 1u);
  }
  void ExpectViolation(const Status& status, const std::string& part) {
    EXPECT_EQ(status.code(), StatusCode::kInternal) << status;
    EXPECT_NE(status.message().find(part), std::string::npos) << status;
  }

  std::optional<Negotiator> negotiator_{std::in_place, 1, 2};
  std::uint64_t sequence_ = 0;
  std::vector<Response> responses_;
  const Request a_ = AllreduceRequest("a", {3});
  const Request b_ = AllreduceRequest("b", {5});
  const Request c_ = AllreduceRequest("c", {7});
};

using NegotiatorDeathTest = NegotiatorTest;

TEST_F(NegotiatorTest, FirstTime_AnnouncesInFullInSubmissionOrder) {
  negotiator_->Submit(b_, 10);
  negotiator_->Submit(a_, 11);
  const Announce announce = Take();
  EXPECT_EQ(announce.applied, 0u);
  EXPECT_TRUE(announce.known.empty());
  ASSERT_EQ(announce.requests.size(), 2u);
  EXPECT_EQ(announce.requests[0], b_);
  EXPECT_EQ(announce.requests[1], a_);
  EXPECT_FALSE(announce.shutdown);
  EXPECT_TRUE(NothingToSay());
}

TEST_F(NegotiatorTest, Execute_AnswersTokensInBatchOrderWithDefinitions) {
  negotiator_->Submit(b_, 10);
  negotiator_->Submit(a_, 11);
  Take();
  ASSERT_TRUE(Log({DefineRecord{0, DefinitionOf(b_)}, DefineRecord{1, DefinitionOf(a_)},
                   ExecuteRecord{{0, 1}}})
                  .ok());
  ASSERT_EQ(responses_.size(), 1u);
  EXPECT_EQ(responses_[0].type, Response::Type::kExecute);
  EXPECT_EQ(responses_[0].tokens, (std::vector<Token>{10, 11}));
  ASSERT_EQ(responses_[0].definitions.size(), 2u);
  EXPECT_EQ(responses_[0].definitions[0]->common, b_);
  EXPECT_EQ(responses_[0].definitions[1]->common, a_);
  EXPECT_TRUE(negotiator_->InFlight().empty());
}

TEST_F(NegotiatorTest, KnownTensor_IsAnnouncedByIdSortedWithWhatWasApplied) {
  Teach(0, a_, 1);
  Teach(1, b_, 2);
  Teach(2, c_, 3);
  negotiator_->Submit(c_, 4);
  negotiator_->Submit(a_, 5);
  negotiator_->Submit(b_, 6);
  const Announce announce = Take();
  EXPECT_EQ(announce.known, (std::vector<TensorId>{0, 1, 2}));
  EXPECT_TRUE(announce.requests.empty());
  EXPECT_EQ(announce.applied, 6u);
}

TEST_F(NegotiatorTest, ChangedTensor_IsAnnouncedInFullAndTheNewMeaningIsUsedNext) {
  Teach(0, a_, 1);
  Request longer = a_;
  longer.shape = {4};
  negotiator_->Submit(longer, 2);
  const Announce announce = Take();
  EXPECT_TRUE(announce.known.empty());
  ASSERT_EQ(announce.requests.size(), 1u);
  EXPECT_EQ(announce.requests[0], longer);
  ASSERT_TRUE(Log({DefineRecord{0, DefinitionOf(longer)}, ExecuteRecord{{0}}}).ok());
  EXPECT_EQ(responses_[0].definitions[0]->common.shape, TensorShape({4}));
  negotiator_->Submit(longer, 3);
  EXPECT_EQ(Take().known, std::vector<TensorId>{0});
}

TEST_F(NegotiatorTest, GatheredTensor_IsComparedWithThisRanksRowsAndDevice) {
  Request mine = AllgatherRequest("g", {7, 2});
  mine.device = 1;
  Request other = AllgatherRequest("g", {6, 2});
  other.device = 0;
  negotiator_->Submit(mine, 1);
  Take();
  ASSERT_TRUE(Log({DefineRecord{0, Define({other, mine})}, ExecuteRecord{{0}}}).ok());
  negotiator_->Submit(other, 2);  // what rank 0 would ask for
  EXPECT_EQ(Take().requests.size(), 1u);
  ASSERT_TRUE(Log({ErrorRecord{{"g"}, Status::FailedPrecondition("x")}}).ok());
  negotiator_->Submit(mine, 3);
  EXPECT_EQ(Take().known, std::vector<TensorId>{0});
}

TEST_F(NegotiatorTest, FieldsThatTheKindDoesNotUse_DoNotMakeItDiffer) {
  Request broadcast = BroadcastRequest("w", {2}, 1);
  Teach(0, broadcast, 1);
  broadcast.reduce_op = ReduceOp::kMax;
  broadcast.prescale = 3;
  broadcast.postscale = 4;
  negotiator_->Submit(broadcast, 2);
  EXPECT_EQ(Take().known, std::vector<TensorId>{0});
  Teach(1, a_, 3);
  Request allreduce = a_;
  allreduce.root_rank = 1;
  negotiator_->Submit(allreduce, 4);
  EXPECT_EQ(Take().known, std::vector<TensorId>{1});
  ASSERT_TRUE(Log({ExecuteRecord{{0}}, ExecuteRecord{{1}}}).ok());
  broadcast.root_rank = 0;
  negotiator_->Submit(broadcast, 5);
  allreduce.prescale = 2;
  negotiator_->Submit(allreduce, 6);
  EXPECT_EQ(Take().requests.size(), 2u);
}

TEST_F(NegotiatorTest, Definitions_OutliveReplacementAndForgettingInTheSameLog) {
  Teach(0, a_, 1);
  Teach(1, b_, 2);
  negotiator_->Submit(a_, 3);
  negotiator_->Submit(b_, 4);
  negotiator_->Submit(c_, 5);
  Take();
  Request longer = a_;
  longer.shape = {1000};
  ASSERT_TRUE(Log({ExecuteRecord{{0, 1}}, ExecuteOnceRecord{DefinitionOf(c_)},
                   DefineRecord{0, DefinitionOf(longer)}, ForgetRecord{{1}}})
                  .ok());
  ASSERT_EQ(responses_.size(), 2u);
  EXPECT_EQ(responses_[0].definitions[0]->common, a_);
  EXPECT_EQ(responses_[0].definitions[1]->common, b_);
  EXPECT_EQ(responses_[1].definitions[0]->common, c_);
}

TEST_F(NegotiatorTest, Forget_MakesWhatWasSaidByIdToBeSaidInFull) {
  Teach(0, a_, 1);
  Teach(1, b_, 2);
  Teach(2, c_, 3);
  negotiator_->Submit(a_, 4);
  EXPECT_EQ(Take().known, std::vector<TensorId>{0});  // on its way
  negotiator_->Submit(b_, 5);                         // queued by id
  negotiator_->Submit(c_, 6);                         // queued by id, stays
  ASSERT_TRUE(Log({ForgetRecord{{0, 1}}}).ok());
  EXPECT_TRUE(responses_.empty());
  const Announce announce = Take();
  EXPECT_EQ(announce.known, std::vector<TensorId>{2});
  ASSERT_EQ(announce.requests.size(), 2u);
  EXPECT_EQ(announce.requests[0], a_);
  EXPECT_EQ(announce.requests[1], b_);
  EXPECT_EQ(announce.applied, 7u);
  EXPECT_EQ(negotiator_->InFlight(), (std::vector<Token>{4, 5, 6}));
}

TEST_F(NegotiatorTest, Forget_DoesNotRepeatWhatWasSaidInFull) {
  Teach(0, a_, 1);
  Teach(1, b_, 2);
  Request longer = a_;
  longer.shape = {4};
  negotiator_->Submit(longer, 3);
  Take();
  ASSERT_TRUE(Log({ForgetRecord{{0, 1}}}).ok());  // a is on its way in full, b is idle
  EXPECT_TRUE(NothingToSay());
  ASSERT_TRUE(Log({ExecuteOnceRecord{DefinitionOf(longer)}}).ok());
  EXPECT_EQ(responses_[0].tokens, std::vector<Token>{3});
  negotiator_->Submit(b_, 4);
  EXPECT_EQ(Take().requests.size(), 1u);
}

TEST_F(NegotiatorTest, ForgottenId_MayGetAnotherMeaning) {
  Teach(0, a_, 1);
  ASSERT_TRUE(Log({ForgetRecord{{0}}}).ok());
  Teach(0, b_, 2);
  negotiator_->Submit(a_, 3);
  negotiator_->Submit(b_, 4);
  const Announce announce = Take();
  EXPECT_EQ(announce.known, std::vector<TensorId>{0});
  ASSERT_EQ(announce.requests.size(), 1u);
  EXPECT_EQ(announce.requests[0], a_);
}

TEST_F(NegotiatorTest, Error_FailsWhatIsInFlightHereAndIgnoresOtherNames) {
  Teach(0, c_, 1);
  negotiator_->Submit(a_, 2);
  negotiator_->Submit(b_, 3);
  Take();
  const Status status = Status::FailedPrecondition("sizes differ");
  ASSERT_TRUE(Log({ErrorRecord{{"unheard of", "b", "c"}, status}}).ok());
  ASSERT_EQ(responses_.size(), 1u);
  EXPECT_EQ(responses_[0].type, Response::Type::kError);
  EXPECT_EQ(responses_[0].tokens, std::vector<Token>{3});
  EXPECT_EQ(responses_[0].status.message(), "sizes differ");
  ASSERT_TRUE(Log({ErrorRecord{{"unheard of"}, status}}).ok());
  EXPECT_TRUE(responses_.empty());
  EXPECT_EQ(negotiator_->InFlight(), std::vector<Token>{2});
}

TEST_F(NegotiatorTest, Error_WithdrawsWhatIsStillQueued) {
  Teach(0, a_, 1);
  negotiator_->Submit(a_, 2);
  negotiator_->Submit(b_, 3);
  negotiator_->Submit(c_, 4);
  ASSERT_TRUE(Log({ErrorRecord{{"a", "b"}, Status::FailedPrecondition("x")}}).ok());
  EXPECT_EQ(responses_[0].tokens, (std::vector<Token>{2, 3}));
  const Announce announce = Take();
  EXPECT_TRUE(announce.known.empty());
  ASSERT_EQ(announce.requests.size(), 1u);
  EXPECT_EQ(announce.requests[0], c_);
}

TEST_F(NegotiatorTest, Error_ForOtherRanksIsIgnored) {
  negotiator_->Submit(a_, 1);
  Take();
  ASSERT_TRUE(Log({ErrorRecord{{"a"}, Status::Unknown("x"), {0}}}).ok());
  EXPECT_TRUE(responses_.empty());
  EXPECT_EQ(negotiator_->InFlight(), std::vector<Token>{1});
  ASSERT_TRUE(Log({ErrorRecord{{"a"}, Status::Unknown("x"), {0, 1}}}).ok());
  ASSERT_EQ(responses_.size(), 1u);
  EXPECT_TRUE(negotiator_->InFlight().empty());
}

TEST_F(NegotiatorTest, Withdraw_BeforeTheAnnouncement_IsOnlyNoted) {
  Teach(0, a_, 1);
  negotiator_->Submit(a_, 2);
  negotiator_->Submit(b_, 3);
  EXPECT_TRUE(negotiator_->Withdraw("a", "no data"));
  EXPECT_TRUE(negotiator_->Withdraw("b", "no data"));
  EXPECT_TRUE(negotiator_->InFlight().empty());
  negotiator_->Submit(a_, 4);
  const Announce announce = Take();
  EXPECT_EQ(announce.known, std::vector<TensorId>{0});
  EXPECT_TRUE(announce.requests.empty());
  ASSERT_EQ(announce.withdrawn.size(), 2u);
  EXPECT_EQ(announce.withdrawn[0].name, "a");
  EXPECT_FALSE(announce.withdrawn[0].announced);
  EXPECT_EQ(announce.withdrawn[1].name, "b");
}

TEST_F(NegotiatorTest, Withdraw_AfterTheAnnouncement_IsAnnouncedOnceAndWaitsForItsAnswer) {
  negotiator_->Submit(a_, 1);
  Take();
  EXPECT_FALSE(negotiator_->Withdraw("a", "no data"));
  EXPECT_FALSE(negotiator_->Withdraw("a", "another"));
  const Announce announce = Take();
  ASSERT_EQ(announce.withdrawn.size(), 1u);
  EXPECT_EQ(announce.withdrawn[0].name, "a");
  EXPECT_EQ(announce.withdrawn[0].reason, "no data");
  EXPECT_TRUE(announce.withdrawn[0].announced);
  EXPECT_TRUE(NothingToSay());
  EXPECT_EQ(negotiator_->InFlight(), std::vector<Token>{1});
  ASSERT_TRUE(Log({ErrorRecord{{"a"}, Status::Cancelled("x"), {1}}}).ok());
  EXPECT_TRUE(negotiator_->InFlight().empty());
}

TEST_F(NegotiatorTest, Withdraw_OfWhatIsDecided_IsAnsweredByItsExecution) {
  negotiator_->Submit(a_, 1);
  Take();
  EXPECT_FALSE(negotiator_->Withdraw("a", "no data"));
  ASSERT_TRUE(Log({DefineRecord{0, DefinitionOf(a_)}, ExecuteRecord{{0}}}).ok());
  ASSERT_EQ(responses_.size(), 1u);
  EXPECT_EQ(responses_[0].type, Response::Type::kExecute);
  // The next submission is not the one that was withdrawn.
  Take();
  negotiator_->Submit(a_, 2);
  EXPECT_TRUE(Take().withdrawn.empty());
  EXPECT_TRUE(NothingToSay());
}

// The coordinator has forgotten who announced it, and so who withdrew it.
TEST_F(NegotiatorTest, Withdraw_ThenForgotten_IsAnnouncedAndWithdrawnAgain) {
  Teach(0, a_, 1);
  negotiator_->Submit(a_, 2);
  Take();
  EXPECT_FALSE(negotiator_->Withdraw("a", "no data"));
  EXPECT_EQ(Take().withdrawn.size(), 1u);
  ASSERT_TRUE(Log({ForgetRecord{{0}}}).ok());
  const Announce again = Take();
  ASSERT_EQ(again.requests.size(), 1u);
  EXPECT_TRUE(again.withdrawn.empty()) << "a withdrawal is about earlier messages";
  const Announce then = Take();
  EXPECT_TRUE(then.requests.empty());
  ASSERT_EQ(then.withdrawn.size(), 1u);
  EXPECT_EQ(then.withdrawn[0].name, "a");
}

TEST_F(NegotiatorTest, Shutdown_AnswersEverythingAndEndsTheTalk) {
  Teach(0, a_, 1);
  negotiator_->Submit(a_, 2);
  Take();
  negotiator_->Submit(b_, 3);  // never announced
  ASSERT_TRUE(Log({ShutdownRecord{0, Status::Unknown("over")}}).ok());
  ASSERT_EQ(responses_.size(), 1u);
  EXPECT_EQ(responses_[0].type, Response::Type::kShutdown);
  EXPECT_EQ(responses_[0].tokens, (std::vector<Token>{2, 3}));
  EXPECT_EQ(responses_[0].status.message(), "over");
  EXPECT_TRUE(negotiator_->InFlight().empty());
  EXPECT_TRUE(NothingToSay());
  ExpectViolation(Log({ForgetRecord{{0}}}), "follows the shutdown");
}

TEST_F(NegotiatorTest, RequestShutdown_IsAnnouncedOnceWithTheFirstReason) {
  negotiator_->RequestShutdown("the end");
  negotiator_->RequestShutdown("later");
  const Announce announce = Take();
  EXPECT_TRUE(announce.shutdown);
  EXPECT_EQ(announce.shutdown_reason, "the end");
  negotiator_->RequestShutdown("again");
  EXPECT_TRUE(NothingToSay());
}

TEST_F(NegotiatorTest, Gap_IsAnError) {
  ASSERT_TRUE(Log({ForgetRecord{}}).ok());
  sequence_ += 1;
  ExpectViolation(Log({ForgetRecord{}}), "from number 2 on have come where 1 is next");
  sequence_ = 0;
  ExpectViolation(Log({ForgetRecord{}}), "from number 0 on have come where 1 is next");
}

TEST_F(NegotiatorTest, ExecutionOfSomethingElse_IsAnErrorThatNamesIt) {
  Teach(0, a_, 1);
  Teach(1, b_, 2);
  ExpectViolation(Log({ExecuteRecord{{0}}}), "'a' is to be executed but rank 1 has not");
  sequence_ = 4;
  negotiator_->Submit(b_, 3);  // not announced
  ExpectViolation(Log({ExecuteRecord{{1}}}), "'b' is to be executed but rank 1 has not");
  sequence_ = 4;
  ExpectViolation(Log({ExecuteRecord{{2}}}), "id 2 is to be executed but has no meaning");
  sequence_ = 4;
  ExpectViolation(Log({ExecuteOnceRecord{DefinitionOf(c_)}}), "'c' is to be executed but rank 1");
  EXPECT_TRUE(responses_.empty());
}

TEST_F(NegotiatorTest, ImpossibleDefinition_IsAnErrorThatNamesIt) {
  Teach(0, a_, 1);
  ExpectViolation(Log({DefineRecord{2, DefinitionOf(b_)}}), "defines id 2 as tensor 'b'");
  sequence_ = 2;
  ExpectViolation(Log({DefineRecord{0, DefinitionOf(b_)}}), "'b' before the old meaning");
  sequence_ = 2;
  ExpectViolation(Log({DefineRecord{1, DefinitionOf(a_)}}), "'a' before the old meaning");
  sequence_ = 2;
  negotiator_->Submit(a_, 2);
  ExpectViolation(Log({DefineRecord{0, DefinitionOf(a_)}}), "'a', which rank 1 has not announced");
  sequence_ = 2;
  ExpectViolation(Log({ForgetRecord{{1}}}), "id 1 is to be forgotten but has no meaning");
}

// Every way in which a definition can contradict what rank 1 of 2 submitted, and the two values.
struct Contradiction {
  const char* field;
  std::function<void(Request*)> change;
  const char* said;  // what the log says
  const char* submitted;
};
const std::vector<Contradiction>& AllreduceContradictions() {
  static const std::vector<Contradiction> kAll = {
      {"kind", [](Request* r) { r->kind = CollectiveKind::kBroadcast; }, "BROADCAST of",
       "ALLREDUCE of"},
      {"type", [](Request* r) { r->dtype = DataType::kFloat64; }, "float64,", "float32,"},
      {"operation", [](Request* r) { r->reduce_op = ReduceOp::kProduct; }, "Product", "Sum"},
      {"prescale", [](Request* r) { r->prescale = 0.5; }, "prescale 0.5", "prescale 1 "},
      {"postscale", [](Request* r) { r->postscale = 0.25; }, "postscale 0.25", "postscale 1,"},
      {"dimension", [](Request* r) { r->shape = {4}; }, "shape [4]", "shape [3]"},
      {"rank",
       [](Request* r) {
         r->shape = {3, 1};
       },
       "shape [3, 1]", "shape [3]"},
      {"device", [](Request* r) { r->device = 2; }, "GPU 2", "CPU"},
      // Means nothing here, and a coordinator that heard our requests has not heard this one.
      {"root", [](Request* r) { r->root_rank = 1; }, "root rank 1", "root rank 0"},
  };
  return kAll;
}

class NegotiatorContradictionTest : public NegotiatorTest {
 protected:
  // The log says that rank 1 submitted `said`: in each of the records that could make it run.
  void ExpectRefused(const Request& submitted, const Request& said, const std::string& said_text,
                     const std::string& submitted_text) {
    const TensorDefinition definition = DefinitionOf(said);
    const auto refuse = [&](const Status& status) {
      EXPECT_TRUE(responses_.empty());
      ExpectViolation(status, "rank 1 submitted tensor '" + submitted.name + "'");
      const std::size_t but = status.message().find("but it submitted");
      ASSERT_NE(but, std::string::npos) << status;
      EXPECT_NE(status.message().substr(0, but).find(said_text), std::string::npos) << status;
      EXPECT_NE(status.message().find(submitted_text, but), std::string::npos) << status;
    };
    {
      SCOPED_TRACE("executed once");
      Begin(submitted);
      refuse(Log({ExecuteOnceRecord{definition}}));
    }
    {
      SCOPED_TRACE("defined");
      Begin(submitted);
      refuse(Log({DefineRecord{0, definition}}));
    }
    {
      SCOPED_TRACE("defined again, announced by id");
      Begin(submitted);
      ASSERT_TRUE(Log({DefineRecord{0, DefinitionOf(submitted)}, ExecuteRecord{{0}}}).ok());
      negotiator_->Submit(submitted, 2);
      ASSERT_EQ(Take().known, std::vector<TensorId>{0});
      refuse(Log({DefineRecord{0, definition}}));
    }
    {
      SCOPED_TRACE("announced by id, executed once");
      Begin(submitted);
      ASSERT_TRUE(Log({DefineRecord{0, DefinitionOf(submitted)}, ExecuteRecord{{0}}}).ok());
      negotiator_->Submit(submitted, 2);
      ASSERT_EQ(Take().known, std::vector<TensorId>{0});
      refuse(Log({ExecuteOnceRecord{definition}}));
    }
    {
      SCOPED_TRACE("announced by id, forgotten, announced in full");
      Begin(submitted);
      ASSERT_TRUE(Log({DefineRecord{0, DefinitionOf(submitted)}, ExecuteRecord{{0}}}).ok());
      negotiator_->Submit(submitted, 2);
      Take();
      ASSERT_TRUE(Log({ForgetRecord{{0}}}).ok());
      ASSERT_EQ(Take().requests, std::vector<Request>{submitted});
      refuse(Log({DefineRecord{0, definition}}));
    }
    // A root that means nothing cannot be submitted, so it cannot be in an old definition either.
    if (said.root_rank == submitted.root_rank || Info(said.kind).has_root) {
      SCOPED_TRACE("executed under the old definition");
      Begin(said);
      ASSERT_TRUE(Log({DefineRecord{0, definition}}).ok());
      ASSERT_TRUE(Log({ExecuteRecord{{0}}}).ok());
      negotiator_->Submit(submitted, 2);
      ASSERT_EQ(Take().requests, std::vector<Request>{submitted});
      refuse(Log({ExecuteRecord{{0}}}));
    }
  }
  // A new negotiator that has announced this.
  void Begin(const Request& request) {
    negotiator_.emplace(1, 2);
    sequence_ = 0;
    negotiator_->Submit(request, 1);
    Take();
  }
};

TEST_F(NegotiatorContradictionTest, AnyFieldOfAnAllreduce_IsAnErrorThatNamesBothValues) {
  for (const Contradiction& it : AllreduceContradictions()) {
    SCOPED_TRACE(it.field);
    Request said = a_;
    it.change(&said);
    ExpectRefused(a_, said, it.said, it.submitted);
  }
}

TEST_F(NegotiatorContradictionTest, RowsOfThisRank_OrTheRoot_AreErrorsThatNameBothValues) {
  ExpectRefused(AllgatherRequest("g", {7, 2}), AllgatherRequest("g", {8, 2}), "shape [8, 2]",
                "shape [7, 2]");
  ExpectRefused(BroadcastRequest("w", {2}, 1), BroadcastRequest("w", {2}, 0), "root rank 0",
                "root rank 1");
}

TEST_F(NegotiatorContradictionTest, SplitsOfThisRank_AreAnErrorThatNamesBothValues) {
  Request mine = AllgatherRequest("e", {3, 2});
  mine.kind = CollectiveKind::kAlltoall;
  mine.splits = {1, 2};
  Request said = mine;
  said.splits = {2, 1};
  ExpectRefused(mine, said, "splits [2, 1]", "splits [1, 2]");
}

TEST_F(NegotiatorContradictionTest, RowsOfOtherRanks_AreNoneAtAll) {
  const Request mine = AllgatherRequest("g", {7, 2});
  Begin(mine);
  ASSERT_TRUE(Log({DefineRecord{0, DefinitionOf(mine)}, ExecuteRecord{{0}}}).ok());
  negotiator_->Submit(mine, 2);
  ASSERT_EQ(Take().known, std::vector<TensorId>{0});
  const TensorDefinition other = Define({AllgatherRequest("g", {9, 2}), mine});
  ASSERT_TRUE(Log({DefineRecord{0, other}, ExecuteRecord{{0}}}).ok());
  EXPECT_EQ(responses_[0].definitions[0]->first_dims, (std::vector<std::int64_t>{9, 7}));
}

TEST_F(NegotiatorContradictionTest, BatchOfWhatCannotRunTogether_IsAnErrorThatNamesBoth) {
  for (const Contradiction& it : AllreduceContradictions()) {
    SCOPED_TRACE(it.field);
    Request other = b_;
    it.change(&other);
    if (other.kind == a_.kind && other.dtype == a_.dtype && other.reduce_op == a_.reduce_op &&
        other.prescale == 1 && other.postscale == 1 && other.device == kCpuDevice) {
      continue;  // only the shape, or what means nothing
    }
    negotiator_.emplace(1, 2);
    sequence_ = 0;
    Teach(0, a_, 1);
    Teach(1, other, 2);
    negotiator_->Submit(a_, 3);
    negotiator_->Submit(other, 4);
    ASSERT_EQ(Take().known.size(), 2u);
    const Status status = Log({ExecuteRecord{{0, 1}}});
    ExpectViolation(status, "tensors 'a' and 'b' are to be executed as one operation");
    EXPECT_NE(status.message().find(it.said), std::string::npos) << status;
    EXPECT_TRUE(responses_.empty());
  }
}

TEST_F(NegotiatorContradictionTest, BatchOfGathers_IsAnError) {
  Teach(0, AllgatherRequest("g", {7}), 1);
  Teach(1, AllgatherRequest("h", {7}), 2);
  negotiator_->Submit(AllgatherRequest("g", {7}), 3);
  negotiator_->Submit(AllgatherRequest("h", {7}), 4);
  Take();
  ExpectViolation(Log({ExecuteRecord{{0, 1}}}), "tensors 'g' and 'h' are to be executed as one");
}

TEST_F(NegotiatorDeathTest, SecondSubmissionInFlight_IsABugOfTheCaller) {
  negotiator_->Submit(a_, 1);
  EXPECT_DEATH(negotiator_->Submit(a_, 2), "one submission of a name at a time");
}

}  // namespace
}  // namespace horovod_tf
