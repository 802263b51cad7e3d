// The contract suites, and what only MPI does, on real ranks.
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "horovod_tf/common/mpi/mpi_backend.h"
#include "horovod_tf/common/mpi/mpi_exchange.h"
#include "horovod_tf/common/mpi/mpi_transport.h"
#include "horovod_tf/common/mpi/mpi_world.h"
#include "horovod_tf/common/shm/shm_join.h"
#include "test/cpp/contract/backend_contract.h"
#include "test/cpp/contract/transport_contract.h"
#include "test/cpp/support/cpu_share.h"

namespace horovod_tf {
namespace {

constexpr std::chrono::seconds kDeadline{60};
constexpr std::chrono::seconds kHang{90};

int WorldSize() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

std::shared_ptr<MpiWorld> OpenWorld() {
  std::shared_ptr<MpiWorld> world;
  StartProgress progress(FromNow(kDeadline));
  const Status status = MpiWorld::Open(Config::Defaults(), progress, &world);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::abort();
  }
  return world;
}

// This process's rank of the job.
class ProcessWorld final : public ContractWorld {
 public:
  explicit ProcessWorld(std::size_t longest)
      : world_(OpenWorld()), backend_(MakeMpiBackend(world_, longest)) {}

  void Run(const std::function<void(ContractRank&)>& fn) override {
    const Watchdog watchdog(kHang,
                            "rank " + std::to_string(world_->rank()) + " of a contract test");
    ContractContext context(std::chrono::steady_clock::now() + kDeadline);
    std::thread thread([&] {
      ContractRank rank{world_->rank(), *backend_, context};
      fn(rank);
    });
    thread.join();
  }

