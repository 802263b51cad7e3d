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
// the last of them is gone; each may be driven by a thread of its own. An endpoint that is
// destroyed counts as lost if the others still send to it. `clock` outlives them.
std::vector<std::unique_ptr<Transport>> MakeLocalTransports(const std::vector<std::string>& hosts,
                                                            const Clock& clock = Clock::Real());

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_TRANSPORT_LOCAL_TRANSPORT_H_
