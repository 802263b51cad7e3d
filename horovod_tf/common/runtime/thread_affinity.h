// BindThisThread: keeps a thread on one processor.
#ifndef HOROVOD_TF_COMMON_RUNTIME_THREAD_AFFINITY_H_
#define HOROVOD_TF_COMMON_RUNTIME_THREAD_AFFINITY_H_

#include "horovod_tf/common/base/config.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/transport/topology.h"

namespace horovod_tf {

// Binds the calling thread, and threads that it starts later, to what the configuration says for a
// background thread of this local rank; does nothing where it says nothing. InvalidArgument if it
// has too few processors for this host, or this process may not use the one that it names.
Status BindThisThread(const Config& config, const Topology& topology);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_THREAD_AFFINITY_H_
