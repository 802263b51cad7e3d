// ShmMeeting: how the ranks that share a segment wait for each other: chunk by chunk, without a
// lock, awake for a moment and then asleep, and never for a rank that has died. See
// docs/shared_memory.md.
#ifndef HOROVOD_TF_COMMON_COLLECTIVES_SHM_MEETING_H_
#define HOROVOD_TF_COMMON_COLLECTIVES_SHM_MEETING_H_

#include <cstdint>

#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/collectives/collective_backend.h"
#include "horovod_tf/common/shm/shm_membership.h"

namespace horovod_tf {

// Chunks are numbered from 0 for the life of the segment. Every rank publishes every chunk, in
// order, and releases every chunk, in order, after all have published it; all ranks agree on what
// that means for the bytes. What a rank wrote before it arrived is seen by whoever waited.
//
// Thread rule: background thread.
class ShmMeeting {
 public:
  explicit ShmMeeting(ShmMembership membership);

  int rank() const { return member_.rank; }
  int size() const { return member_.size(); }
  const ShmSegment& segment() const { return *member_.segment; }

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
  Status failure() const { return member_.failures->failure(); }

 private:
  struct Goal;

  void Arrive(ShmGate& gate, std::uint64_t chunk) const;
  Status Await(const Goal& goal, RunContext& context);
  bool Spin(const Goal& goal) const;
  Status Sleep(const Goal& goal, RunContext& context);
  Status LookAround(const Goal& goal, RunContext& context);
  bool IsThere(int rank, const Goal& goal) const;
  std::string Late(const Goal& goal) const;
  Status Dead(const Goal& goal) const;
  Status Fail(const Status& cause);

  const ShmMembership member_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_COLLECTIVES_SHM_MEETING_H_
