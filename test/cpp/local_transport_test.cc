#include "horovod_tf/common/transport/local_transport.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "test/cpp/contract/transport_contract.h"
#include "test/cpp/support/fake_clock.h"

namespace horovod_tf {
namespace {

std::vector<std::unique_ptr<Transport>> MakeEndpoints(int size) {
  std::vector<std::string> hosts;
  for (int rank = 0; rank < size; ++rank) hosts.push_back("host" + std::to_string(rank % 2));
  return MakeLocalTransports(hosts);
}

std::vector<TransportFactory> LocalFactories() {
  std::vector<TransportFactory> factories;
  for (int size : {1, 2, 3, 5, 8}) {
    factories.push_back(
        {"LocalOf" + std::to_string(size), size, [size] { return MakeEndpoints(size); }});
  }
  return factories;
}

std::string FactoryName(const testing::TestParamInfo<TransportFactory>& factory) {
  return factory.param.name;
}

INSTANTIATE_TEST_SUITE_P(Local, TransportContract, testing::ValuesIn(LocalFactories()),
                         FactoryName);

// What is there now, without waiting.
Status TakeNow(Transport& transport, std::vector<std::string>* messages) {
  for (;;) {
    Incoming message;
    bool got = false;
    HVD_RETURN_IF_ERROR(transport.Receive(&message, &got));
    if (!got) return Status::Ok();
    messages->push_back(std::to_string(message.from) + ":" + message.bytes);
  }
}

// Whether a Wait of at most `limit` ends before that. A test that expects it gives much time, one
// that does not gives little: then a busy machine makes neither fail.
bool WaitEndsByItself(Transport& transport, Duration limit) {
  const TimePoint start = Clock::Real().Now();
  transport.Wait(start + limit, Expectation::kNothing);
  return Clock::Real().Now() - start < limit;
}
constexpr Duration kLittle = std::chrono::milliseconds(30);

TEST(LocalTransport, Made_RanksAndHostsAreInOrder) {
  const auto endpoints = MakeLocalTransports({"alpha", "beta", "alpha"});
  ASSERT_EQ(endpoints.size(), 3U);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(endpoints[static_cast<std::size_t>(rank)]->rank(), rank);
    EXPECT_EQ(endpoints[static_cast<std::size_t>(rank)]->size(), 3);
  }
  EXPECT_EQ(endpoints[0]->host(), "alpha");
  EXPECT_EQ(endpoints[1]->host(), "beta");
  EXPECT_EQ(endpoints[2]->host(), "alpha");
}

TEST(LocalTransport, MessagesArrivedBeforeAnAbort_AreStillDeliveredAndThenReceiveFails) {
  auto endpoints = MakeEndpoints(3);
  ASSERT_TRUE(endpoints[0]->Send(2, "a").ok());
  ASSERT_TRUE(endpoints[1]->Broadcast("b").ok());
  endpoints[0]->Abort(Status::Internal("broken 5"));
  std::vector<std::string> messages;
  const Status status = TakeNow(*endpoints[2], &messages);
  EXPECT_EQ(messages, (std::vector<std::string>{"0:a", "1:b"}));
  EXPECT_EQ(status.ToString(), "Internal: rank 0 failed: broken 5");
  EXPECT_EQ(TakeNow(*endpoints[2], &messages).ToString(), status.ToString());
}

TEST(LocalTransport, MessageTakenTogetherWithOthersBeforeAnAbort_IsStillDelivered) {
  auto endpoints = MakeEndpoints(2);
  ASSERT_TRUE(endpoints[0]->Send(1, "first").ok());
  ASSERT_TRUE(endpoints[0]->Send(1, "second").ok());
  Incoming message;
  bool got = false;
  ASSERT_TRUE(endpoints[1]->Receive(&message, &got).ok());
  ASSERT_TRUE(got);
  endpoints[0]->Abort(Status::Unknown("x"));
  ASSERT_TRUE(endpoints[1]->Receive(&message, &got).ok());
  ASSERT_TRUE(got);
  EXPECT_EQ(message.bytes, "second");
  EXPECT_FALSE(endpoints[1]->Receive(&message, &got).ok());
  EXPECT_FALSE(got);
}

TEST(LocalTransport, EveryRankAbortsAtOnce_OneCauseWinsEverywhere) {
  constexpr int kSize = 5;
  for (int round = 0; round < 20; ++round) {
    auto endpoints = MakeEndpoints(kSize);
    std::vector<std::thread> threads;
    for (auto& endpoint : endpoints) {
      threads.emplace_back([&endpoint] {
        endpoint->Abort(Status::Unknown("cause " + std::to_string(endpoint->rank())));
      });
    }
    for (std::thread& thread : threads) thread.join();
    int winners = 0;
    int winner = -1;
    for (int rank = 0; rank < kSize; ++rank) {
      if (endpoints[static_cast<std::size_t>(rank)]->health().message() ==
          "cause " + std::to_string(rank)) {
        ++winners;
        winner = rank;
      }
    }
    ASSERT_EQ(winners, 1);
    for (const auto& endpoint : endpoints) {
      if (endpoint->rank() == winner) continue;
      EXPECT_EQ(endpoint->health().message(),
                "rank " + std::to_string(winner) + " failed: cause " + std::to_string(winner));
    }
  }
}

TEST(LocalTransport, WakeOrMessage_EndsExactlyOneWait) {
  auto endpoints = MakeEndpoints(2);
  endpoints[0]->Wake();
  EXPECT_TRUE(WaitEndsByItself(*endpoints[0], kHangs));
  EXPECT_FALSE(WaitEndsByItself(*endpoints[0], kLittle));
  // A message ends waits until it is taken, also one that lies in the endpoint already.
  ASSERT_TRUE(endpoints[1]->Send(0, "a").ok());
  ASSERT_TRUE(endpoints[1]->Send(0, "b").ok());
  EXPECT_TRUE(WaitEndsByItself(*endpoints[0], kHangs));
  Incoming message;
  bool got = false;
  ASSERT_TRUE(endpoints[0]->Receive(&message, &got).ok());
  EXPECT_TRUE(WaitEndsByItself(*endpoints[0], kHangs));
  ASSERT_TRUE(endpoints[0]->Receive(&message, &got).ok());
  EXPECT_EQ(message.bytes, "b");
  EXPECT_FALSE(WaitEndsByItself(*endpoints[0], kLittle));
}

TEST(LocalTransport, PeerHasLeft_SendsToItAreDroppedAndNobodyHasFailed) {
  auto endpoints = MakeEndpoints(3);
  endpoints[1].reset();
  EXPECT_TRUE(endpoints[0]->Send(1, "last words").ok());
  EXPECT_TRUE(endpoints[2]->Broadcast("to all").ok());
  EXPECT_TRUE(endpoints[0]->health().ok());
  EXPECT_TRUE(endpoints[2]->health().ok());
  std::vector<std::string> messages;
  EXPECT_FALSE(TakeNow(*endpoints[0], &messages).ok());
  EXPECT_EQ(messages, std::vector<std::string>{"2:to all"});
}

TEST(LocalTransport, PeerHasLeft_WhatItSentIsDeliveredAndThenReceiveNamesIt) {
  auto endpoints = MakeEndpoints(3);
  ASSERT_TRUE(endpoints[1]->Send(2, "bye").ok());
  endpoints[1].reset();
  std::vector<std::string> messages;
  const Status status = TakeNow(*endpoints[2], &messages);
  EXPECT_EQ(messages, std::vector<std::string>{"1:bye"});
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("rank 1 has left"), std::string::npos) << status;
}

