// MpiTransport: control messages as MPI point-to-point messages on a communicator of our own.
#ifndef HOROVOD_TF_COMMON_MPI_MPI_TRANSPORT_H_
#define HOROVOD_TF_COMMON_MPI_MPI_TRANSPORT_H_

#include <memory>

#include "horovod_tf/common/mpi/mpi_group.h"
#include "horovod_tf/common/mpi/mpi_world.h"
#include "horovod_tf/common/transport/transport.h"

namespace horovod_tf {

// MPI cannot be waited for without polling it, so Wait polls with growing pauses: see
// mpi_transport.cc. All MPI calls are made by the driving thread; Abort from another thread is
// passed to it.
std::unique_ptr<Transport> MakeMpiTransport(std::shared_ptr<MpiGroup> group);
// Of all ranks.
std::unique_ptr<Transport> MakeMpiTransport(std::shared_ptr<MpiWorld> world);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_MPI_MPI_TRANSPORT_H_