 private:
  const std::shared_ptr<MpiWorld> world_;
  const std::unique_ptr<CollectiveBackend> backend_;
};

ContractWorldFactory Factory(const std::string& name, std::size_t longest) {
  return {name, [longest](int) { return std::make_unique<ProcessWorld>(longest); }};
}

// 1000 bytes: most of the suite's tensors go in several pieces, some with a rest.
HVD_INSTANTIATE_BACKEND_CONTRACT(Mpi,
                                 testing::Values(Factory("Whole", kLongestTransfer),
                                                 Factory("Pieces", 1000)),
                                 testing::Values(WorldSize()));

TransportFactory MakeTransportFactory() {
  return {"Mpi", WorldSize(), [] {
            std::vector<std::unique_ptr<Transport>> endpoints;
            endpoints.push_back(MakeMpiTransport(OpenWorld()));
            return endpoints;
          }};
}

INSTANTIATE_TEST_SUITE_P(Mpi, TransportContract, testing::Values(MakeTransportFactory()),
                         [](const auto& instance) { return instance.param.name; });

std::int64_t Own(int rank, std::size_t i) {
  return static_cast<std::int64_t>(i % 1013) * 7 + rank * 1000003;
}

// Larger than a segment, with parts of different lengths.
TEST(MpiBackend, AllreduceOfSeveralSegments_IsRightInPlaceAndNot) {
  const std::shared_ptr<MpiWorld> world = OpenWorld();
  const std::unique_ptr<CollectiveBackend> backend = MakeMpiBackend(world, 700001);
  const std::size_t elements = 1234567;
  const int size = world->size();
  for (bool in_place : {false, true}) {
    ContractContext context(std::chrono::steady_clock::now() + kDeadline);
    std::vector<std::int64_t> input(elements);
    std::vector<std::int64_t> output(elements, -1);
    for (std::size_t i = 0; i < elements; ++i) input[i] = Own(world->rank(), i);
    Batch batch;
    batch.dtype = DataType::kInt64;
    const TensorShape shape{static_cast<std::int64_t>(elements)};
    std::int64_t* const target = in_place ? input.data() : output.data();
    batch.tensors.push_back(
        {"large", {DataType::kInt64, shape, input.data()}, {DataType::kInt64, shape, target}, {}});
    const Status status = backend->Run(batch, context);
    ASSERT_TRUE(status.ok()) << status;
    for (std::size_t i = 0; i < elements; ++i) {
      const std::int64_t ranks = size * (size - 1) / 2;
      ASSERT_EQ(target[i], static_cast<std::int64_t>(i % 1013) * 7 * size + ranks * 1000003) << i;
      ASSERT_EQ(input[i], in_place ? target[i] : Own(world->rank(), i)) << i;
    }
  }
}

// Rows of an odd number of elements, and one more of them on the first rank.
TEST(MpiBackend, ReducescatterOfSeveralSegments_IsRightInEveryRow) {
  const std::shared_ptr<MpiWorld> world = OpenWorld();
  const std::unique_ptr<CollectiveBackend> backend = MakeMpiBackend(world, 700001);
  const int size = world->size();
  const std::int64_t columns = 777;
  const std::int64_t rows = 300 * size + 1;
  ContractContext context(std::chrono::steady_clock::now() + kDeadline);
  std::vector<std::int64_t> input(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = Own(world->rank(), i);
  const std::int64_t share = RowsOfShare(rows, world->rank(), size);
  std::vector<std::int64_t> output(static_cast<std::size_t>(share * columns), -1);
  Batch batch;
  batch.kind = CollectiveKind::kReducescatter;
  batch.dtype = DataType::kInt64;
  batch.tensors.push_back({"shared",
                           {DataType::kInt64, {rows, columns}, input.data()},
                           {DataType::kInt64, {share, columns}, output.data()},
                           {}});
  const Status status = backend->Run(batch, context);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(context.activities(), std::vector<std::string>{"MPI_REDUCESCATTER"});
  const auto first = static_cast<std::size_t>(BeginOfShare(rows, world->rank(), size) * columns);
  for (std::size_t i = 0; i < output.size(); ++i) {
    const std::int64_t ranks = size * (size - 1) / 2;
    ASSERT_EQ(output[i], static_cast<std::int64_t>((first + i) % 1013) * 7 * size + ranks * 1000003)
        << i;
  }
}

// A peer that never comes: the others leave when they hear that the job has failed.
TEST(MpiBackend, PeerThatNeverComes_IsLeftWhenInterrupted) {
  const std::shared_ptr<MpiWorld> world = OpenWorld();
  if (world->size() == 1) GTEST_SKIP() << "needs a peer";
  world->MarkFailed();
  const std::unique_ptr<CollectiveBackend> backend = MakeMpiBackend(world);
  for (const std::size_t elements : {std::size_t{8}, std::size_t{1} << 20}) {
    if (world->rank() == world->size() - 1) continue;
    ContractContext context(std::chrono::steady_clock::now() + kDeadline);
    std::thread interrupter([&context] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      context.Interrupt(Status::Aborted("rank 1 failed"));
    });
    std::vector<float> data(elements, 1.0F);
    Batch batch;
    const TensorShape shape{static_cast<std::int64_t>(elements)};
    batch.tensors.push_back({"lonely",
                             {DataType::kFloat32, shape, data.data()},
                             {DataType::kFloat32, shape, data.data()},
                             {}});
    const auto start = std::chrono::steady_clock::now();
    const Status status = backend->Run(batch, context);
    EXPECT_EQ(status.ToString(), Status::Aborted("rank 1 failed").ToString());
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    interrupter.join();
  }
}

// As the main thread does when a shutdown takes too long: the driving thread passes it on.
TEST(MpiTransport, AbortByAnotherThread_ReachesThePeers) {
  const std::unique_ptr<Transport> transport = MakeMpiTransport(OpenWorld());
  std::thread driver([&transport] {
    Incoming message;
    bool got = false;
    EXPECT_TRUE(transport->Receive(&message, &got).ok());
    const Status health = WaitForFailure(*transport);
    EXPECT_EQ(health.code(), StatusCode::kDeadlineExceeded) << health;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  if (transport->rank() == 0) transport->Abort(Status::DeadlineExceeded("too long"));
  driver.join();
}

// Nobody drives the endpoint any more: its end still tells the peers.
TEST(MpiTransport, AbortRightBeforeTheEnd_ReachesThePeers) {
  std::unique_ptr<Transport> transport = MakeMpiTransport(OpenWorld());
  if (transport->rank() == transport->size() - 1) {
    std::thread other([&transport] { transport->Abort(Status::Internal("the end")); });
    other.join();
    transport.reset();
    return;
  }
  const Status health = WaitForFailure(*transport);
  EXPECT_EQ(health.ToString(),
            Status::Internal("rank " + std::to_string(transport->size() - 1) + " failed: the end")
                .ToString());
}

TEST(MpiTransport, BusyPeer_CostsLittleWhileItsAnswerIsExpected) {
  const std::unique_ptr<Transport> transport = MakeMpiTransport(OpenWorld());
  const CpuShare share(CLOCK_THREAD_CPUTIME_ID);
  transport->Wait(FromNow(std::chrono::seconds(1)), Expectation::kAnswer);
  EXPECT_LT(share.Value(), 0.25);
}

TEST(MpiWorld, HostsOfThisMachine_AreEqualAndTheLibraryHasAName) {
  const std::shared_ptr<MpiWorld> world = OpenWorld();
  EXPECT_EQ(world->host().substr(world->host().rfind('#')), "#0");
  EXPECT_NE(world->library().find("MPI"), std::string::npos) << world->library();
  EXPECT_EQ(world->library().find('\n'), std::string::npos);
}

}  // namespace
}  // namespace horovod_tf
