// How the ranks of a job come to share a segment. See docs/shared_memory.md.
#ifndef HOROVOD_TF_COMMON_SHM_SHM_JOIN_H_
#define HOROVOD_TF_COMMON_SHM_SHM_JOIN_H_

#include <cstddef>
#include <string>

#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/shm/rank_exchange.h"
#include "horovod_tf/common/shm/shm_membership.h"

namespace horovod_tf {

struct ShmOptions {
  bool disable = false;
  std::size_t chunk_bytes = 0;  // rank 0's counts
  std::string host;             // equal on ranks that share memory
};

// Memory for a chunk that keeps the whole segment within `most_bytes`, from `wanted` down.
std::size_t ShmSlotBytes(int ranks, std::size_t wanted, std::size_t most_bytes);

// All ranks share a segment afterwards, or none does: then *reason says why, the same on all of
// them (Unimplemented: it was not to be), and `membership` is untouched. An error is the
// exchange's, and the job cannot start.
Status JoinShm(RankExchange& exchange, const ShmOptions& options, ShmMembership* membership,
               Status* reason);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_SHM_SHM_JOIN_H_
