#include "horovod_tf/common/collectives/shm_meeting.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "test/cpp/contract/contract_world.h"

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

ShmMeeting MeetingOf(const std::shared_ptr<ShmSegment>& segment, int rank,
                     const ShmPatience& patience) {
  return ShmMeeting(MakeMembership(rank, segment, {}, patience));
}
ShmMeeting MeetingOf(const std::shared_ptr<ShmSegment>& segment, int rank, int processors = 1) {
  return MeetingOf(segment, rank, PatienceFor(segment->ranks(), processors));
}

// Asleep until somebody wakes it, or for so long that the test has failed.
ShmPatience SoundSleep() {
  ShmPatience patience;
  patience.first_sleep = seconds(20);
  patience.longest_sleep = seconds(20);
  return patience;
}
constexpr seconds kAtOnce{10};

std::unique_ptr<ContractContext> NewContext() {
  return std::make_unique<ContractContext>(steady_clock::now() + seconds(30));
}

TEST(ShmMeeting, EnoughProcessors_AreWhatSpinningNeeds) {
  EXPECT_EQ(PatienceFor(4, 3).spin, Duration::zero());
  EXPECT_GT(PatienceFor(4, 4).spin, Duration::zero());
  // RunContext wants to be asked every 100 ms.
  EXPECT_LE(PatienceFor(4, 4).longest_sleep, milliseconds(50));
}

