// LocalTransport: N endpoints in one process, N >= 1, joined by a hub. With one endpoint it is the
// product's mode without a launcher; with more it lets tests run N ranks as N threads.
#ifndef HOROVOD_TF_COMMON_TRANSPORT_LOCAL_TRANSPORT_H_
#define HOROVOD_TF_COMMON_TRANSPORT_LOCAL_TRANSPORT_H_

#include <memory>
#include <string>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/transport/transport.h"

namespace horovod_tf {

// One endpoint per entry of `hosts`, in rank order. The endpoints share the hub, which lives until
// the last of them is gone; each may be driven by a thread of its own. `clock` outlives them.
//
// Destroying an endpoint means leaving, which is no failure of the job by itself: at a clean
// shutdown some rank is always the first to go. What it sent still arrives; what is sent to it is
// dropped, and the send is OK; health() stays OK. But nothing more can come from it, so that
// nobody may wait for it: its leaving ends every peer's current or next Wait, and Receive fails
// with Unavailable, naming the rank, once nothing that arrived is left. A Broadcast reaches every
// rank before any can leave: what ends a job goes out as one Broadcast, and then nobody mistakes
// the first to go for a loss. An endpoint that gives up must Abort before it is destroyed.
std::vector<std::unique_ptr<Transport>> MakeLocalTransports(const std::vector<std::string>& hosts,
                                                            const Clock& clock = Clock::Real());

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_TRANSPORT_LOCAL_TRANSPORT_H_
