#include "horovod_tf/common/collectives/shm_doorbells.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "test/cpp/support/forked_ranks.h"

namespace horovod_tf {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

std::vector<std::shared_ptr<Doorbells>> NewDoorbells(int ranks) {
  std::shared_ptr<ShmSegment> segment;
  EXPECT_TRUE(ShmSegment::Create(ranks, 4096, &segment).ok());
  std::vector<std::shared_ptr<Doorbells>> bells;
  for (int rank = 0; rank < ranks; ++rank) bells.push_back(MakeShmDoorbells(rank, segment));
  return bells;
}

TEST(ShmDoorbells, EachRankHasItsOwn) {
  const auto bells = NewDoorbells(3);
  bells[0]->Ring(1);
  bells[2]->Ring(1);
  bells[1]->Ring(1);
  EXPECT_EQ(bells[0]->count(), 0U);
  EXPECT_EQ(bells[1]->count(), 3U);
  EXPECT_EQ(bells[2]->count(), 0U);
}

TEST(ShmDoorbells, RungSinceItWasLookedAt_DoesNotSleep) {
  const auto bells = NewDoorbells(2);
  const std::uint32_t seen = bells[1]->count();
  bells[0]->Ring(1);
  const auto begin = steady_clock::now();
  bells[1]->WaitForRing(seen, seconds(60));
  EXPECT_LT(steady_clock::now() - begin, seconds(30));
}

TEST(ShmDoorbells, NobodyRings_ItSleepsAsLongAsItMayAndNoLonger) {
  const auto bells = NewDoorbells(1);
  const auto begin = steady_clock::now();
  bells[0]->WaitForRing(bells[0]->count(), milliseconds(50));
  EXPECT_GE(steady_clock::now() - begin, milliseconds(40));
  bells[0]->WaitForRing(bells[0]->count(), milliseconds(0));
  bells[0]->WaitForRing(bells[0]->count(), milliseconds(-5));
}

// Each answers the other's ring: one that is lost costs the whole limit.
void AnswerEachOther(Doorbells& mine, int peer, bool begin, int rounds) {
  std::uint32_t seen = 0;
  if (begin) mine.Ring(peer);
  for (int round = 0; round < rounds; ++round) {
    while (mine.count() == seen) mine.WaitForRing(seen, seconds(20));
    seen = mine.count();
    mine.Ring(peer);
  }
}

TEST(ShmDoorbells, ThreadsThatAnswerEachOther_LoseNoRing) {
  const auto bells = NewDoorbells(2);
  const auto begin = steady_clock::now();
  std::thread other([&] { AnswerEachOther(*bells[1], 0, false, 20000); });
  AnswerEachOther(*bells[0], 1, true, 20000);
  other.join();
  EXPECT_LT(steady_clock::now() - begin, seconds(20));
}

TEST(ShmDoorbells, ProcessesThatAnswerEachOther_LoseNoRing) {
  ForkedRanks ranks(2, 4096);
  ranks.StartMembers([](const ShmMembership& membership) {
    const int rank = membership.rank;
    const auto bells = MakeShmDoorbells(rank, membership.segment);
    const auto begin = steady_clock::now();
    AnswerEachOther(*bells, 1 - rank, rank == 0, 20000);
    return steady_clock::now() - begin < seconds(20) ? 0 : 1;
  });
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(ranks.Wait(rank), 0) << rank;
}

}  // namespace
}  // namespace horovod_tf
