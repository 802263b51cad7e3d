#include "test/cpp/contract/transport_contract.h"

#include "test/cpp/support/cpu_share.h"

namespace horovod_tf {

TEST_P(TransportContract, Start_EveryEndpointIsHealthyAndKnowsRankSizeAndHost) {
  OnEveryRank([&](std::unique_ptr<Transport>& transport) {
    EXPECT_GE(transport->rank(), 0);
    EXPECT_LT(transport->rank(), size());
    EXPECT_EQ(transport->size(), size());
    EXPECT_FALSE(transport->host().empty());
    EXPECT_TRUE(transport->health().ok());
    Incoming message;
    bool got = true;
    EXPECT_TRUE(transport->Receive(&message, &got).ok());
    EXPECT_FALSE(got);
  });
}

TEST_P(TransportContract, AllToAll_EachPairsMessagesArriveWholeOnceAndInOrder) {
  constexpr int kCount = 200;
  OnEveryRank([&](std::unique_ptr<Transport>& transport) {
    const int me = transport->rank();
    const auto text = [](int from, int to, int number) {
      return PatternBytes(from, to, static_cast<std::size_t>(number % 7)) + "#" +
             std::to_string(number);
    };
    for (int number = 0; number < kCount; ++number) {
      for (int to = 0; to < size(); ++to) {
        if (to == me) continue;
        ASSERT_TRUE(transport->Send(to, text(me, to, number)).ok());
      }
    }
    ReceiveFromAll(*transport, kCount, [&](const Incoming& message, int number) {
      ASSERT_EQ(message.bytes, text(message.from, me, number));
    });
  });
}

TEST_P(TransportContract, EmptyOddAndLargeMessages_ArriveByteForByte) {
  const std::vector<std::size_t> sizes = {0, 1, 4095, 65537, std::size_t{8} << 20};
  OnEveryRank([&](std::unique_ptr<Transport>& transport) {
    if (size() == 1) return;
    const int to = (transport->rank() + 1) % size();
    const int from = (transport->rank() + size() - 1) % size();
    for (std::size_t bytes : sizes) {
      ASSERT_TRUE(transport->Send(to, PatternBytes(transport->rank(), to, bytes)).ok());
    }
    for (std::size_t bytes : sizes) {
      Incoming message;
      ASSERT_TRUE(ReceiveNext(*transport, &message).ok());
      ASSERT_EQ(message.from, from);
      // Not EXPECT_EQ: nobody wants to read eight mebibytes.
      ASSERT_TRUE(message.bytes == PatternBytes(from, transport->rank(), bytes)) << bytes;
    }
  });
}

TEST_P(TransportContract, TenThousandSmallMessages_ArriveInOrderWhileOthersStillSend) {
  constexpr int kCount = 10000;
  OnEveryRank([&](std::unique_ptr<Transport>& transport) {
    if (size() == 1) return;
    const int to = (transport->rank() + 1) % size();
    for (int number = 0; number < kCount; ++number) {
      ASSERT_TRUE(transport->Send(to, std::to_string(number * size() + transport->rank())).ok());
    }
    const int from = (transport->rank() + size() - 1) % size();
    for (int number = 0; number < kCount; ++number) {
      Incoming message;
      ASSERT_TRUE(ReceiveNext(*transport, &message).ok());
      ASSERT_EQ(message.bytes, std::to_string(number * size() + from));
    }
  });
}

TEST_P(TransportContract, BroadcastFromEveryRank_ReachesEveryOtherInOrderWithItsSends) {
  constexpr int kRounds = 20;
  OnEveryRank([&](std::unique_ptr<Transport>& transport) {
    const int me = transport->rank();
    for (int round = 0; round < kRounds; ++round) {
      ASSERT_TRUE(
          transport->Broadcast("all " + std::to_string(me) + " " + std::to_string(round)).ok());
      for (int to = 0; to < size(); ++to) {
        if (to == me) continue;
        ASSERT_TRUE(transport->Send(to, "one " + std::to_string(to)).ok());
      }
    }
    ReceiveFromAll(*transport, 2 * kRounds, [&](const Incoming& message, int number) {
      if (number % 2 == 0) {
        ASSERT_EQ(message.bytes,
                  "all " + std::to_string(message.from) + " " + std::to_string(number / 2));
      } else {
        ASSERT_EQ(message.bytes, "one " + std::to_string(me));
      }
    });
  });
}

TEST_P(TransportContract, WokenBeforeWait_ReturnsAtOnce) {
  OnEveryRank([&](std::unique_ptr<Transport>& transport) {
    transport->Wake();
    transport->Wake();
    const TimePoint start = Clock::Real().Now();
    transport->Wait(FromNow(kHangs), Expectation::kNothing);
    EXPECT_LT(Clock::Real().Now() - start, kHangs / 2);
  });
}

TEST_P(TransportContract, WokenByAnotherThreadDuringWait_Returns) {
  OnEveryRank([&](std::unique_ptr<Transport>& transport) {
    std::thread other([&transport] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      transport->Wake();
    });
    const TimePoint start = Clock::Real().Now();
    transport->Wait(FromNow(kHangs), Expectation::kNothing);
    EXPECT_LT(Clock::Real().Now() - start, kHangs / 2);
    other.join();
  });
}

