#include "horovod_tf/common/runtime/runtime_state.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "test/cpp/support/fake_clock.h"

namespace horovod_tf {
namespace {

const std::vector<RuntimeState> kStates = {RuntimeState::kIdle,    RuntimeState::kStarting,
                                           RuntimeState::kRunning, RuntimeState::kDraining,
                                           RuntimeState::kStopped, RuntimeState::kFailed};

TEST(RuntimeState, EveryPair_IsAllowedExactlyIfTheTableSaysSo) {
  using S = RuntimeState;
  const std::set<std::pair<S, S>> allowed = {
      {S::kIdle, S::kStarting},    {S::kStarting, S::kRunning}, {S::kRunning, S::kDraining},
      {S::kDraining, S::kStopped}, {S::kIdle, S::kFailed},      {S::kStarting, S::kFailed},
      {S::kRunning, S::kFailed},   {S::kDraining, S::kFailed},
  };
  for (const S from : kStates) {
    for (const S to : kStates) {
      EXPECT_EQ(TransitionAllowed(from, to), allowed.count({from, to}) == 1)
          << RuntimeStateName(from) << " -> " << RuntimeStateName(to);
    }
  }
}

TEST(RuntimeState, Names_AreDistinct) {
  std::set<std::string_view> names;
  for (const RuntimeState state : kStates) names.insert(RuntimeStateName(state));
  EXPECT_EQ(names.size(), kStates.size());
  EXPECT_EQ(RuntimeStateName(RuntimeState::kDraining), "Draining");
}

// Where a lifecycle can be, and what was done to get it there.
void Bring(RuntimeLifecycle& lifecycle, RuntimeState state) {
  if (state == RuntimeState::kIdle) return;
  lifecycle.BeginStart();
  if (state == RuntimeState::kStarting) return;
  if (state == RuntimeState::kFailed) return lifecycle.Fail(Status::Internal("cause 1"));
  lifecycle.FinishStart();
  if (state == RuntimeState::kRunning) return;
  lifecycle.BeginDraining(Status::Unknown("peer's wish"));
  if (state == RuntimeState::kDraining) return;
  lifecycle.FinishDraining();
}

TEST(RuntimeLifecycle, EveryState_RefusesTensorsWithItsOwnText) {
  const std::vector<std::pair<RuntimeState, std::string>> refusals = {
      {RuntimeState::kIdle, "use hvd.init()"},
      {RuntimeState::kStarting, "use hvd.init()"},
      {RuntimeState::kRunning, ""},
      {RuntimeState::kDraining, "peer's wish"},
      {RuntimeState::kStopped, "peer's wish"},
      {RuntimeState::kFailed, "cause 1"}};
  for (const auto& [state, text] : refusals) {
    RuntimeLifecycle lifecycle(Clock::Real());
    Bring(lifecycle, state);
    EXPECT_EQ(lifecycle.state(), state);
    EXPECT_EQ(lifecycle.Refusal().ok(), text.empty());
    EXPECT_NE(lifecycle.Refusal().message().find(text), std::string::npos) << lifecycle.Refusal();
  }
}

TEST(RuntimeLifecycle, Fail_InEveryState_KeepsTheFirstAndSparesTheStopped) {
  for (const RuntimeState state : kStates) {
    RuntimeLifecycle lifecycle(Clock::Real());
    Bring(lifecycle, state);
    lifecycle.Fail(Status::Aborted("cause 2"));
    lifecycle.Fail(Status::Aborted("cause 3"));
    if (state == RuntimeState::kStopped) {
      EXPECT_EQ(lifecycle.state(), RuntimeState::kStopped);
      EXPECT_TRUE(lifecycle.failure().ok());
    } else {
      EXPECT_EQ(lifecycle.state(), RuntimeState::kFailed);
      EXPECT_EQ(lifecycle.failure().message(),
                state == RuntimeState::kFailed ? "cause 1" : "cause 2");
    }
  }
}

TEST(RuntimeLifecycle, FailureWhileStarting_IsNotOverwrittenByTheStart) {
  RuntimeLifecycle lifecycle(Clock::Real());
  Bring(lifecycle, RuntimeState::kFailed);
  lifecycle.FinishStart();
  lifecycle.BeginDraining(Status::Unknown("peer's wish"));
  lifecycle.FinishDraining();
  lifecycle.AskToStop("late");
  EXPECT_EQ(lifecycle.state(), RuntimeState::kFailed);
  EXPECT_FALSE(lifecycle.StopRequested());
  EXPECT_EQ(lifecycle.Refusal().message(), "cause 1");
}

TEST(RuntimeLifecycle, StopRequest_IsTakenOnceAndTheFirstReasonCounts) {
  RuntimeLifecycle lifecycle(Clock::Real());
  Bring(lifecycle, RuntimeState::kRunning);
  EXPECT_FALSE(lifecycle.TakeStopRequest().has_value());
  lifecycle.AskToStop("reason A");
  lifecycle.AskToStop("reason B");
  EXPECT_EQ(lifecycle.state(), RuntimeState::kDraining);
  EXPECT_EQ(lifecycle.TakeStopRequest(), std::optional<std::string>("reason A"));
  EXPECT_FALSE(lifecycle.TakeStopRequest().has_value());
  EXPECT_EQ(lifecycle.Refusal().code(), StatusCode::kUnknown);
  EXPECT_NE(lifecycle.Refusal().message().find("Horovod has been shut down"), std::string::npos);
  EXPECT_NE(lifecycle.Refusal().message().find("reason A"), std::string::npos);
}

TEST(RuntimeLifecycle, StopRequest_WhileStarting_DrainsAsSoonAsItRuns) {
  RuntimeLifecycle lifecycle(Clock::Real());
  Bring(lifecycle, RuntimeState::kStarting);
  lifecycle.AskToStop("changed my mind");
  lifecycle.AskToStop("changed it again");
  EXPECT_TRUE(lifecycle.StopRequested());
  EXPECT_FALSE(lifecycle.TakeStopRequest().has_value()) << "nothing runs yet";
  lifecycle.FinishStart();
  EXPECT_EQ(lifecycle.state(), RuntimeState::kDraining);
  EXPECT_EQ(lifecycle.TakeStopRequest(), std::optional<std::string>("changed my mind"));
}

TEST(RuntimeLifecycle, StopRequest_BeforeStartAndAfterTheEnd_DoesNothing) {
  for (const RuntimeState state : {RuntimeState::kIdle, RuntimeState::kStopped}) {
    RuntimeLifecycle lifecycle(Clock::Real());
    Bring(lifecycle, state);
    lifecycle.AskToStop("out of season");
    EXPECT_EQ(lifecycle.state(), state);
    EXPECT_FALSE(lifecycle.StopRequested());
  }
}

TEST(RuntimeLifecycle, WaitUntilThreadEnded_EndsAtTheDeadlineOfItsClock) {
  FakeClock clock;
  RuntimeLifecycle lifecycle(clock);
  bool ended = true;
  const TimePoint deadline = clock.Now() + FromSeconds(3600);
  std::thread waiter([&] { ended = lifecycle.WaitUntilThreadEnded(deadline); });
  clock.Advance(FromSeconds(3601));
  waiter.join();
  EXPECT_FALSE(ended);
  lifecycle.MarkThreadEnded();
  EXPECT_TRUE(lifecycle.WaitUntilThreadEnded(deadline));
}

}  // namespace
}  // namespace horovod_tf
