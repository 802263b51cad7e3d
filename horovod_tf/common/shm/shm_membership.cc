#include "horovod_tf/common/shm/shm_membership.h"

#include <utility>

namespace horovod_tf {
namespace {

// Long enough for a peer that is at work on a chunk, too short to be missed by anybody.
constexpr auto kSpin = std::chrono::microseconds(50);
constexpr int kYields = 4;

}  // namespace

ShmPatience PatienceFor(int ranks, int processors) {
  ShmPatience patience;
  if (processors >= ranks) patience.spin = kSpin;
  patience.yields = kYields;
  return patience;
}

ShmMembership MakeMembership(int rank, std::shared_ptr<ShmSegment> segment,
                             std::vector<UniqueFd> processes, const ShmPatience& patience) {
  ShmMembership membership;
  membership.rank = rank;
  membership.failures = std::make_shared<ShmFailureBoard>(rank, segment);
  membership.segment = std::move(segment);
  membership.processes = std::make_shared<const PeerProcesses>(std::move(processes));
  membership.patience = patience;
  return membership;
}

}  // namespace horovod_tf
