// ShmSegment: the memory that the ranks of one host share, and its layout. See
// docs/shared_memory.md.
#ifndef HOROVOD_TF_COMMON_SHM_SHM_SEGMENT_H_
#define HOROVOD_TF_COMMON_SHM_SHM_SEGMENT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/shm/unique_fd.h"

namespace horovod_tf {

// Slots of every rank, used in turn: with three, a rank writes one while others still read the one
// before, and results need no meeting of their own.
inline constexpr std::size_t kShmSlots = 3;

// Words that different ranks write are this far apart: processors fetch lines in pairs.
inline constexpr std::size_t kShmLine = 128;

using ShmWord = std::atomic<std::uint32_t>;
static_assert(ShmWord::is_always_lock_free, "a lock would belong to one process");

// Where all ranks arrive, over and over; the words count for ever and wrap around.
struct alignas(kShmLine) ShmGate {
  ShmWord arrived;
  ShmWord sleepers;
};

// How far one rank is: chunks that it has published, and chunks that it has released.
struct alignas(kShmLine) ShmProgress {
  ShmWord published;
  ShmWord released;
};

// What wakes one rank's background thread.
struct alignas(kShmLine) ShmBell {
  ShmWord rung;
  ShmWord asleep;  // whether ringing has somebody to wake
};

// Why a rank says that the job has failed. Written once, before it is pointed to.
struct alignas(kShmLine) ShmFailure {
  static constexpr std::size_t kTextBytes = 1000;

  std::int32_t code;
  std::uint32_t of_this_rank;  // whether it is the writer's own failure
  char text[kTextBytes];       // ends with a zero
};

// Control messages for one rank: shm_mailbox.h.
struct alignas(kShmLine) ShmMailbox {
  static constexpr std::size_t kWords = 2048;

  std::atomic<std::uint64_t> reserved;                 // words, by all who put something in
  ShmWord room_wanted;                                 // whether one of them waits for room
  alignas(kShmLine) std::atomic<std::uint64_t> taken;  // words, by the owner
  ShmWord closed;                                      // the owner takes nothing any more
  ShmWord left;                                        // and owes nobody anything
  alignas(kShmLine) std::atomic<std::uint64_t> ring[kWords];
};

// The beginning of the segment; all of it is zero when it is new.
struct ShmHeader {
  static constexpr std::size_t kCpuWords = 16;

  std::uint64_t magic;
  std::uint64_t ranks;
  std::uint64_t slot_bytes;
  std::atomic<std::uint64_t> cpus[kCpuWords];  // processors that any rank may run on
  ShmWord first_failed;                        // that rank + 1; 0: none
  ShmGate published[kShmSlots];
  ShmGate released[kShmSlots];
};

// All that a rank has besides its slots.
struct ShmDesk {
  ShmProgress progress;
  ShmBell bell;
  ShmFailure failure;
  ShmMailbox mailbox;
};

// Thread rule: safe for any thread; who may touch which slot when is ShmMeeting's matter.
class ShmSegment {
  struct Mapping {
    UniqueFd descriptor;
    void* memory;
    int ranks;
    std::size_t slot_bytes;
  };

 public:
  static constexpr int kMostRanks = 1024;

  // A new one, without a name anywhere: it is gone when the last process has unmapped it. All its
  // memory is there when this returns, so that no later access fails. REQUIRES: 1 <= ranks <=
  // kMostRanks, slot_bytes is a multiple of 4096. ResourceExhausted or Unavailable with the
  // system's reason.
  static Status Create(int ranks, std::size_t slot_bytes, std::shared_ptr<ShmSegment>* segment);
  // That of another process, by its descriptor. FailedPrecondition if it is not one, or one that
  // somebody could still shorten.
  static Status Map(UniqueFd descriptor, int ranks, std::shared_ptr<ShmSegment>* segment);
  explicit ShmSegment(Mapping mapping);  // for Create and Map
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  static std::size_t Bytes(int ranks, std::size_t slot_bytes);

  int ranks() const { return ranks_; }
  std::size_t slot_bytes() const { return slot_bytes_; }
  std::size_t bytes() const { return bytes_; }
  // To be handed to the other ranks, and closed then: the mapping needs none.
  const UniqueFd& descriptor() const { return descriptor_; }
  void CloseDescriptor() { descriptor_.Reset(); }

  ShmHeader& header() const { return *header_; }
  ShmProgress& progress(int rank) const { return desks_[rank].progress; }
  ShmBell& bell(int rank) const { return desks_[rank].bell; }
  ShmFailure& failure(int rank) const { return desks_[rank].failure; }
  ShmMailbox& mailbox(int rank) const { return desks_[rank].mailbox; }
  // What `rank` brings for chunk number `chunk`.
  unsigned char* slot(int rank, std::uint64_t chunk) const {
    return slots_ + (static_cast<std::size_t>(rank) * kShmSlots + chunk % kShmSlots) * slot_bytes_;
  }
  // What all ranks together make of chunk number `chunk`.
  unsigned char* result(std::uint64_t chunk) const { return slot(ranks_, chunk); }

 private:
  UniqueFd descriptor_;
  const int ranks_;
  const std::size_t slot_bytes_;
  const std::size_t bytes_;
  ShmHeader* const header_;
  ShmDesk* const desks_;
  unsigned char* const slots_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_SHM_SHM_SEGMENT_H_
