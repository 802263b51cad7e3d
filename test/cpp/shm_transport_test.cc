// Control messages through shared memory: the contract, between threads and between processes, and
// what happens when a process ends.
#include "horovod_tf/common/transport/shm_transport.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test/cpp/contract/transport_contract.h"
#include "test/cpp/support/cpu_share.h"
#include "test/cpp/support/forked_ranks.h"

namespace horovod_tf {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// One mapping for all ranks, so that a race between them shows.
std::vector<std::unique_ptr<Transport>> MakeEndpoints(int size) {
  std::shared_ptr<ShmSegment> segment;
  EXPECT_TRUE(ShmSegment::Create(size, 4096, &segment).ok());
  std::vector<std::unique_ptr<Transport>> endpoints;
  for (int rank = 0; rank < size; ++rank) {
    endpoints.push_back(
        MakeShmTransport("host", MakeMembership(rank, segment, {}, PatienceFor(size, 2)), {}));
  }
  return endpoints;
}

std::vector<TransportFactory> ShmFactories() {
  std::vector<TransportFactory> factories;
  for (int size : {1, 2, 3, 5, 8}) {
    factories.push_back(
        {"ShmOf" + std::to_string(size), size, [size] { return MakeEndpoints(size); }});
  }
  return factories;
}

INSTANTIATE_TEST_SUITE_P(Shm, TransportContract, testing::ValuesIn(ShmFactories()),
                         [](const auto& instance) { return instance.param.name; });

TEST(ShmTransport, JobHasFailed_TheEndOfEveryEndpointAbandonsIt) {
  std::shared_ptr<ShmSegment> segment;
  ASSERT_TRUE(ShmSegment::Create(2, 4096, &segment).ok());
  for (const bool fails : {false, true}) {
    int abandoned = 0;
    std::vector<std::unique_ptr<Transport>> endpoints;
    for (int rank = 0; rank < 2; ++rank) {
      endpoints.push_back(MakeShmTransport(
          "host", MakeMembership(rank, segment, {}, PatienceFor(2, 2)), [&] { ++abandoned; }));
    }
    if (fails) endpoints[1]->Abort(Status::Internal("the end"));
    endpoints.clear();
    EXPECT_EQ(abandoned, fails ? 2 : 0);
  }
}

// Its job has ended by agreement, and its program goes on without destroying it.
TEST(ShmTransport, APeerIsClosed_WhoeverSendsToItIsNotHeld) {
  auto endpoints = MakeEndpoints(2);
  endpoints[0]->Close();
  EXPECT_TRUE(endpoints[1]->Send(0, std::string(std::size_t{1} << 20, 'x')).ok());
  const TimePoint begin = Clock::Real().Now();
  endpoints[1].reset();
  EXPECT_LT(Clock::Real().Now() - begin, seconds(10));
}

// Somebody in this process has closed a descriptor that is not its own: nothing is known then.
TEST(PeerProcesses, DescriptorIsClosed_NobodyIsCalledDead) {
  std::vector<UniqueFd> processes;
  processes.push_back(OpenProcess(getpid()));
  ASSERT_TRUE(processes.front().valid());
  const int descriptor = processes.front().get();
  const PeerProcesses peers(std::move(processes));
  EXPECT_FALSE(peers.Ended(0));
  const int copy = dup(descriptor);
  close(descriptor);
  EXPECT_FALSE(peers.Ended(0));
  EXPECT_EQ(dup2(copy, descriptor), descriptor);
  close(copy);
}

std::unique_ptr<Transport> EndpointOf(const ShmMembership& membership) {
  return MakeShmTransport("host", membership, {});
}

TEST(ShmTransportProcesses, AnswerEachOther_NoMessageIsLost) {
  ForkedRanks ranks(3, 4096);
  ranks.StartMembers([](const ShmMembership& membership) {
    const auto transport = EndpointOf(membership);
    const int to = (transport->rank() + 1) % transport->size();
    for (int i = 0; i < 3000; ++i) {
      const std::string text = std::to_string(i) + std::string(static_cast<std::size_t>(i), 'x');
      EXPECT_TRUE(transport->Send(to, text).ok());
      Incoming message;
      const Status status = ReceiveNext(*transport, &message);
      if (!status.ok() || message.bytes != text) return 1;
    }
    return 0;
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.Wait(rank), 0) << rank;
}

constexpr int kFailedAsExpected = 7;

int FailsBecauseOf(Transport& transport, int blamed) {
  Incoming message;
  const std::string expected =
      "Unknown: rank " + std::to_string(blamed) + " ended without hvd.shutdown()";
  const std::string got = ReceiveNext(transport, &message).ToString();
  EXPECT_EQ(got.substr(0, expected.size()), expected);
  EXPECT_EQ(transport.health().ToString(), got);
  return kFailedAsExpected;
}

TEST(ShmTransportProcesses, ARankIsKilledWhileOthersWait_TheyNameIt) {
  for (int victim = 0; victim < 3; ++victim) {
    ForkedRanks ranks(3, 4096);
    ranks.StartMembers([victim](const ShmMembership& membership) {
      const auto transport = EndpointOf(membership);
      if (transport->rank() == victim) std::this_thread::sleep_for(seconds(60));
      return FailsBecauseOf(*transport, victim);
    });
    std::this_thread::sleep_for(milliseconds(150));
    ranks.Signal(victim, SIGKILL);
    const TimePoint killed = Clock::Real().Now();
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(ranks.Wait(rank), rank == victim ? 1000 + SIGKILL : kFailedAsExpected) << rank;
    }
    EXPECT_LT(Clock::Real().Now() - killed, seconds(5));
  }
}

// Every wait ends long before one would look: they count together.
TEST(ShmTransportProcesses, ARankIsKilledWhileAnotherIsKeptBusy_ItIsNamed) {
  ForkedRanks ranks(2, 4096);
  ranks.StartMembers([](const ShmMembership& membership) {
    const auto transport = EndpointOf(membership);
    if (transport->rank() == 1) std::this_thread::sleep_for(seconds(60));
    const TimePoint deadline = FromNow(seconds(20));
    while (transport->health().ok() && Clock::Real().Now() < deadline) {
      transport->Wake();
      transport->Wait(deadline, Expectation::kAnswer);
      std::this_thread::sleep_for(milliseconds(1));
    }
    return transport->health().message().substr(0, 12) == "rank 1 ended" ? kFailedAsExpected : 1;
  });
  std::this_thread::sleep_for(milliseconds(150));
  ranks.Signal(1, SIGKILL);
  EXPECT_EQ(ranks.Wait(1), 1000 + SIGKILL);
  EXPECT_EQ(ranks.Wait(0), kFailedAsExpected);
}

// Only one waits for something; the idle one hears of it.
TEST(ShmTransportProcesses, ARankIsKilled_TheIdleOnesAreTold) {
  ForkedRanks ranks(3, 4096);
  ranks.StartMembers([](const ShmMembership& membership) {
    const auto transport = EndpointOf(membership);
    if (transport->rank() == 0) std::this_thread::sleep_for(seconds(60));
    if (transport->rank() == 1) return FailsBecauseOf(*transport, 0);
    return WaitForFailure(*transport, seconds(20)).message().substr(0, 12) == "rank 0 ended" ? 0
                                                                                             : 1;
  });
  std::this_thread::sleep_for(milliseconds(150));
  ranks.Signal(0, SIGKILL);
  EXPECT_EQ(ranks.Wait(0), 1000 + SIGKILL);
  EXPECT_EQ(ranks.Wait(1), kFailedAsExpected);
  EXPECT_EQ(ranks.Wait(2), 0);
}

TEST(ShmTransportProcesses, ARankEndsAfterItsLastMessage_TheMessageComesAndNothingElse) {
  ForkedRanks ranks(2, 4096);
  ranks.StartMembers([](const ShmMembership& membership) {
    auto transport = EndpointOf(membership);
    if (transport->rank() == 0) {
      EXPECT_TRUE(transport->Send(1, "good").ok());
      EXPECT_TRUE(transport->Send(1, "bye").ok());
      transport.reset();
      return 0;
    }
    std::this_thread::sleep_for(milliseconds(200));  // by now it has ended
    for (const std::string expected : {"good", "bye"}) {
      Incoming message;
      const Status status = ReceiveNext(*transport, &message);
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(message.bytes, expected);
    }
    // It has left: nobody is to blame.
    transport->Wait(FromNow(milliseconds(300)), Expectation::kAnswer);
    EXPECT_TRUE(transport->health().ok()) << transport->health();
    return 0;
  });
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(ranks.Wait(rank), 0) << rank;
}

// What it had sent comes first, although its process has not said that it leaves.
TEST(ShmTransportProcesses, ARankDiesAfterAMessage_TheMessageComesFirst) {
  ForkedRanks ranks(2, 4096);
  ranks.StartMembers([](const ShmMembership& membership) {
    const auto transport = EndpointOf(membership);
    if (transport->rank() == 0) {
      EXPECT_TRUE(transport->Send(1, "last words").ok());
      _exit(0);
    }
    Incoming message;
    const Status status = ReceiveNext(*transport, &message);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(message.bytes, "last words");
    return FailsBecauseOf(*transport, 0);
  });
  EXPECT_EQ(ranks.Wait(0), 0);
  EXPECT_EQ(ranks.Wait(1), kFailedAsExpected);
}

TEST(ShmTransportProcesses, ARankIsKilledWithAFullMailbox_WhoeverSendsToItIsNotHeld) {
  ForkedRanks ranks(2, 4096);
  ranks.StartMembers([](const ShmMembership& membership) {
    auto transport = EndpointOf(membership);
    if (transport->rank() == 0) std::this_thread::sleep_for(seconds(60));
    EXPECT_TRUE(transport->Send(0, std::string(std::size_t{1} << 20, 'x')).ok());
    const TimePoint begin = Clock::Real().Now();
    transport.reset();
    EXPECT_LT(Clock::Real().Now() - begin, seconds(10));
    return 0;
  });
  std::this_thread::sleep_for(milliseconds(150));
  ranks.Signal(0, SIGKILL);
  EXPECT_EQ(ranks.Wait(0), 1000 + SIGKILL);
  EXPECT_EQ(ranks.Wait(1), 0);
}

TEST(ShmTransport, APeerIsLate_WaitingCostsNextToNothing) {
  const auto endpoints = MakeEndpoints(2);
  const CpuShare share(CLOCK_THREAD_CPUTIME_ID);
  const TimePoint deadline = FromNow(seconds(1));
  endpoints[0]->Wait(deadline, Expectation::kAnswer);
  EXPECT_GE(Clock::Real().Now(), deadline);
  EXPECT_LT(share.Value(), 0.25);
}

}  // namespace
}  // namespace horovod_tf
