// Where the ranks of a host may run, and whether that is worth a warning: too many of them, or
// bound so that they leave most of the host idle.
#ifndef HOROVOD_TF_COMMON_RUNTIME_PLACEMENT_H_
#define HOROVOD_TF_COMMON_RUNTIME_PLACEMENT_H_

#include <string>
#include <vector>

#include "horovod_tf/common/base/logging.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/shm/rank_exchange.h"

namespace horovod_tf {

// Thread rule: free functions, safe from any thread.

// One rank, and a bit for each processor that it may use.
struct Placement {
  int rank = 0;
  std::string host;
  std::vector<bool> processors;
};

// A warning for the ranks of `host`, which has `online` processors; empty if there is nothing to
// say. The first that applies: more ranks than processors; a rank bound to one core where its share
// is at least twice that.
std::string JudgePlacement(const std::vector<Placement>& ranks, const std::string& host,
                           int online);

// All ranks call it together; the first of each host logs its warning, if there is one. An error is
// the exchange's.
Status WarnOfPlacement(RankExchange& exchange, const std::string& host, const Logger& logger);
// The same for a process that a launcher started alone.
void WarnOfLonePlacement(const std::string& host, const Logger& logger);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_PLACEMENT_H_
