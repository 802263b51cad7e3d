#include "horovod_tf/common/shm/shm_bell.h"

#include "horovod_tf/common/shm/shm_futex.h"

namespace horovod_tf {

// Whoever is about to sleep says so before it looks at the count for the last time, and whoever
// rings counts before it looks whether somebody sleeps: one of them sees the other.
void Ring(ShmBell& bell) {
  bell.rung.fetch_add(1, std::memory_order_seq_cst);
  if (bell.asleep.load(std::memory_order_seq_cst) != 0) FutexWakeAll(bell.rung);
}

void RingAll(const ShmSegment& segment) {
  for (int rank = 0; rank < segment.ranks(); ++rank) Ring(segment.bell(rank));
}

void WaitForRing(ShmBell& bell, std::uint32_t seen, Duration limit) {
  if (limit <= Duration::zero()) return;
  bell.asleep.store(1, std::memory_order_seq_cst);
  if (bell.rung.load(std::memory_order_seq_cst) == seen) FutexWait(bell.rung, seen, limit);
  bell.asleep.store(0, std::memory_order_relaxed);
}

}  // namespace horovod_tf
