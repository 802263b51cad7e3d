#include "test/cpp/support/fault_transport.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "horovod_tf/common/transport/local_transport.h"

namespace horovod_tf {
namespace {

// Three ranks of which rank 1 has the fault.
class FaultTransportTest : public testing::Test {
 protected:
  void Plan(FaultCall call, int k, FaultAction action, Duration delay = {}) {
    endpoints_ = MakeLocalTransports({"a", "b", "c"});
    counters_ = std::make_shared<FaultCounters>();
    endpoints_[1] =
        MakeFaultTransport(std::move(endpoints_[1]), FaultPlan{call, k, action, delay}, counters_);
  }

  // What has arrived at `rank`: the bytes, or the error's text in angle brackets.
  std::vector<std::string> Arrived(std::size_t rank) {
    std::vector<std::string> all;
    for (int looks = 0; looks < 10; ++looks) {
      Incoming message;
      bool got = false;
      const Status status = endpoints_[rank]->Receive(&message, &got);
      if (got) all.push_back(message.bytes);
      if (!status.ok()) all.push_back("<" + status.message() + ">");
    }
    return all;
  }

  std::vector<std::unique_ptr<Transport>> endpoints_;
  std::shared_ptr<FaultCounters> counters_;
};

using Strings = std::vector<std::string>;

TEST_F(FaultTransportTest, NoPlan_PassesEverythingOnAndCounts) {
  Plan(FaultCall::kAny, 0, FaultAction::kFail);
  EXPECT_EQ(endpoints_[1]->rank(), 1);
  EXPECT_EQ(endpoints_[1]->size(), 3);
  EXPECT_EQ(endpoints_[1]->host(), "b");
  ASSERT_TRUE(endpoints_[1]->Send(0, "one").ok());
  ASSERT_TRUE(endpoints_[1]->Broadcast("all").ok());
  ASSERT_TRUE(endpoints_[2]->Send(1, "back").ok());
  endpoints_[1]->Wait(Clock::Real().Now() + std::chrono::seconds(20), Expectation::kAnswer);
  EXPECT_EQ(Arrived(0), (Strings{"one", "all"}));
  EXPECT_EQ(Arrived(1), Strings{"back"});
  EXPECT_EQ(Arrived(2), Strings{"all"});
  EXPECT_EQ(counters_->sends, 1);
  EXPECT_EQ(counters_->broadcasts, 1);
  EXPECT_EQ(counters_->receives, 1);
  EXPECT_EQ(counters_->any(), 3);
  EXPECT_EQ(counters_->faults, 0);
  endpoints_[1]->Abort(Status::Internal("y"));
  EXPECT_EQ(endpoints_[1]->health().ToString(), "Internal: y");
  EXPECT_EQ(endpoints_[0]->health().ToString(), "Internal: rank 1 failed: y");
}

TEST_F(FaultTransportTest, SecondSendFails_OnlyThatOneIsLostAndTheTextNamesIt) {
  Plan(FaultCall::kSend, 2, FaultAction::kFail);
  EXPECT_TRUE(endpoints_[1]->Broadcast("b").ok());  // does not count as a send
  EXPECT_TRUE(endpoints_[1]->Send(0, "first").ok());
  const Status failed = endpoints_[1]->Send(0, "second");
  EXPECT_TRUE(endpoints_[1]->Send(0, "third").ok());
  EXPECT_EQ(failed.ToString(), "Unavailable: planned fault: Send on rank 1, call 2");
  EXPECT_EQ(Arrived(0), (Strings{"b", "first", "third"}));
  EXPECT_EQ(counters_->faults, 1);
}

TEST_F(FaultTransportTest, BroadcastFails_NobodyGetsIt) {
  Plan(FaultCall::kBroadcast, 1, FaultAction::kFail);
  EXPECT_FALSE(endpoints_[1]->Broadcast("lost").ok());
  EXPECT_TRUE(endpoints_[1]->Broadcast("kept").ok());
  EXPECT_EQ(Arrived(0), Strings{"kept"});
  EXPECT_EQ(Arrived(2), Strings{"kept"});
}

TEST_F(FaultTransportTest, ReceiveFails_AtTheKthMessageHoweverOftenSomebodyLooks) {
  Plan(FaultCall::kReceive, 2, FaultAction::kFail);
  EXPECT_TRUE(Arrived(1).empty());
  for (const char* text : {"x", "y", "z"}) ASSERT_TRUE(endpoints_[0]->Send(1, text).ok());
  EXPECT_EQ(Arrived(1), (Strings{"x", "<planned fault: Receive on rank 1, call 2>", "z"}));
}

TEST_F(FaultTransportTest, AnyCall_CountsAllKindsTogether) {
  Plan(FaultCall::kAny, 3, FaultAction::kFail);
  ASSERT_TRUE(endpoints_[0]->Send(1, "in").ok());
  EXPECT_TRUE(endpoints_[1]->Send(0, "1").ok());
  EXPECT_EQ(Arrived(1), Strings{"in"});
  EXPECT_FALSE(endpoints_[1]->Broadcast("3").ok());
  EXPECT_TRUE(endpoints_[1]->Send(0, "4").ok());
  EXPECT_EQ(Arrived(0), (Strings{"1", "4"}));
}

TEST_F(FaultTransportTest, Dropped_SaysOkAndTheMessageIsGone) {
  Plan(FaultCall::kSend, 1, FaultAction::kDrop);
  EXPECT_TRUE(endpoints_[1]->Send(2, "gone").ok());
  EXPECT_TRUE(endpoints_[1]->Send(2, "here").ok());
  EXPECT_EQ(Arrived(2), Strings{"here"});
  Plan(FaultCall::kReceive, 1, FaultAction::kDrop);
  ASSERT_TRUE(endpoints_[0]->Send(1, "gone").ok());
  ASSERT_TRUE(endpoints_[0]->Send(1, "here").ok());
  EXPECT_EQ(Arrived(1), Strings{"here"});
}

TEST_F(FaultTransportTest, Truncated_LosesItsSecondHalf) {
  Plan(FaultCall::kBroadcast, 1, FaultAction::kTruncate);
  EXPECT_TRUE(endpoints_[1]->Broadcast("abcdefg").ok());
  EXPECT_EQ(Arrived(0), Strings{"abc"});
  Plan(FaultCall::kReceive, 1, FaultAction::kTruncate);
  ASSERT_TRUE(endpoints_[0]->Send(1, "q").ok());
  EXPECT_EQ(Arrived(1), Strings{""});
}

TEST_F(FaultTransportTest, Corrupted_DiffersInOneByte) {
  Plan(FaultCall::kSend, 1, FaultAction::kCorrupt);
  EXPECT_TRUE(endpoints_[1]->Send(0, "aaaaa").ok());
  EXPECT_TRUE(endpoints_[1]->Send(0, "").ok());
  EXPECT_EQ(Arrived(0), (Strings{"aaqaa", ""}));
}

TEST_F(FaultTransportTest, Delayed_TakesThatLongAndArrives) {
  Plan(FaultCall::kSend, 1, FaultAction::kDelay, std::chrono::milliseconds(30));
  const TimePoint start = Clock::Real().Now();
  EXPECT_TRUE(endpoints_[1]->Send(0, "slow").ok());
  EXPECT_GE(Clock::Real().Now() - start, std::chrono::milliseconds(30));
  EXPECT_EQ(Arrived(0), Strings{"slow"});
}

}  // namespace
}  // namespace horovod_tf
