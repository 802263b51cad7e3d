// What wakes one rank's background thread, from any process that shares the memory.
#ifndef HOROVOD_TF_COMMON_SHM_SHM_BELL_H_
#define HOROVOD_TF_COMMON_SHM_SHM_BELL_H_

#include <cstdint>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/shm/shm_segment.h"

namespace horovod_tf {

// To miss nothing: read `rung`, look for what there may be, and only then WaitForRing.
//
// Thread rule: Ring is for any thread, WaitForRing for the one that the bell wakes.

// Cheap where nobody sleeps.
void Ring(ShmBell& bell);
void RingAll(const ShmSegment& segment);
// Sleeps until `rung` is not `seen`, or for `limit`; may return early.
void WaitForRing(ShmBell& bell, std::uint32_t seen, Duration limit);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_SHM_SHM_BELL_H_
