// ShmBackend: collectives between the ranks of one host, through memory that they share. See
// docs/shared_memory.md.
#ifndef HOROVOD_TF_COMMON_COLLECTIVES_SHM_BACKEND_H_
#define HOROVOD_TF_COMMON_COLLECTIVES_SHM_BACKEND_H_

#include <memory>

#include "horovod_tf/common/collectives/collective_backend.h"
#include "horovod_tf/common/collectives/shm_meeting.h"

namespace horovod_tf {

// For all ranks of a job or for none of them.
std::unique_ptr<CollectiveBackend> MakeShmBackend(ShmMembership membership);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_COLLECTIVES_SHM_BACKEND_H_
