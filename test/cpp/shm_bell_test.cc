#include "horovod_tf/common/shm/shm_bell.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "test/cpp/support/forked_ranks.h"

namespace horovod_tf {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

std::shared_ptr<ShmSegment> NewSegment(int ranks) {
  std::shared_ptr<ShmSegment> segment;
  EXPECT_TRUE(ShmSegment::Create(ranks, 4096, &segment).ok());
  return segment;
}

TEST(ShmBell, EachRankHasItsOwn) {
  const auto segment = NewSegment(3);
  for (int i = 0; i < 3; ++i) Ring(segment->bell(1));
  EXPECT_EQ(segment->bell(0).rung, 0U);
  EXPECT_EQ(segment->bell(1).rung, 3U);
  EXPECT_EQ(segment->bell(2).rung, 0U);
}

TEST(ShmBell, RungSinceItWasLookedAt_DoesNotSleep) {
  const auto segment = NewSegment(1);
  ShmBell& bell = segment->bell(0);
  const std::uint32_t seen = bell.rung;
  Ring(bell);
  const auto begin = steady_clock::now();
  WaitForRing(bell, seen, seconds(60));
  EXPECT_LT(steady_clock::now() - begin, seconds(30));
}

TEST(ShmBell, NobodyRings_ItSleepsAsLongAsItMayAndNoLonger) {
  const auto segment = NewSegment(1);
  ShmBell& bell = segment->bell(0);
  const auto begin = steady_clock::now();
  WaitForRing(bell, bell.rung, milliseconds(50));
  EXPECT_GE(steady_clock::now() - begin, milliseconds(40));
  WaitForRing(bell, bell.rung, milliseconds(0));
  WaitForRing(bell, bell.rung, milliseconds(-5));
}

// Each answers the other's ring: one that is lost costs the whole limit.
void AnswerEachOther(ShmBell& mine, ShmBell& other, bool begin, int rounds) {
  std::uint32_t seen = 0;
  if (begin) Ring(other);
  for (int round = 0; round < rounds; ++round) {
    while (mine.rung == seen) WaitForRing(mine, seen, seconds(20));
    seen = mine.rung;
    Ring(other);
  }
}

TEST(ShmBell, ThreadsThatAnswerEachOther_LoseNoRing) {
  const auto segment = NewSegment(2);
  const auto begin = steady_clock::now();
  std::thread other([&] { AnswerEachOther(segment->bell(1), segment->bell(0), false, 20000); });
  AnswerEachOther(segment->bell(0), segment->bell(1), true, 20000);
  other.join();
  EXPECT_LT(steady_clock::now() - begin, seconds(20));
}

TEST(ShmBell, ProcessesThatAnswerEachOther_LoseNoRing) {
  ForkedRanks ranks(2, 4096);
  ranks.StartMembers([](const ShmMembership& membership) {
    const int rank = membership.rank;
    const auto begin = steady_clock::now();
    AnswerEachOther(membership.segment->bell(rank), membership.segment->bell(1 - rank), rank == 0,
                    20000);
    return steady_clock::now() - begin < seconds(20) ? 0 : 1;
  });
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(ranks.Wait(rank), 0) << rank;
}

}  // namespace
}  // namespace horovod_tf
