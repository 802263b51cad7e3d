// Doorbells in the memory that the ranks of one host share. See docs/shared_memory.md.
#ifndef HOROVOD_TF_COMMON_COLLECTIVES_SHM_DOORBELLS_H_
#define HOROVOD_TF_COMMON_COLLECTIVES_SHM_DOORBELLS_H_

#include <memory>

#include "horovod_tf/common/base/doorbells.h"
#include "horovod_tf/common/collectives/shm_segment.h"

namespace horovod_tf {

std::shared_ptr<Doorbells> MakeShmDoorbells(int rank, std::shared_ptr<ShmSegment> segment);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_COLLECTIVES_SHM_DOORBELLS_H_
