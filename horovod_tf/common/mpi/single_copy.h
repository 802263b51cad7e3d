// Where containers forbid what an MPI copies between processes with.
#ifndef HOROVOD_TF_COMMON_MPI_SINGLE_COPY_H_
#define HOROVOD_TF_COMMON_MPI_SINGLE_COPY_H_

#include <string_view>

#include "horovod_tf/common/base/config.h"

namespace horovod_tf {

// Whether processes like this one may read its memory by process_vm_readv. Docker's and others'
// filters of system calls forbid it to processes without CAP_SYS_PTRACE.
bool MayReadProcesses();

// To be called right before MPI_Init_thread of `mpi_library` ("Open MPI v4.1.8"). Some take
// process_vm_readv for granted: Open MPI 4.1 writes "Read -1, expected ..., errno = 1" for each
// large message and then goes another way, and MPICH ends the job. Where it is forbidden they are
// told not to try, unless the user has chosen, and a line of the log says so. Open MPI 5 finds out
// by itself.
void AvoidForbiddenCopies(std::string_view mpi_library, const Config& config);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_MPI_SINGLE_COPY_H_
