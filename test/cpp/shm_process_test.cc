// The shared-memory backend between processes: the contract, and what happens when one of them
// dies, stops or leaves.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "test/cpp/contract/backend_contract.h"
#include "test/cpp/support/cpu_share.h"
#include "test/cpp/support/forked_ranks.h"

namespace horovod_tf {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

class ForkedWorld final : public ContractWorld {
 public:
  explicit ForkedWorld(int size) : ranks_(size, 16384) {}
  void Run(const std::function<void(ContractRank&)>& fn) override {
    ranks_.Start([&fn](ContractRank& rank) {
      fn(rank);
      return 0;
    });
    for (int rank = 0; rank < ranks_.size(); ++rank) EXPECT_EQ(ranks_.Wait(rank), 0) << rank;
  }

 private:
  ForkedRanks ranks_;
};

HVD_INSTANTIATE_BACKEND_CONTRACT(ShmProcesses,
                                 testing::Values(ContractWorldFactory{
                                     "forked",
                                     [](int size) { return std::make_unique<ForkedWorld>(size); }}),
                                 testing::Values(3));

// An allreduce of floats in place.
Status Sum(ContractRank& rank, std::vector<float>* data) {
  const TensorView view{
      DataType::kFloat32, {static_cast<std::int64_t>(data->size())}, data->data()};
  Batch batch;
  batch.tensors.push_back({"gradient", view, view, {}});
  return rank.Run(batch);
}

constexpr int kFailedAsExpected = 7;

// Sums until it fails; says whether it fails as it should, and keeps failing.
int SumUntilBlamed(ContractRank& rank, std::size_t elements, int blamed) {
  std::vector<float> data(elements, 0.0F);
  const std::string expected = "Unknown: rank " + std::to_string(blamed) +
                               " ended in the middle of an operation over shared memory";
  while (true) {
    const Status status = Sum(rank, &data);
    if (status.ok()) continue;
    EXPECT_EQ(status.ToString().substr(0, expected.size()), expected);
    EXPECT_EQ(Sum(rank, &data).ToString(), status.ToString());
    return kFailedAsExpected;
  }
}

void KillOne(int size, int victim, std::size_t elements) {
  SCOPED_TRACE("of " + std::to_string(size) + " ranks rank " + std::to_string(victim));
  ForkedRanks ranks(size, 256 << 10);
  ranks.Start([&](ContractRank& rank) { return SumUntilBlamed(rank, elements, victim); });
  std::this_thread::sleep_for(milliseconds(100));
  ranks.Signal(victim, SIGKILL);
  const auto start = steady_clock::now();
  EXPECT_EQ(ranks.Wait(victim), 1000 + SIGKILL);
  for (int rank = 0; rank < size; ++rank) {
    if (rank != victim) {
      EXPECT_EQ(ranks.Wait(rank), kFailedAsExpected) << rank;
    }
  }
  EXPECT_LT(steady_clock::now() - start, seconds(5));
}

TEST(ShmProcesses, ARankIsKilledInALargeReduction_TheOthersNameIt) {
  for (int size : {2, 3, 4}) {
    for (int victim = 0; victim < size; ++victim) KillOne(size, victim, std::size_t{16} << 20);
  }
}

TEST(ShmProcesses, ARankIsKilledAmongSmallReductions_TheOthersNameIt) {
  for (int size : {2, 4}) {
    for (int victim = 0; victim < size; ++victim) KillOne(size, victim, 10);
  }
}

TEST(ShmProcesses, ARankIsKilledWhileTheOthersWaitForIt_TheyNameIt) {
  ForkedRanks ranks(3, 4096);
  ranks.Start([](ContractRank& rank) {
    if (rank.rank == 1) std::this_thread::sleep_for(seconds(60));
    return SumUntilBlamed(rank, 100, 1);
  });
  std::this_thread::sleep_for(milliseconds(300));  // long asleep
  ranks.Signal(1, SIGKILL);
  const auto start = steady_clock::now();
  EXPECT_EQ(ranks.Wait(0), kFailedAsExpected);
  EXPECT_EQ(ranks.Wait(2), kFailedAsExpected);
  EXPECT_LT(steady_clock::now() - start, seconds(5));
}

// Whoever has done its part may be gone, however late the others are.
TEST(ShmProcesses, ARankLeavesAfterItsPart_NobodyMissesIt) {
  ForkedRanks ranks(3, 4096);
  ranks.StartMembers([](ShmMembership membership) {
    ShmMeeting meeting(std::move(membership));
    ContractContext context(ForkedRanks::Deadline());
    if (meeting.rank() == 2) std::this_thread::sleep_for(milliseconds(400));
    meeting.Publish(0);
    if (meeting.rank() == 0) return 0;
    const Status status = meeting.AwaitPublished(0, context);
    EXPECT_TRUE(status.ok()) << "rank " << meeting.rank() << ": " << status;
    meeting.Release(0);
    // That one it has not done.
    const Status missed = meeting.AwaitReleased(0, context);
    EXPECT_EQ(missed.message().substr(0, 12), "rank 0 ended") << missed;
    return 0;
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.Wait(rank), 0) << rank;
}

TEST(ShmProcesses, ARankIsStoppedForAWhile_TheOthersWaitForAlmostNothing) {
  ForkedRanks ranks(2, 64 << 10);
  ranks.Start([](ContractRank& rank) {
    std::vector<float> data(std::size_t{1} << 20, 1.0F);
    EXPECT_TRUE(Sum(rank, &data).ok());
    if (rank.rank == 1) raise(SIGSTOP);
    const CpuShare share(CLOCK_THREAD_CPUTIME_ID);
    data.assign(data.size(), 1.0F);
    EXPECT_TRUE(Sum(rank, &data).ok());
    if (rank.rank == 0) {
      EXPECT_LT(share.Value(), 0.25);
    }
    EXPECT_EQ(data, std::vector<float>(data.size(), 2.0F));
    return 0;
  });
  std::this_thread::sleep_for(seconds(1));
  ranks.Signal(1, SIGCONT);
  EXPECT_EQ(ranks.Wait(0), 0);
  EXPECT_EQ(ranks.Wait(1), 0);
}

}  // namespace
}  // namespace horovod_tf
