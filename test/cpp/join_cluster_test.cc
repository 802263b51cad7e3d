// Whole jobs, N ranks as N runtimes in one process, whose ranks run out of data.
#include <gtest/gtest.h>

#include <thread>

#include "test/cpp/support/local_cluster.h"

namespace horovod_tf {
namespace {

// A join, or a reduction or gather of floats; the outcome is waited for.
class Submission final : public OpContext, public std::enable_shared_from_this<Submission> {
 public:
  TensorEntry Join() {
    TensorEntry entry = Common(std::string(kJoinName));
    entry.joins = true;
    entry.output = {DataType::kInt32, {}, &last_rank};
    return entry;
  }
  TensorEntry Average(const std::string& name, float mine, std::int64_t elements) {
    values.assign(static_cast<std::size_t>(elements), mine);
    TensorEntry entry = Common(name);
    entry.request.reduce_op = ReduceOp::kAverage;
    entry.request.shape = {elements};
    entry.input = entry.output = {DataType::kFloat32, {elements}, values.data()};
    return entry;
  }
  TensorEntry Gather(const std::string& name, float mine, std::int64_t rows, ReduceOp op) {
    values.assign(static_cast<std::size_t>(rows), mine);
    TensorEntry entry = Common(name);
    entry.request.kind = CollectiveKind::kAllgather;
    entry.request.reduce_op = op;
    entry.request.shape = {rows};
    entry.input = {DataType::kFloat32, {rows}, values.data()};
    return entry;
  }

  Status Wait() {
    const TimePoint deadline = TestDeadline();
    MutexLock lock(mutex_);
    while (!ended_) {
      if (Clock::Real().Now() >= deadline) return Status::DeadlineExceeded("the test's deadline");
      changed_.WaitUntil(mutex_, deadline);
    }
    return status_;
  }

  Status AllocateOutput(const TensorShape& shape, TensorView* output) override {
    gathered.assign(static_cast<std::size_t>(shape.elements()), -1.0F);
    *output = {DataType::kFloat32, shape, gathered.data()};
    return Status::Ok();
  }

  std::int32_t last_rank = -1;
  std::vector<float> values;
  std::vector<float> gathered;

 private:
  TensorEntry Common(const std::string& name) {
    TensorEntry entry;
    entry.request.name = name;
    entry.ticket = 7;
    entry.context = shared_from_this();
    entry.done = Completion([self = shared_from_this()](const Status& status) {
      MutexLock lock(self->mutex_);
      self->ended_ = true;
      self->status_ = status;
      self->changed_.NotifyAll();
    });
    return entry;
  }

