// RankExchange: how the ranks of a job tell each other a few bytes before the job runs. Whoever
// connects the processes (MPI) implements it; tests do it with threads.
#ifndef HOROVOD_TF_COMMON_SHM_RANK_EXCHANGE_H_
#define HOROVOD_TF_COMMON_SHM_RANK_EXCHANGE_H_

#include <string>
#include <vector>

#include "horovod_tf/common/base/status.h"

namespace horovod_tf {

// Thread rule: for the thread that starts the job, before the background thread has started.
class RankExchange {
 public:
  virtual ~RankExchange() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Every rank brings some bytes and gets everybody's, by rank. All ranks call it equally often. An
  // error means that the ranks are not connected any more: the job cannot start.
  virtual Status Gather(const std::string& mine, std::vector<std::string>* all) = 0;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_SHM_RANK_EXCHANGE_H_
