// The collectives over shared memory in which every rank has a block of bytes of its own for every
// rank. See docs/shared_memory.md.
#ifndef HOROVOD_TF_COMMON_COLLECTIVES_SHM_BLOCKS_H_
#define HOROVOD_TF_COMMON_COLLECTIVES_SHM_BLOCKS_H_

#include <cstdint>

#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/collectives/batch.h"
#include "horovod_tf/common/collectives/collective_backend.h"
#include "horovod_tf/common/collectives/host_reduce.h"
#include "horovod_tf/common/collectives/shm_meeting.h"

namespace horovod_tf {

// OK, or Unimplemented: the slots of a segment of many ranks are too short for a place for each.
Status SlotsHavePlaces(const ShmMeeting& meeting);

// REQUIRES, both: SlotsHavePlaces(meeting).ok().
//
// The rows of every rank's input to the ranks that its splits say. `*next_chunk` is the number of
// the first chunk that no operation has used yet; it is moved on, alike on all ranks.
Status ShmAlltoall(const BatchTensor& tensor, ShmMeeting& meeting, std::uint64_t* next_chunk,
                   RunContext& context);

// Reduces this rank's share of the rows, and no others.
Status ShmReducescatter(const BatchTensor& tensor, const Reduction& reduction,
                        const std::vector<int>& absent, ShmMeeting& meeting,
                        std::uint64_t* next_chunk, RunContext& context);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_COLLECTIVES_SHM_BLOCKS_H_
