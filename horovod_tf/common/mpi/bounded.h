// Waits for MPI that end in time. MPI's own block until all ranks have come, and the start of a job
// may not: here its operations are begun without waiting, and looked at until the deadline.
#ifndef HOROVOD_TF_COMMON_MPI_BOUNDED_H_
#define HOROVOD_TF_COMMON_MPI_BOUNDED_H_

#include <mpi.h>

#include <functional>
#include <string>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/status.h"

namespace horovod_tf {

// Thread rule: for the one thread that calls MPI.

// Asks `done` again and again, with pauses, until it says so (or fails). DeadlineExceeded at
// `deadline`.
Status AwaitBefore(TimePoint deadline, const std::function<Status(bool*)>& done);

// Until `request` is done. DeadlineExceeded at `deadline`: MPI may then still use its buffers.
Status AwaitBefore(TimePoint deadline, MPI_Request* request);

// The least of what the ranks bring.
Status LeastBefore(TimePoint deadline, MPI_Comm comm, int mine, int* least);

// Everybody's bytes to everybody, by rank.
Status GatherBefore(TimePoint deadline, MPI_Comm comm, const std::string& mine,
                    std::vector<std::string>* all);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_MPI_BOUNDED_H_
