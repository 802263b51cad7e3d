// PeerProcesses: whether the processes of a job's other ranks still run.
#ifndef HOROVOD_TF_COMMON_SHM_PEER_PROCESSES_H_
#define HOROVOD_TF_COMMON_SHM_PEER_PROCESSES_H_

#include <sys/types.h>

#include <utility>
#include <vector>

#include "horovod_tf/common/shm/unique_fd.h"

namespace horovod_tf {

// A handle on a process that stays its own when the number is used again; invalid where the system
// has none (pidfd_open), or the process has ended.
UniqueFd OpenProcess(pid_t pid);

// Thread rule: any thread.
class PeerProcesses {
 public:
  // By rank; invalid for those that are not watched. Empty: nobody is.
  explicit PeerProcesses(std::vector<UniqueFd> processes) : processes_(std::move(processes)) {}

  bool watches(int rank) const {
    return static_cast<std::size_t>(rank) < processes_.size() &&
           processes_[static_cast<std::size_t>(rank)].valid();
  }
  // False also where it is not known.
  bool Ended(int rank) const;

 private:
  const std::vector<UniqueFd> processes_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_SHM_PEER_PROCESSES_H_
