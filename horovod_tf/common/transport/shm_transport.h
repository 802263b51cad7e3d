// ShmTransport: control messages between ranks that share memory.
#ifndef HOROVOD_TF_COMMON_TRANSPORT_SHM_TRANSPORT_H_
#define HOROVOD_TF_COMMON_TRANSPORT_SHM_TRANSPORT_H_

#include <functional>
#include <memory>
#include <string>

#include "horovod_tf/common/shm/shm_membership.h"
#include "horovod_tf/common/transport/transport.h"

namespace horovod_tf {

// A rank that waits for others finds out soon when the process of one has ended that has not left
// the job: then the job has failed, with an error that names the rank. See docs/shared_memory.md.
//
// `abandon` may be empty; it is called at the endpoint's end if the job has failed.
std::unique_ptr<Transport> MakeShmTransport(std::string host, ShmMembership membership,
                                            std::function<void()> abandon);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_TRANSPORT_SHM_TRANSPORT_H_
