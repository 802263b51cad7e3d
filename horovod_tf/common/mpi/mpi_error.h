// MPI's return codes as Status, with MPI's own text.
#ifndef HOROVOD_TF_COMMON_MPI_MPI_ERROR_H_
#define HOROVOD_TF_COMMON_MPI_MPI_ERROR_H_

#include <mpi.h>

#include "horovod_tf/common/base/status.h"

namespace horovod_tf {

// OK for MPI_SUCCESS; else Unknown: "MPI_Send failed: <MPI's text>". Works only where the error
// handler is MPI_ERRORS_RETURN, which our communicators have.
Status FromMpi(int code, const char* call);

}  // namespace horovod_tf

#define HVD_MPI_RETURN_IF_ERROR(call, ...) \
  HVD_RETURN_IF_ERROR(::horovod_tf::FromMpi(call(__VA_ARGS__), #call))

#endif  // HOROVOD_TF_COMMON_MPI_MPI_ERROR_H_
