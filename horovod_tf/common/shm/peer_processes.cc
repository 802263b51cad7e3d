#include "horovod_tf/common/shm/peer_processes.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace horovod_tf {
namespace {

// Newer than some systems' headers; the same number on all processors.
constexpr long kPidfdOpen = 434;

}  // namespace

UniqueFd OpenProcess(pid_t pid) { return UniqueFd(static_cast<int>(syscall(kPidfdOpen, pid, 0))); }

bool PeerProcesses::Ended(int rank) const {
  if (!watches(rank)) return false;
  pollfd process{processes_[static_cast<std::size_t>(rank)].get(), POLLIN, 0};
  // Anything else is about the descriptor, which somebody in this process may have closed.
  return poll(&process, 1, 0) > 0 && (process.revents & POLLIN) != 0;
}

}  // namespace horovod_tf