TEST_P(TransportContract, DeadlineOfAWaitPasses_ReturnsSoonAfter) {
  OnEveryRank([&](std::unique_ptr<Transport>& transport) {
    const TimePoint start = Clock::Real().Now();
    transport->Wait(start - std::chrono::seconds(1),
                    Expectation::kNothing);  // a deadline that has passed is no wait
    transport->Wait(start + std::chrono::milliseconds(30), Expectation::kNothing);
    EXPECT_LT(Clock::Real().Now() - start, kHangs / 2);
    EXPECT_TRUE(transport->health().ok());
  });
}

TEST_P(TransportContract, NothingHappens_WaitingBurnsNoCpu) {
  OnEveryRank([&](std::unique_ptr<Transport>& transport) {
    const TimePoint deadline = FromNow(std::chrono::milliseconds(300));
    const CpuShare share(CLOCK_THREAD_CPUTIME_ID);
    while (Clock::Real().Now() < deadline) transport->Wait(deadline, Expectation::kNothing);
    EXPECT_LT(share.Value(), 0.4);
  });
}

TEST_P(TransportContract, MessageComesDuringWait_EndsIt) {
  OnEveryRank([&](std::unique_ptr<Transport>& transport) {
    const TimePoint start = Clock::Real().Now();
    if (transport->rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ASSERT_TRUE(transport->Broadcast("wake up").ok());
      return;
    }
    Incoming message;
    ASSERT_TRUE(ReceiveNext(*transport, &message).ok());
    EXPECT_EQ(message.from, 0);
    EXPECT_LT(Clock::Real().Now() - start, kHangs / 2);
  });
}

TEST_P(TransportContract, AbortOnAnyRank_ReachesEveryWaitingRankWithCodeRankAndText) {
  for (int culprit = 0; culprit < size(); ++culprit) {
    OnEveryRank([&](std::unique_ptr<Transport>& transport) {
      const Status cause =
          Status::ResourceExhausted("cause number " + std::to_string(culprit * 11));
      if (transport->rank() == culprit) {
        transport->Abort(cause);
        transport->Abort(Status::Internal("too late"));
        EXPECT_EQ(transport->health().ToString(), cause.ToString());
        return;
      }
      const Status health = WaitForFailure(*transport);
      EXPECT_EQ(health.code(), cause.code()) << health;
      EXPECT_EQ(health.message(),
                "rank " + std::to_string(culprit) + " failed: " + cause.message());
      // What comes later changes nothing.
      transport->Abort(Status::Internal("me too"));
      EXPECT_EQ(transport->health().ToString(), health.ToString());
    });
  }
}

TEST_P(TransportContract, AfterAbort_SendBroadcastAndReceiveFailAndWaitReturns) {
  OnEveryRank([&](std::unique_ptr<Transport>& transport) {
    if (transport->rank() == size() - 1) transport->Abort(Status::Unknown("the end"));
    const Status health = WaitForFailure(*transport);
    ASSERT_FALSE(health.ok());
    const TimePoint start = Clock::Real().Now();
    transport->Wait(FromNow(kHangs), Expectation::kNothing);
    EXPECT_LT(Clock::Real().Now() - start, kHangs / 2);
    EXPECT_EQ(transport->Broadcast("more").ToString(), health.ToString());
    if (size() > 1) {
      const int to = (transport->rank() + 1) % size();
      EXPECT_EQ(transport->Send(to, "more").ToString(), health.ToString());
    }
    Incoming message;
    EXPECT_EQ(ReceiveNext(*transport, &message).ToString(), health.ToString());
  });
}

TEST_P(TransportContract, SenderLeavesRightAfterItsLastBroadcast_NothingIsLost) {
  constexpr int kCount = 100;
  OnEveryRank([&](std::unique_ptr<Transport>& transport) {
    if (transport->rank() == 0) {
      for (int number = 0; number < kCount; ++number) {
        ASSERT_TRUE(transport->Broadcast("record " + std::to_string(number * 3)).ok());
      }
    } else {
      for (int number = 0; number < kCount; ++number) {
        Incoming message;
        const Status status = ReceiveNext(*transport, &message);
        ASSERT_TRUE(status.ok()) << status << " on rank " << transport->rank();
        ASSERT_EQ(message.bytes, "record " + std::to_string(number * 3));
      }
    }
    EXPECT_TRUE(transport->health().ok());
    transport.reset();  // while others still receive
  });
}

}  // namespace horovod_tf
