#include "horovod_tf/common/base/status.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "horovod_tf/common/base/check.h"

namespace horovod_tf {
namespace {

TEST(Status, DefaultConstructed_IsOkWithoutText) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.ToString(), "OK");
  EXPECT_TRUE(Status::Ok().ok());
}

TEST(Status, EachFactory_GivesItsCodeNumberAndName) {
  struct Row {
    Status status;
    int number;  // TensorFlow's
    std::string text;
  };
  const std::vector<Row> rows = {
      {Status::Cancelled("m1"), 1, "Cancelled: m1"},
      {Status::Unknown("m2"), 2, "Unknown: m2"},
      {Status::InvalidArgument("m3"), 3, "InvalidArgument: m3"},
      {Status::DeadlineExceeded("m4"), 4, "DeadlineExceeded: m4"},
      {Status::NotFound("m5"), 5, "NotFound: m5"},
      {Status::ResourceExhausted("m8"), 8, "ResourceExhausted: m8"},
      {Status::FailedPrecondition("m9"), 9, "FailedPrecondition: m9"},
      {Status::Aborted("m10"), 10, "Aborted: m10"},
      {Status::Unimplemented("m12"), 12, "Unimplemented: m12"},
      {Status::Internal("m13"), 13, "Internal: m13"},
      {Status::Unavailable("m14"), 14, "Unavailable: m14"},
  };
  for (const Row& row : rows) {
    EXPECT_FALSE(row.status.ok()) << row.text;
    EXPECT_EQ(static_cast<int>(row.status.code()), row.number) << row.text;
    EXPECT_EQ(row.status.ToString(), row.text);
    EXPECT_EQ(row.status.message(), "m" + std::to_string(row.number));
  }
}

TEST(Status, CodeFromInt_KnowsExactlyTheCodesOfTheTable) {
  const std::vector<int> known = {0, 1, 2, 3, 4, 5, 8, 9, 10, 12, 13, 14};
  std::vector<int> found;
  for (int value = -300; value <= 300; ++value) {
    const std::optional<StatusCode> code = StatusCodeFromInt(value);
    if (!code.has_value()) continue;
    EXPECT_EQ(static_cast<int>(*code), value);
    found.push_back(value);
  }
  EXPECT_EQ(found, known);
}

TEST(Status, FromCode_GivesThatCode) {
  const Status status = Status::FromCode(StatusCode::kNotFound, "rank 3");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "rank 3");
}

TEST(StatusDeathTest, FromCodeWithOk_IsAnInvariantOfOurs) {
  EXPECT_DEATH(static_cast<void>(Status::FromCode(StatusCode::kOk, "x")),
               "an error needs an error code");
}

TEST(Status, WithContext_PutsThePrefixBeforeTheTextAndKeepsTheCode) {
  const Status status = Status::Aborted("peer 2 left").WithContext("tensor a");
  EXPECT_EQ(status.ToString(), "Aborted: tensor a: peer 2 left");
  EXPECT_TRUE(Status().WithContext("tensor a").ok());
}

TEST(Status, Copies_ShareTheTextAndOutliveTheOriginal) {
  Status copy;
  {
    const Status original = Status::Internal("kept");
    copy = original;
    EXPECT_EQ(&copy.message(), &original.message());
  }
  EXPECT_EQ(copy.ToString(), "Internal: kept");
}

TEST(Status, ReturnIfError_ReturnsTheFirstErrorOnly) {
  int calls = 0;
  const auto run = [&calls](const Status& first, const Status& second) -> Status {
    HVD_RETURN_IF_ERROR(first);
    ++calls;
    HVD_RETURN_IF_ERROR(second);
    ++calls;
    return Status::Ok();
  };
  EXPECT_EQ(run(Status::NotFound("a"), Status::Internal("b")).message(), "a");
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(run(Status(), Status::Internal("b")).message(), "b");
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(run(Status(), Status()).ok());
  EXPECT_EQ(calls, 3);
}

TEST(Status, Stream_WritesCodeAndText) {
  std::ostringstream out;
  out << Status::Unknown("u") << " / " << Status();
  EXPECT_EQ(out.str(), "Unknown: u / OK");
}

TEST(CheckDeathTest, FailedCheck_AbortsAndNamesConditionAndText) {
  EXPECT_DEATH(HVD_CHECK(1 + 1 == 3, "sums are wrong"),
               "status_test.cc:[0-9]+: invariant broken: 1 \\+ 1 == 3 .sums are wrong.");
}

TEST(Check, HoldingCheck_EvaluatesItsConditionOnce) {
  int evaluated = 0;
  HVD_CHECK(++evaluated == 1, "evaluated twice");
  EXPECT_EQ(evaluated, 1);
}

}  // namespace
}  // namespace horovod_tf
