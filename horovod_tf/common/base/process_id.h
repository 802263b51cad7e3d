// ProcessId: which process this is, cheaply enough to ask with every tensor.
#ifndef HOROVOD_TF_COMMON_BASE_PROCESS_ID_H_
#define HOROVOD_TF_COMMON_BASE_PROCESS_ID_H_

#include <sys/types.h>

namespace horovod_tf {

// As getpid(), which is a system call. Right also in a child of fork(), though not in one that was
// made behind the C library's back.
pid_t ProcessId();

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_BASE_PROCESS_ID_H_