  Mutex mutex_;
  CondVar changed_;
  bool ended_ HVD_GUARDED_BY(mutex_) = false;
  Status status_ HVD_GUARDED_BY(mutex_);
};
using SubmissionPtr = std::shared_ptr<Submission>;

SubmissionPtr StartJoin(Runtime& runtime) {
  auto join = std::make_shared<Submission>();
  runtime.Enqueue(Group(join->Join()));
  return join;
}

class JoinCluster : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, JoinCluster, testing::Values(1, 2, 3, 5));

// Rank r has 6 - r steps. All names again in a second round, after the join.
TEST_P(JoinCluster, UnevenNumbersOfSteps_MeansOverThoseThatHaveData) {
  const int size = GetParam();
  LocalCluster cluster(size);
  ASSERT_TRUE(cluster.Started());
  for (int round = 0; round < 2; ++round) {
    OnEveryRank(size, [&](int rank) {
      for (int step = 0; step < 6 - rank; ++step) {
        const int present = std::min(size, 6 - step);  // ranks 0 to present - 1
        const auto average = std::make_shared<Submission>();
        const auto rows = std::make_shared<Submission>();
        const auto means = std::make_shared<Submission>();
        Runtime& runtime = cluster.rank(rank);
        const auto mine = static_cast<float>(2 * rank + step);
        runtime.Enqueue(Group(average->Average("average", mine, 1000 * step)));
        runtime.Enqueue(Group(rows->Gather("rows", mine, rank + 1, ReduceOp::kSum)));
        runtime.Enqueue(Group(means->Gather("means", mine, 1, ReduceOp::kAverage)));
        for (const auto& submission : {average, rows, means}) {
          const Status status = submission->Wait();
          ASSERT_TRUE(status.ok()) << status;
        }
        for (const float value : average->values) {
          ASSERT_EQ(value, static_cast<float>(present - 1 + step));
        }
        ASSERT_EQ(rows->gathered.size(), static_cast<std::size_t>(present * (present + 1) / 2));
        ASSERT_EQ(rows->gathered.back(), static_cast<float>(2 * (present - 1) + step));
        ASSERT_EQ(means->gathered.size(), static_cast<std::size_t>(present));
        ASSERT_EQ(means->gathered.front(), static_cast<float>(step) / static_cast<float>(present));
      }
      const auto join = StartJoin(cluster.rank(rank));
      const Status status = join->Wait();
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_GE(join->last_rank, 0);
      ASSERT_LT(join->last_rank, size);
    });
  }
  TestSpec after;
  after.name = "after";
  EXPECT_TRUE(cluster.Works(after));
  for (const Status& status : cluster.Stop()) EXPECT_TRUE(status.ok()) << status;
}

TEST(JoinOfRuntimes, TwiceAtOnce_IsRefused) {
  LocalCluster cluster(2);
  ASSERT_TRUE(cluster.Started());
  const auto first = StartJoin(cluster.rank(0));
  const auto second = StartJoin(cluster.rank(0));
  const Status refused = second->Wait();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("join() was called while another join()"), std::string::npos);
  const auto other = StartJoin(cluster.rank(1));
  EXPECT_TRUE(first->Wait().ok());
  EXPECT_TRUE(other->Wait().ok());
  EXPECT_EQ(first->last_rank, other->last_rank);
}

TEST(JoinOfRuntimes, Cancelled_TakesPartAgain) {
  LocalCluster cluster(2);
  ASSERT_TRUE(cluster.Started());
  const auto join = StartJoin(cluster.rank(1));
  const auto alone = std::make_shared<Submission>();
  cluster.rank(0).Enqueue(Group(alone->Average("alone", 3.0F, 10)));
  EXPECT_TRUE(alone->Wait().ok());
  EXPECT_EQ(alone->values.front(), 3.0F);
  cluster.rank(1).Withdraw(7, "a test");
  EXPECT_EQ(join->Wait().code(), StatusCode::kCancelled);
  TestSpec after;
  after.name = "after";
  EXPECT_TRUE(cluster.Works(after));
}

TEST(JoinOfRuntimes, RankThatStops_EndsTheJoinOfTheOthers) {
  LocalCluster cluster(3);
  ASSERT_TRUE(cluster.Started());
  const auto join = StartJoin(cluster.rank(1));
  EXPECT_TRUE(cluster.rank(2).Stop("it has had enough").ok());
  const Status status = join->Wait();
  EXPECT_NE(status.message().find("rank 2 asked for it (it has had enough)"), std::string::npos)
      << status;
}

TEST(JoinOfRuntimes, Status_SaysWhoHasNotJoined) {
  LocalCluster cluster(3);
  ASSERT_TRUE(cluster.Started());
  const auto join = StartJoin(cluster.rank(1));
  std::string text;
  const TimePoint deadline = TestDeadline();
  while (text.find("[missing ranks: 0, 2]") == std::string::npos) {
    ASSERT_LT(Clock::Real().Now(), deadline) << text;
    text = cluster.rank(1).Describe();
  }
  EXPECT_NE(text.find(kJoinName), std::string::npos) << text;
  cluster.Stop();
  EXPECT_FALSE(join->Wait().ok());
}

}  // namespace
}  // namespace horovod_tf