// Every rank adds to what all read: an arrival that is lost, or that is seen before the bytes are,
// gives another sum.
void CountTogether(int ranks, int processors, std::uint64_t first, std::uint64_t chunks) {
  const std::shared_ptr<ShmSegment> segment = NewSegment(ranks);
  // As if so many chunks had gone by.
  for (std::uint64_t chunk = first; chunk < first + kShmSlots; ++chunk) {
    const auto arrived =
        static_cast<std::uint32_t>(chunk / kShmSlots * static_cast<std::uint64_t>(ranks));
    segment->header().published[chunk % kShmSlots].arrived = arrived;
    segment->header().released[chunk % kShmSlots].arrived = arrived;
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ShmMeeting meeting = MeetingOf(segment, rank, processors);
      const auto context = NewContext();
      for (std::uint64_t chunk = first; chunk < first + chunks; ++chunk) {
        if (chunk >= first + kShmSlots) {
          ASSERT_TRUE(meeting.AwaitSlot(chunk, *context).ok());
        }
        *segment->slot(rank, chunk) = static_cast<unsigned char>(chunk + 3);
        meeting.Publish(chunk);
        ASSERT_TRUE(meeting.AwaitPublished(chunk, *context).ok());
        for (int other = 0; other < ranks; ++other) {
          ASSERT_EQ(*segment->slot(other, chunk), static_cast<unsigned char>(chunk + 3));
        }
        meeting.Release(chunk);
      }
      ASSERT_TRUE(meeting.AwaitReleased(first + chunks - 1, *context).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(segment->progress(rank).released, static_cast<std::uint32_t>(first + chunks));
  }
  for (const ShmGate& gate : segment->header().published) EXPECT_EQ(gate.sleepers, 0U);
  for (const ShmGate& gate : segment->header().released) EXPECT_EQ(gate.sleepers, 0U);
}

TEST(ShmMeeting, ManyChunks_NobodyIsAheadOfTheOthersBytes) {
  for (int ranks : {1, 2, 3, 5, 8}) {
    CountTogether(ranks, 1, 0, 3000);
    CountTogether(ranks, ranks, 0, 3000);
  }
}

TEST(ShmMeeting, CountsWrapAround_NothingChanges) {
  for (int ranks : {2, 3}) {
    // Arrivals pass 2^32 in the middle.
    const std::uint64_t chunks = (std::uint64_t{1} << 32) / static_cast<std::uint64_t>(ranks);
    CountTogether(ranks, 1, (chunks - 100) * kShmSlots, 900);
    // And progress does.
    CountTogether(ranks, 1, (std::uint64_t{1} << 32) - 400 - ((std::uint64_t{1} << 32) - 400) % 3,
                  900);
  }
}

TEST(ShmMeeting, APeerNeverComes_TheContextIsAskedAtLeastEvery100Milliseconds) {
  const std::shared_ptr<ShmSegment> segment = NewSegment(2);
  ShmMeeting meeting = MeetingOf(segment, 0);
  ContractContext context(steady_clock::now() + seconds(30));
  auto last = steady_clock::now();
  auto longest = steady_clock::duration::zero();
  int questions = 0;
  context.AnswerWith([&] {
    longest = std::max(longest, steady_clock::now() - last);
    last = steady_clock::now();
    return ++questions < 15 ? Status::Ok() : Status::Aborted("enough");
  });
  meeting.Publish(0);
  EXPECT_EQ(meeting.AwaitPublished(0, context).ToString(), "Aborted: enough");
  EXPECT_LT(longest, seconds(2));  // 50 milliseconds each, on a machine that is free
  EXPECT_EQ(questions, 15);
}

TEST(ShmMeeting, TheLastToArrive_WakesTheSleepers) {
  const auto start = steady_clock::now();
  const std::shared_ptr<ShmSegment> segment = NewSegment(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      ShmMeeting meeting = MeetingOf(segment, rank, SoundSleep());
      const auto context = NewContext();
      for (std::uint64_t chunk = 0; chunk < 30; ++chunk) {
        // Each is the last by turns, so that the others sleep.
        if (chunk % 3 == static_cast<std::uint64_t>(rank)) {
          std::this_thread::sleep_for(milliseconds(3));
        }
        meeting.Publish(chunk);
        EXPECT_TRUE(meeting.AwaitPublished(chunk, *context).ok());
        meeting.Release(chunk);
        EXPECT_TRUE(meeting.AwaitReleased(chunk, *context).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(steady_clock::now() - start, kAtOnce);
}

TEST(ShmMeeting, WhoeverFails_WakesTheSleepers) {
  const auto start = steady_clock::now();
  const std::shared_ptr<ShmSegment> segment = NewSegment(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      ShmMeeting meeting = MeetingOf(segment, rank, SoundSleep());
      const auto context = NewContext();
      meeting.Publish(0);
      EXPECT_EQ(meeting.AwaitPublished(0, *context).ToString(), "Aborted: enough");
    });
  }
  std::this_thread::sleep_for(milliseconds(100));
  ShmMeeting failing = MeetingOf(segment, 2);
  const auto context = NewContext();
  context->Interrupt(Status::Aborted("enough"));
  EXPECT_FALSE(failing.AwaitPublished(0, *context).ok());
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(steady_clock::now() - start, kAtOnce);
}

TEST(ShmMeeting, OneRankIsInterrupted_AllGetItsReasonAtOnceAndForEver) {
  const std::shared_ptr<ShmSegment> segment = NewSegment(4);
  std::vector<std::string> told(3);
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<ContractContext>> contexts;
  for (int rank = 0; rank < 3; ++rank) contexts.push_back(NewContext());
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      ShmMeeting meeting = MeetingOf(segment, rank);
      meeting.Publish(0);
      const auto i = static_cast<std::size_t>(rank);
      told[i] = meeting.AwaitPublished(0, *contexts[i]).ToString();
      EXPECT_EQ(meeting.failure().ToString(), told[i]);
    });
  }
  std::this_thread::sleep_for(milliseconds(200));
  contexts[1]->Interrupt(Status::Aborted("rank 3 left us"));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(told, std::vector<std::string>(3, "Aborted: rank 3 left us"));
  // The one that comes too late.
  ShmMeeting late = MeetingOf(segment, 3);
  EXPECT_EQ(late.failure().ToString(), "Aborted: rank 3 left us");
}

TEST(ShmMeeting, ALongReason_IsCutOffForAllAlike) {
  const std::shared_ptr<ShmSegment> segment = NewSegment(2);
  ShmMeeting meeting = MeetingOf(segment, 0);
  const auto context = NewContext();
  context->Interrupt(Status::Internal(std::string(5000, 'x')));
  EXPECT_EQ(meeting.AwaitPublished(0, *context).ToString(), "Internal: " + std::string(999, 'x'));
  EXPECT_EQ(meeting.failure().ToString(), "Internal: " + std::string(999, 'x'));
}

TEST(ShmMeeting, AFailureThatNobodyCouldWrite_DoesNotHoldAnybody) {
  const std::shared_ptr<ShmSegment> segment = NewSegment(2);
  segment->failure(1).text[0] = 'x';  // its writer was killed
  ShmMeeting meeting = MeetingOf(segment, 0);
  const auto context = NewContext();
  context->Interrupt(Status::Aborted("own reason"));
  EXPECT_EQ(meeting.AwaitPublished(0, *context).ToString(), "Aborted: own reason");
}

}  // namespace
}  // namespace horovod_tf
