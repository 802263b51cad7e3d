#include "horovod_tf/common/runtime/completion.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test/cpp/support/test_entry.h"

namespace horovod_tf {
namespace {

TEST(Completion, Finished_CallsBackOnceWithTheStatus) {
  auto outcome = std::make_shared<Outcome>();
  {
    Completion done = RecordIn(outcome);
    ASSERT_TRUE(done.pending());
    done.Finish(Status::NotFound("text 7"));
    EXPECT_FALSE(done.pending());
  }
  EXPECT_EQ(outcome->calls(), 1);
  EXPECT_EQ(outcome->status().ToString(), "NotFound: text 7");
}

TEST(Completion, Default_HasNothingToFinish) {
  Completion done;
  EXPECT_FALSE(done.pending());
  Completion other(std::move(done));
  EXPECT_FALSE(other.pending());
}

TEST(Completion, Dropped_IsFinishedWithAborted) {
  auto outcome = std::make_shared<Outcome>();
  { Completion done = RecordIn(outcome); }
  EXPECT_EQ(outcome->calls(), 1);
  EXPECT_EQ(outcome->status().code(), StatusCode::kAborted);
  EXPECT_NE(outcome->status().message().find("dropped before it was finished"), std::string::npos);
}

TEST(Completion, MovedFrom_LeavesTheDutyToTheNewOwner) {
  auto outcome = std::make_shared<Outcome>();
  Completion target;
  {
    Completion source = RecordIn(outcome);
    Completion middle(std::move(source));
    EXPECT_FALSE(source.pending());  // NOLINT(bugprone-use-after-move): that is the subject
    target = std::move(middle);
    EXPECT_FALSE(middle.pending());  // NOLINT(bugprone-use-after-move)
  }
  EXPECT_EQ(outcome->calls(), 0);
  target.Finish(Status::Ok());
  EXPECT_EQ(outcome->calls(), 1);
  EXPECT_TRUE(outcome->status().ok());
}

TEST(Completion, AssignedOver_FinishesTheOldWithAbortedAndKeepsTheNew) {
  auto old_outcome = std::make_shared<Outcome>();
  auto new_outcome = std::make_shared<Outcome>();
  Completion done = RecordIn(old_outcome);
  done = RecordIn(new_outcome);
  EXPECT_EQ(old_outcome->calls(), 1);
  EXPECT_EQ(old_outcome->status().code(), StatusCode::kAborted);
  EXPECT_EQ(new_outcome->calls(), 0);
  done.Finish(Status::Ok());
  EXPECT_EQ(new_outcome->calls(), 1);
  EXPECT_EQ(old_outcome->calls(), 1);
}

TEST(Completion, AssignedToItself_KeepsItsDuty) {
  auto outcome = std::make_shared<Outcome>();
  Completion done = RecordIn(outcome);
  Completion& same = done;
  done = std::move(same);
  EXPECT_TRUE(done.pending());
  EXPECT_EQ(outcome->calls(), 0);
  done.Finish(Status::Ok());
  EXPECT_EQ(outcome->calls(), 1);
}

TEST(Completion, HookAdded_RunsOnceAndBeforeTheCallback) {
  std::vector<std::string> order;
  Completion done([&](const Status& status) { order.push_back("callback " + status.ToString()); });
  done.AddBefore([&] { order.push_back("before"); });
  Completion moved(std::move(done));
  moved.Finish(Status::Ok());
  EXPECT_EQ(order, (std::vector<std::string>{"before", "callback OK"}));
}

TEST(Completion, DroppedWithHook_RunsTheHookFirst) {
  std::vector<std::string> order;
  {
    Completion done([&](const Status&) { order.push_back("callback"); });
    done.AddBefore([&] { order.push_back("before"); });
  }
  EXPECT_EQ(order, (std::vector<std::string>{"before", "callback"}));
}

TEST(Completion, CallbackThrows_IsReportedOnStderrAndGoesNoFurther) {
  Completion standard([](const Status&) { throw std::runtime_error("kaputt 3"); });
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(standard.Finish(Status::Ok()));
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("kaputt 3"), std::string::npos) << text;
  EXPECT_FALSE(standard.pending());
}

TEST(Completion, CallbackThrowsForeignTypeWhenDropped_IsReportedAndGoesNoFurther) {
  testing::internal::CaptureStderr();
  {
    Completion foreign([](const Status&) { throw 17; });
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("not derived from std::exception"), std::string::npos) << text;
}

TEST(Completion, MovedToAnotherThread_IsFinishedThere) {
  auto outcome = std::make_shared<Outcome>();
  std::thread::id finished_on;
  Completion done([&, outcome](const Status& status) {
    finished_on = std::this_thread::get_id();
    outcome->Record(status);
  });
  std::thread other([moved = std::move(done)]() mutable { moved.Finish(Status::Ok()); });
  const std::thread::id other_id = other.get_id();
  other.join();
  EXPECT_EQ(finished_on, other_id);
  EXPECT_EQ(outcome->calls(), 1);
}

TEST(Completion, CallbackAssignsANewOneToTheSameObject_KeepsTheNewOne) {
  auto outcome = std::make_shared<Outcome>();
  Completion done;
  done = Completion([&](const Status&) { done = RecordIn(outcome); });
  done.Finish(Status::Ok());
  EXPECT_EQ(outcome->calls(), 0);
  ASSERT_TRUE(done.pending());
  done.Finish(Status::Cancelled("second round"));
  EXPECT_EQ(outcome->calls(), 1);
}

TEST(CompletionDeathTest, FinishedTwice_StopsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Completion done([](const Status&) {});
  done.Finish(Status::Ok());
  EXPECT_DEATH(done.Finish(Status::Ok()), "finished once");
}

}  // namespace
}  // namespace horovod_tf
