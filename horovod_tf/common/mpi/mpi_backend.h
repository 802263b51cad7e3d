// MpiBackend: collectives of host memory over MPI's point-to-point messages.
//
// Why not MPI_Allreduce: it waits with a whole core, cannot be told that a peer has died, sums in
// an order that depends on the library, rounds float16 at every step, and counts in int. Here each
// rank reduces its own part of the tensor from all ranks' inputs at once, in rank order, scaling in
// the same pass, and hands the result to everybody: every rank and every run gets the same bits.
#ifndef HOROVOD_TF_COMMON_MPI_MPI_BACKEND_H_
#define HOROVOD_TF_COMMON_MPI_MPI_BACKEND_H_

#include <cstddef>
#include <memory>

#include "horovod_tf/common/collectives/collective_backend.h"
#include "horovod_tf/common/mpi/mpi_group.h"
#include "horovod_tf/common/mpi/mpi_world.h"
#include "horovod_tf/common/mpi/p2p.h"

namespace horovod_tf {

// `longest` is for tests of what goes in pieces: see Exchange.
std::unique_ptr<CollectiveBackend> MakeMpiBackend(std::shared_ptr<MpiGroup> group,
                                                  std::size_t longest = kLongestTransfer);
// Of all ranks.
std::unique_ptr<CollectiveBackend> MakeMpiBackend(std::shared_ptr<MpiWorld> world,
                                                  std::size_t longest = kLongestTransfer);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_MPI_MPI_BACKEND_H_
