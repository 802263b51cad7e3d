// The contract suites for groups of ranks, and groups that work at the same time.
#include <gtest/gtest.h>
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "horovod_tf/common/mpi/mpi_backend.h"
#include "horovod_tf/common/mpi/mpi_group.h"
#include "horovod_tf/common/mpi/mpi_transport.h"
#include "test/cpp/contract/backend_contract.h"
#include "test/cpp/contract/transport_contract.h"

namespace horovod_tf {
namespace {

// Those that a group, or its transport, might begin or end with.
std::atomic<int>& CallsOfMpi() {
  static std::atomic<int> calls{0};
  return calls;
}

}  // namespace
}  // namespace horovod_tf

// As MPI's standard lets a tool watch its calls.
int MPI_Improbe(int source, int tag, MPI_Comm comm, int* flag, MPI_Message* message,
                MPI_Status* status) {
  ++horovod_tf::CallsOfMpi();
  return PMPI_Improbe(source, tag, comm, flag, message, status);
}

int MPI_Comm_get_attr(MPI_Comm comm, int key, void* value, int* flag) {
  ++horovod_tf::CallsOfMpi();
  return PMPI_Comm_get_attr(comm, key, value, flag);
}

namespace horovod_tf {
namespace {

constexpr std::chrono::seconds kDeadline{60};

int WorldSize() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

std::shared_ptr<MpiWorld> OpenWorld() {
  std::shared_ptr<MpiWorld> world;
  StartProgress progress(FromNow(kDeadline));
  const Status status = MpiWorld::Open(Config::Defaults(), progress, &world);
  EXPECT_TRUE(status.ok()) << status;
  return world;
}

// Null where this rank is no member.
std::shared_ptr<MpiGroup> GroupOf(const std::shared_ptr<MpiWorld>& world, int id,
                                  const std::vector<int>& ranks) {
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    if (ranks[place] != world->rank()) continue;
    std::shared_ptr<MpiGroup> group;
    const Status status = MpiGroup::Make(world, {id, ranks, static_cast<int>(place)}, &group);
    EXPECT_TRUE(status.ok()) << status;
    return group;
  }
  return nullptr;
}

// All ranks, the last first.
std::shared_ptr<MpiGroup> Reversed() {
  std::shared_ptr<MpiWorld> world = OpenWorld();
  std::vector<int> ranks;
  for (int rank = world->size() - 1; rank >= 0; --rank) ranks.push_back(rank);
  return GroupOf(world, 7, ranks);
}

// This process's rank of the group.
class GroupWorld final : public ContractWorld {
 public:
  GroupWorld() : group_(Reversed()), backend_(MakeMpiBackend(group_)) {}

  void Run(const std::function<void(ContractRank&)>& fn) override {
    const Watchdog watchdog(std::chrono::seconds(90), "a contract test of a group");
    ContractContext context(std::chrono::steady_clock::now() + kDeadline);
    std::thread thread([&] {
      ContractRank rank{group_->rank(), *backend_, context};
      fn(rank);
    });
    thread.join();
  }

 private:
  const std::shared_ptr<MpiGroup> group_;
  const std::unique_ptr<CollectiveBackend> backend_;
};

HVD_INSTANTIATE_BACKEND_CONTRACT(MpiGroup,
                                 testing::Values(ContractWorldFactory{
                                     "Reversed",
                                     [](int) { return std::make_unique<GroupWorld>(); }}),
                                 testing::Values(WorldSize()));

TransportFactory MakeGroupFactory() {
  return {"MpiGroup", WorldSize(), [] {
            std::vector<std::unique_ptr<Transport>> endpoints;
            endpoints.push_back(MakeMpiTransport(Reversed()));
            return endpoints;
          }};
}

INSTANTIATE_TEST_SUITE_P(MpiGroup, TransportContract, testing::Values(MakeGroupFactory()),
                         [](const auto& instance) { return instance.param.name; });

// Rounds of a ring. What comes says of which group it is, and from whom.
void SendAround(Transport& transport, const std::string& name) {
  const int size = transport.size();
  if (size == 1) return;
  const int from = (transport.rank() + size - 1) % size;
  const TimePoint deadline = FromNow(kDeadline);
  for (int round = 0; round < 200; ++round) {
    const std::string tail = name + std::to_string(round);
    const Status sent =
        transport.Send((transport.rank() + 1) % size, std::to_string(transport.rank()) + tail);
    ASSERT_TRUE(sent.ok()) << sent;
    Incoming message;
    bool got = false;
    while (!got) {
      const Status status = transport.Receive(&message, &got);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_LT(Clock::Real().Now(), deadline);
      if (!got) transport.Wait(deadline, Expectation::kAnswer);
    }
    ASSERT_EQ(message.from, from);
    ASSERT_EQ(message.bytes, std::to_string(from) + tail);
  }
}

TEST(MpiGroups, OverlappingGroupsAtTheSameTime_KeepTheirMessagesApart) {
  const std::shared_ptr<MpiWorld> world = OpenWorld();
  if (!world->threads_supported()) GTEST_SKIP() << "needs MPI_THREAD_MULTIPLE";
  std::vector<int> all;
  std::vector<int> ends = {0};
  for (int rank = 0; rank < world->size(); ++rank) all.push_back(rank);
  if (world->size() > 1) ends.push_back(world->size() - 1);
  std::vector<std::thread> threads;
  const auto run = [&](const std::string& name, std::shared_ptr<MpiGroup> group) {
    if (group == nullptr) return;
    threads.emplace_back([name, group = std::move(group)] {
      const std::unique_ptr<Transport> transport = MakeMpiTransport(group);
      SendAround(*transport, name);
    });
  };
  run(" of the world ", std::make_shared<MpiGroup>(world));
  run(" of all ", GroupOf(world, 1, all));
  run(" of the ends ", GroupOf(world, 2, ends));
  for (std::thread& thread : threads) thread.join();
}

// Its ranks share memory, perhaps, in a job whose background thread alone may call MPI.
TEST(MpiGroups, GroupThatIsNotUsed_DoesNotCallMpi) {
  const std::shared_ptr<MpiWorld> world = OpenWorld();
  const int before = CallsOfMpi().load();
  {
    const std::shared_ptr<MpiGroup> group = GroupOf(world, 1, {world->rank()});
    const std::unique_ptr<Transport> transport = MakeMpiTransport(group);
    const std::unique_ptr<CollectiveBackend> backend = MakeMpiBackend(group);
  }
  EXPECT_EQ(CallsOfMpi().load(), before);
}

TEST(MpiGroups, GroupWithoutATag_IsRefused) {
  const std::shared_ptr<MpiWorld> world = OpenWorld();
  std::shared_ptr<MpiGroup> group;
  const Status status = MpiGroup::Make(world, {2147483647, {0}, 0}, &group);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace horovod_tf
