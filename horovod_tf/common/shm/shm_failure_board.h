// ShmFailureBoard: where the first rank that fails writes down why, for all that share the memory.
#ifndef HOROVOD_TF_COMMON_SHM_SHM_FAILURE_BOARD_H_
#define HOROVOD_TF_COMMON_SHM_SHM_FAILURE_BOARD_H_

#include <memory>

#include "horovod_tf/common/base/mutex.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/shm/shm_segment.h"

namespace horovod_tf {

// Every rank has a place of its own to write to, and the first to have written is the one that all
// read: a rank that dies while it writes blocks nobody.
//
// Thread rule: any thread.
class ShmFailureBoard {
 public:
  // Whose failure it is.
  enum class Subject {
    kThisRank,  // the others read that this rank failed, and why
    kTheJob,    // all read the same: it is about another rank, or about none
  };

  ShmFailureBoard(int rank, std::shared_ptr<ShmSegment> segment);

  // Only the job's first call counts; wakes all that sleep in the shared memory. `cause` is not OK.
  void Tell(Subject subject, const Status& cause);
  // OK, or the first failure, in the words for this rank. Cheap while there is none.
  Status failure() const {
    return segment_->header().first_failed.load(std::memory_order_acquire) == 0 ? Status::Ok()
                                                                                : Read();
  }

 private:
  Status Read() const;
  void WakeAll() const;

  const std::shared_ptr<ShmSegment> segment_;
  const int rank_;
  Mutex mutex_;
  bool written_ HVD_GUARDED_BY(mutex_) = false;  // this rank's place, once for all
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_SHM_SHM_FAILURE_BOARD_H_
