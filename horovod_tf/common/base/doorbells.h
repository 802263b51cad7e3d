// Doorbells: how the ranks of one host wake each other's background threads, which otherwise would
// have to look for messages again and again.
#ifndef HOROVOD_TF_COMMON_BASE_DOORBELLS_H_
#define HOROVOD_TF_COMMON_BASE_DOORBELLS_H_

#include <cstdint>

#include "horovod_tf/common/base/clock.h"

namespace horovod_tf {

// One bell for each rank. To miss nothing: read count(), look for what there may be, and only then
// WaitForRing.
//
// Thread rule: Ring and count are for any thread, WaitForRing for the one that this rank's bell
// wakes.
class Doorbells {
 public:
  virtual ~Doorbells() = default;

  // Cheap where nobody sleeps. `rank` may be this one.
  virtual void Ring(int rank) = 0;
  // How often this rank's bell has been rung; counts for ever and wraps around.
  virtual std::uint32_t count() const = 0;
  // Sleeps until count() is not `seen`, or for `limit`; may return early.
  virtual void WaitForRing(std::uint32_t seen, Duration limit) = 0;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_BASE_DOORBELLS_H_
