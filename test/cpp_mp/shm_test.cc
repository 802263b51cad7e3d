// Shared memory between the ranks of a real launcher: joining by MPI's exchange, then the contract.
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "horovod_tf/common/collectives/shm_backend.h"
#include "horovod_tf/common/mpi/mpi_exchange.h"
#include "horovod_tf/common/mpi/mpi_world.h"
#include "horovod_tf/common/shm/shm_join.h"
#include "horovod_tf/common/transport/shm_transport.h"
#include "test/cpp/contract/backend_contract.h"
#include "test/cpp/contract/transport_contract.h"

namespace horovod_tf {
namespace {

constexpr std::chrono::seconds kDeadline{60};

std::unique_ptr<RankExchange> NewExchange() {
  std::shared_ptr<MpiWorld> world;
  StartProgress progress(FromNow(kDeadline));
  const Status status = MpiWorld::Open(Config::Defaults(), progress, &world);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::abort();
  }
  return MakeMpiExchange(std::move(world), FromNow(kDeadline));
}

ShmOptions OptionsOf(std::size_t chunk_bytes) {
  ShmOptions options;
  options.chunk_bytes = chunk_bytes;
  options.host = "this one";
  return options;
}

// This process's rank of the job.
class ProcessWorld final : public ContractWorld {
 public:
  explicit ProcessWorld(std::size_t chunk_bytes) {
    const std::unique_ptr<RankExchange> exchange = NewExchange();
    ShmMembership membership;
    Status reason;
    const Status status = JoinShm(*exchange, OptionsOf(chunk_bytes), &membership, &reason);
    if (!status.ok() || !reason.ok()) {
      std::fprintf(stderr, "%s, %s\n", status.ToString().c_str(), reason.ToString().c_str());
      std::abort();
    }
    rank_ = membership.rank;
    backend_ = MakeShmBackend(std::move(membership));
  }

  void Run(const std::function<void(ContractRank&)>& fn) override {
    const Watchdog watchdog(kDeadline, "rank " + std::to_string(rank_) + " of a contract test");
    ContractContext context(std::chrono::steady_clock::now() + kDeadline);
    std::thread thread([&] {
      ContractRank rank{rank_, *backend_, context};
      fn(rank);
    });
    thread.join();
  }

 private:
  int rank_ = 0;
  std::unique_ptr<CollectiveBackend> backend_;
};

std::vector<std::unique_ptr<Transport>> MakeEndpoint() {
  const std::unique_ptr<RankExchange> exchange = NewExchange();
  ShmMembership membership;
  Status reason;
  const Status status = JoinShm(*exchange, OptionsOf(4096), &membership, &reason);
  EXPECT_TRUE(status.ok() && reason.ok()) << status << reason;
  std::vector<std::unique_ptr<Transport>> endpoints;
  endpoints.push_back(MakeShmTransport("this one", std::move(membership), {}));
  return endpoints;
}

int WorldSize() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

HVD_INSTANTIATE_BACKEND_CONTRACT(Shm,
                                 testing::Values(ContractWorldFactory{
                                     "shm",
                                     [](int) { return std::make_unique<ProcessWorld>(4096); }}),
                                 testing::Values(WorldSize()));

INSTANTIATE_TEST_SUITE_P(Shm, TransportContract,
                         testing::Values(TransportFactory{"shm", WorldSize(), MakeEndpoint}),
                         [](const auto& instance) { return instance.param.name; });

TEST(MpiExchange, BytesOfDifferentLengths_AreTheSameEverywhere) {
  const std::unique_ptr<RankExchange> exchange = NewExchange();
  for (std::size_t round = 0; round < 5; ++round) {
    const auto text = [round](int rank) {
      return std::string(static_cast<std::size_t>(rank) * 100 * round,
                         static_cast<char>('a' + rank));
    };
    std::vector<std::string> all;
    ASSERT_TRUE(exchange->Gather(text(exchange->rank()), &all).ok());
    ASSERT_EQ(all.size(), static_cast<std::size_t>(exchange->size()));
    for (int rank = 0; rank < exchange->size(); ++rank) {
      EXPECT_EQ(all[static_cast<std::size_t>(rank)], text(rank));
    }
  }
}

TEST(ShmJoin, OneRankCannot_AllStayWithMpi) {
  const std::unique_ptr<RankExchange> exchange = NewExchange();
  const int last = exchange->size() - 1;
  ShmOptions options = OptionsOf(4096);
  options.disable = exchange->rank() == last;
  ShmMembership membership;
  Status reason;
  ASSERT_TRUE(JoinShm(*exchange, options, &membership, &reason).ok());
  EXPECT_EQ(reason.ToString(),
            "Unimplemented: rank " + std::to_string(last) + ": HOROVOD_TF_SHM_DISABLE is set");
  EXPECT_EQ(membership.segment, nullptr);
}

TEST(ShmJoin, PeersProcesses_CanBeWatched) {
  const std::unique_ptr<RankExchange> exchange = NewExchange();
  ShmMembership membership;
  Status reason;
  ASSERT_TRUE(JoinShm(*exchange, OptionsOf(4096), &membership, &reason).ok());
  ASSERT_TRUE(reason.ok()) << reason;
  for (int rank = 0; rank < exchange->size(); ++rank) {
    EXPECT_EQ(membership.processes->watches(rank), rank != exchange->rank());
  }
}

}  // namespace
}  // namespace horovod_tf
