// The opening of a job over a transport: every rank says hello to rank 0 and waits for its answer.
#ifndef HOROVOD_TF_COMMON_RUNTIME_OPENING_H_
#define HOROVOD_TF_COMMON_RUNTIME_OPENING_H_

#include <functional>
#include <string>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/config.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/protocol/message.h"
#include "horovod_tf/common/transport/transport.h"

namespace horovod_tf {

// What this rank brings: the library's version, its host, the settings of `config` that all ranks
// must share, and `more`. Settings that only rank 0 uses are not among them.
Hello MakeHello(const Transport& transport, const Config& config,
                const std::vector<std::pair<std::string, std::string>>& more);

// How long a start may take: texts name the one, and the other counts.
struct StartLimit {
  Duration timeout{};
  TimePoint deadline = kNever;
};

// Returns when all ranks have agreed (`*hosts` is then the host of every rank), when they cannot,
// when `limit` is over (the text then says who is missing), or with Cancelled soon after
// `interrupted` says true and the endpoint was woken. For the thread that drives the endpoint.
Status OpenJob(Transport& transport, const Clock& clock, const StartLimit& limit, Hello hello,
               const std::function<bool()>& interrupted, std::vector<std::string>* hosts);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_OPENING_H_
