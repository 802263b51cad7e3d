// ShmMembership: what one rank has of the memory that the ranks of a host share.
#ifndef HOROVOD_TF_COMMON_SHM_SHM_MEMBERSHIP_H_
#define HOROVOD_TF_COMMON_SHM_SHM_MEMBERSHIP_H_

#include <chrono>
#include <memory>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/shm/peer_processes.h"
#include "horovod_tf/common/shm/shm_failure_board.h"
#include "horovod_tf/common/shm/shm_segment.h"

namespace horovod_tf {

// How long a rank waits in which way.
struct ShmPatience {
  Duration spin{};  // awake; zero where ranks outnumber processors
  int yields = 0;   // then: lets others run, so often
  // Then asleep. Each time it wakes up in vain it looks whether the job has failed: first after
  // this, then after twice as long, up to the limit.
  Duration first_sleep = std::chrono::microseconds(500);
  Duration longest_sleep = std::chrono::milliseconds(50);
};
// For ranks that may together run on so many processors.
ShmPatience PatienceFor(int ranks, int processors);

// Copies are the same membership.
struct ShmMembership {
  int rank = 0;
  std::shared_ptr<ShmSegment> segment;
  std::shared_ptr<ShmFailureBoard> failures;
  std::shared_ptr<const PeerProcesses> processes;
  ShmPatience patience;

  int size() const { return segment->ranks(); }
};
// `processes` as for PeerProcesses.
ShmMembership MakeMembership(int rank, std::shared_ptr<ShmSegment> segment,
                             std::vector<UniqueFd> processes, const ShmPatience& patience);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_SHM_SHM_MEMBERSHIP_H_
