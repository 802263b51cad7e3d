// ShmMeeting: how the ranks that share a segment wait for each other: chunk by chunk, without a
// lock, awake for a moment and then asleep, and never for a rank that has died. See
// docs/shared_memory.md.
#ifndef HOROVOD_TF_COMMON_COLLECTIVES_SHM_MEETING_H_
#define HOROVOD_TF_COMMON_COLLECTIVES_SHM_MEETING_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/collectives/collective_backend.h"
#include "horovod_tf/common/collectives/shm_segment.h"

namespace horovod_tf {

// How long a rank waits in which way.
struct ShmPatience {
  Duration spin{};  // awake; zero where ranks outnumber processors
  int yields = 0;   // then: lets others run, so often
  // Then asleep. Each time it wakes up in vain it looks whether the job has failed: first after
  // this, then after twice as long, up to the limit.
  Duration first_sleep = std::chrono::microseconds(500);
  Duration longest_sleep = std::chrono::milliseconds(50);
};
// For ranks that may together run on so many processors.
ShmPatience PatienceFor(int ranks, int processors);

// What one rank has of the shared memory.
struct ShmMembership {
  int rank = 0;
  std::shared_ptr<ShmSegment> segment;
  // One per rank: a pidfd, by which the end of that process shows; invalid for this rank itself,
  // and where it cannot be known. Empty: for none.
  std::vector<UniqueFd> processes;
  ShmPatience patience;
};

// Chunks are numbered from 0 for the life of the segment. Every rank publishes every chunk, in
// order, and releases every chunk, in order, after all have published it; all ranks agree on what
// that means for the bytes. What a rank wrote before it arrived is seen by whoever waited.
//
// Thread rule: background thread.
class ShmMeeting {
 public:
  explicit ShmMeeting(ShmMembership membership);

  int rank() const { return rank_; }
  int size() const { return segment_->ranks(); }
  const ShmSegment& segment() const { return *segment_; }

  void Publish(std::uint64_t chunk);
  void Release(std::uint64_t chunk);
  // Return when all ranks have done it, or with why they never will. An error is final: it is
  // everybody's, and every later wait returns it.
  Status AwaitPublished(std::uint64_t chunk, RunContext& context);
  Status AwaitReleased(std::uint64_t chunk, RunContext& context);
  // The wait before a slot is used again.
  Status AwaitSlot(std::uint64_t chunk, RunContext& context) {
    return chunk < kShmSlots ? Status::Ok() : AwaitReleased(chunk - kShmSlots, context);
  }

  // OK, or the failure that ended all meetings.
  Status failure() const;

 private:
  struct Goal;

  void Arrive(ShmGate& gate, std::uint64_t chunk) const;
  Status Await(const Goal& goal, RunContext& context);
  bool Spin(const Goal& goal) const;
  Status Sleep(const Goal& goal, RunContext& context);
  Status LookAround(const Goal& goal, RunContext& context);
  Status Dead(const Goal& goal) const;
  Status Fail(const Status& cause);

  const std::shared_ptr<ShmSegment> segment_;
  const int rank_;
  const std::vector<UniqueFd> processes_;
  const ShmPatience patience_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_COLLECTIVES_SHM_MEETING_H_
