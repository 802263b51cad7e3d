// MpiExchange: a few bytes from every rank to every rank, before the job runs.
#ifndef HOROVOD_TF_COMMON_MPI_MPI_EXCHANGE_H_
#define HOROVOD_TF_COMMON_MPI_MPI_EXCHANGE_H_

#include <memory>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/mpi/mpi_world.h"
#include "horovod_tf/common/shm/rank_exchange.h"

namespace horovod_tf {

// DeadlineExceeded when not all ranks have come until `deadline`.
std::unique_ptr<RankExchange> MakeMpiExchange(std::shared_ptr<MpiWorld> world, TimePoint deadline);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_MPI_MPI_EXCHANGE_H_