TEST(LocalTransport, PeerLeavesDuringWait_TheWaiterIsWokenAndSeesItInReceive) {
  auto endpoints = MakeEndpoints(2);
  std::thread leaver([&endpoints] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    endpoints[0].reset();
  });
  Incoming message;
  const Status status = ReceiveNext(*endpoints[1], &message);
  leaver.join();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
}

TEST(LocalTransport, PeerLeftAfterAnAbort_TheCauseStays) {
  auto endpoints = MakeEndpoints(2);
  endpoints[0]->Abort(Status::Internal("real cause"));
  endpoints[0].reset();
  std::vector<std::string> messages;
  EXPECT_EQ(TakeNow(*endpoints[1], &messages).ToString(), "Internal: rank 0 failed: real cause");
}

// Without the lock that a broadcast and a leaving share, a receiver of the last broadcast could be
// gone before the others have their copies.
TEST(LocalTransport, FirstReceiverOfTheLastBroadcastLeaves_TheOthersStillGetTheirCopy) {
  constexpr int kSize = 8;
  for (int round = 0; round < 50; ++round) {
    auto endpoints = MakeEndpoints(kSize);
    std::vector<std::thread> threads;
    std::atomic<int> received{0};
    for (std::size_t rank = 1; rank < kSize; ++rank) {
      threads.emplace_back([&endpoint = endpoints[rank], &received] {
        Incoming message;
        if (ReceiveNext(*endpoint, &message).ok() && message.bytes == "stop") ++received;
        endpoint.reset();
      });
    }
    EXPECT_TRUE(endpoints[0]->Broadcast("stop").ok());
    endpoints[0].reset();
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(received.load(), kSize - 1);
  }
}

