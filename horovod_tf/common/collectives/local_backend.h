// LocalBackend: collectives between the ranks of one process, which read each other's buffers
// directly. With one rank it is the product's mode without a launcher (copies and scaling); with
// more it lets tests run N ranks as N threads.
#ifndef HOROVOD_TF_COMMON_COLLECTIVES_LOCAL_BACKEND_H_
#define HOROVOD_TF_COMMON_COLLECTIVES_LOCAL_BACKEND_H_

#include <memory>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/collectives/collective_backend.h"

namespace horovod_tf {

// Where the ranks of one process meet. Shared by their backends.
class LocalMeeting;
std::shared_ptr<LocalMeeting> MakeLocalMeeting(int size);

// REQUIRES: 0 <= rank < the meeting's size; one backend per rank. A rank whose batch differs in
// kind, type, sizes or number of tensors from its peers' gets an Internal error that names both, as
// do its peers, where real transports would hang.
std::unique_ptr<CollectiveBackend> MakeLocalBackend(int rank,
                                                    std::shared_ptr<LocalMeeting> meeting);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_COLLECTIVES_LOCAL_BACKEND_H_
