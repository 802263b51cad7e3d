// The fault sweep: every transport call of every rank fails once, in a job of its own. Nothing may
// hang, be called twice, or keep the reason to itself.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "test/cpp/support/fault_transport.h"
#include "test/cpp/support/local_cluster.h"

namespace horovod_tf {
namespace {

struct Fault {
  int ranks;
  int rank;
  FaultPlan plan;
};

// What all texts about the fault contain.
std::string CauseText(const Fault& fault) {
  return fault.plan.action == FaultAction::kFail ? "planned fault" : "cannot read a message from";
}

std::vector<TestSpec> Specs(int ranks) {
  TestSpec sum{"sum"};
  sum.elements = 33;
  TestSpec whole{"whole", CollectiveKind::kAllreduce, DataType::kInt64};
  TestSpec rows{"rows", CollectiveKind::kAllgather, DataType::kInt32};
  TestSpec root{"root", CollectiveKind::kBroadcast, DataType::kInt64};
  root.root = ranks - 1;
  const TestSpec exchanged{"exchanged", CollectiveKind::kAlltoall, DataType::kInt32};
  const TestSpec shared{"shared", CollectiveKind::kReducescatter, DataType::kInt64};
  return {sum, whole, rows, root, exchanged, shared};
}

class Scenario {
 public:
  explicit Scenario(const Fault& fault)
      : fault_(fault), counters_(std::make_shared<FaultCounters>()) {}

  // Two steps of mixed collectives, the second by id, then a shutdown of all. Returns whether the
  // fault happened.
  bool Run() {
    ClusterOptions options{OneHost(fault_.ranks), TestConfig(), {}, {}};
    options.wrap = [this](int rank, std::unique_ptr<Transport> inner) {
      if (rank != fault_.rank) return inner;
      return MakeFaultTransport(std::move(inner), fault_.plan, counters_);
    };
    LocalCluster cluster(options);
    const std::vector<Status> started = cluster.Start();
    for (int step = 0; step < 2; ++step) {
      const std::size_t first = tensors_.size();
      for (const TestSpec& spec : Specs(fault_.ranks)) {
        for (TestTensorPtr& tensor : cluster.SubmitOnAll(spec)) tensors_.push_back(tensor);
      }
      for (std::size_t i = first; i < tensors_.size(); ++i) {
        if (!tensors_[i]->Wait()) ADD_FAILURE() << "a tensor hangs";
      }
    }
    const bool before_stop = counters_->faults > 0;
    (void)cluster.Stop("the scenario is over");
    for (int rank = 0; rank < fault_.ranks; ++rank) Judge(cluster.rank(rank), rank, before_stop);
    const bool happened = counters_->faults > 0;
    for (const TestTensorPtr& tensor : tensors_) JudgeTensor(*tensor, happened);
    if (!happened) {
      for (const Status& status : started) EXPECT_TRUE(status.ok()) << status;
    }
    return happened;
  }

 private:
  void Judge(Runtime& runtime, int rank, bool before_stop) {
    const RuntimeState state = runtime.state();
    EXPECT_TRUE(state == RuntimeState::kFailed || state == RuntimeState::kStopped)
        << "rank " << rank << " is " << RuntimeStateName(state);
    // A fault in the last messages may come too late for ranks that have stopped already.
    if (before_stop) {
      EXPECT_EQ(state, RuntimeState::kFailed) << "rank " << rank;
    }
    if (state != RuntimeState::kFailed) return;
    EXPECT_NE(runtime.failure().message().find(CauseText(fault_)), std::string::npos)
        << "rank " << rank << ": " << runtime.failure();
  }

  void JudgeTensor(const TestTensor& tensor, bool happened) {
    EXPECT_EQ(tensor.calls(), 1);
    if (happened && !tensor.status().ok()) {
      EXPECT_TRUE(tensor.FailedWith(CauseText(fault_)));
    } else {
      EXPECT_TRUE(tensor.Correct());
    }
  }

  const Fault fault_;
  const std::shared_ptr<FaultCounters> counters_;
  std::vector<TestTensorPtr> tensors_;
};

// For every k until a job has fewer calls than that.
void Sweep(int ranks, FaultAction action) {
  for (int rank = 0; rank < ranks; ++rank) {
    // How announcements are batched varies a little from run to run, and with it the number of
    // calls.
    int k = 1;
    int without_fault = 0;
    for (; without_fault < 3; ++k) {
      ASSERT_LT(k, 200) << "a job of so few collectives has fewer calls";
      const Fault fault{ranks, rank, FaultPlan{FaultCall::kAny, k, action, {}}};
      SCOPED_TRACE(std::to_string(ranks) + " ranks, rank " + std::to_string(rank) + ", call " +
                   std::to_string(k));
      without_fault = Scenario(fault).Run() ? 0 : without_fault + 1;
      LocalCluster second(2);
      ASSERT_TRUE(second.Started());
      ASSERT_TRUE(second.Works(TestSpec{"afterwards"}));
      if (::testing::Test::HasFailure()) return;
    }
    // Hello and Welcome, the announcements and logs of two steps, and the shutdown.
    EXPECT_GE(k, 7) << "the sweep did not reach the end of the job";
  }
}

TEST(FaultSweep, EveryCallOfTwoRanks_Fails) { Sweep(2, FaultAction::kFail); }
TEST(FaultSweep, EveryCallOfThreeRanks_Fails) { Sweep(3, FaultAction::kFail); }
TEST(FaultSweep, EveryMessageOfTwoRanks_IsCutShort) { Sweep(2, FaultAction::kTruncate); }
TEST(FaultSweep, EveryMessageOfThreeRanks_IsCutShort) { Sweep(3, FaultAction::kTruncate); }

TEST(FaultSweep, EveryMessageOfThreeRanks_IsLate) {
  for (int rank = 0; rank < 3; ++rank) {
    for (int k = 1; k <= 8; ++k) {
      FaultPlan plan{FaultCall::kAny, k, FaultAction::kDelay, FromSeconds(0.003)};
      LocalCluster cluster(ClusterOptions{OneHost(3),
                                          TestConfig(),
                                          [&](int r, std::unique_ptr<Transport> inner) {
                                            return r == rank
                                                       ? MakeFaultTransport(std::move(inner), plan)
                                                       : std::move(inner);
                                          },
                                          {}});
      ASSERT_TRUE(cluster.Started());
      for (const TestSpec& spec : Specs(3)) ASSERT_TRUE(cluster.Works(spec));
      for (const Status& status : cluster.Stop()) EXPECT_TRUE(status.ok()) << status;
    }
  }
}

}  // namespace
}  // namespace horovod_tf
