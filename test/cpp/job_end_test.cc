#include "horovod_tf/common/runtime/job_end.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace horovod_tf {
namespace {

// What each member has been asked: "1: failed, text".
class JobEndTest : public testing::Test {
 protected:
  void Join(int set) {
    end_.Join(set, [this, set](const Status& why, bool failed) {
      asked_.push_back(std::to_string(set) + (failed ? " fails: " : " stops: ") + why.message());
    });
  }
  std::vector<std::string> asked_;
  JobEnd end_;
};

using Texts = std::vector<std::string>;

TEST_F(JobEndTest, AgreementOfTheJob_StopsItsSets) {
  for (const int set : {0, 1, 2}) Join(set);
  EXPECT_TRUE(end_.why().ok());
  end_.Ended(0, Status::Unknown("all"), false);
  EXPECT_EQ(asked_, (Texts{"1 stops: all", "2 stops: all"}));
  EXPECT_EQ(end_.why().message(), "all");
}

TEST_F(JobEndTest, AgreementOfASet_EndsNothingElse) {
  for (const int set : {0, 1, 2}) Join(set);
  end_.Ended(1, Status::Unknown("one"), false);
  EXPECT_EQ(asked_, Texts());
  EXPECT_TRUE(end_.why().ok());
}

TEST_F(JobEndTest, FirstFailure_IsTheJobs) {
  for (const int set : {0, 1, 2}) Join(set);
  end_.Ended(2, Status::Unknown("first"), true);
  end_.Ended(0, Status::Unknown("second"), true);
  EXPECT_EQ(asked_, (Texts{"0 fails: first", "1 fails: first"}));
  EXPECT_EQ(end_.why().message(), "first");
}

TEST_F(JobEndTest, FailureAfterAnAgreement_IsTold) {
  for (const int set : {0, 1}) Join(set);
  end_.Ended(0, Status::Unknown("agreed"), false);
  end_.Ended(1, Status::Unknown("failed"), true);
  EXPECT_EQ(asked_, (Texts{"1 stops: agreed", "0 fails: failed"}));
  EXPECT_EQ(end_.why().message(), "agreed");
}

TEST_F(JobEndTest, SetThatHasLeft_NeitherTellsNorIsTold) {
  for (const int set : {0, 1}) Join(set);
  end_.Leave(1);
  end_.Ended(1, Status::Unknown("gone"), true);
  EXPECT_TRUE(end_.why().ok());
  end_.Ended(0, Status::Unknown("all"), false);
  EXPECT_EQ(asked_, Texts());
}

TEST_F(JobEndTest, SetThatComesTooLate_IsToldAtOnce) {
  Join(0);
  end_.Ended(0, Status::Unknown("all"), true);
  Join(1);
  EXPECT_EQ(asked_, Texts{"1 fails: all"});
}

}  // namespace
}  // namespace horovod_tf