TEST(LocalTransport, DeadlineOnAFakeClock_PassesWhenTheClockIsMoved) {
  FakeClock clock;
  const auto endpoints = MakeLocalTransports({"only"}, clock);
  std::atomic<bool> returned{false};
  std::thread waiter([&] {
    endpoints[0]->Wait(clock.Now() + std::chrono::minutes(1), Expectation::kNothing);
    returned = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(returned.load());
  clock.Advance(std::chrono::minutes(1));
  const TimePoint deadline = FromNow(kHangs);
  while (!returned && Clock::Real().Now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(returned.load());
  endpoints[0]->Wake();  // so that a failure does not hang
  waiter.join();
}

TEST(LocalTransport, ManyThreadsWakeWhileMessagesFlow_NothingIsLost) {
  constexpr int kMessages = 2000;
  auto endpoints = MakeEndpoints(2);
  std::atomic<bool> stop{false};
  std::vector<std::thread> wakers;
  for (int i = 0; i < 2; ++i) {
    wakers.emplace_back([&] {
      while (!stop) {
        endpoints[1]->Wake();
        EXPECT_TRUE(endpoints[1]->health().ok());
        std::this_thread::yield();
      }
    });
  }
  std::thread sender([&endpoint = endpoints[0]] {
    for (int i = 0; i < kMessages; ++i) {
      EXPECT_TRUE(endpoint->Send(1, std::to_string(i)).ok());
    }
  });
  for (int i = 0; i < kMessages; ++i) {
    Incoming message;
    const Status status = ReceiveNext(*endpoints[1], &message);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(message.bytes, std::to_string(i));
    if (!status.ok()) break;
  }
  stop = true;
  sender.join();
  for (std::thread& waker : wakers) waker.join();
}

TEST(FakeClock, Advanced_MovesByThatMuchAndNotOtherwise) {
  FakeClock clock;
  const TimePoint start = clock.Now();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(clock.Now(), start);
  clock.Advance(std::chrono::hours(3));
  EXPECT_EQ(clock.Now(), start + std::chrono::hours(3));
}

TEST(FakeClock, DeadlineHasPassed_WaitReturnsWithoutSleeping) {
  FakeClock clock;
  Mutex mutex;
  CondVar condition;
  const TimePoint start = Clock::Real().Now();
  MutexLock lock(mutex);
  for (int i = 0; i < 10000; ++i) clock.WaitUntil(condition, mutex, clock.Now());
  EXPECT_LT(Clock::Real().Now() - start, std::chrono::seconds(5));  // not 10,000 milliseconds
}

}  // namespace
}  // namespace horovod_tf
