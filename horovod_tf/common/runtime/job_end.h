// JobEnd: what ends one runtime of a job ends the others. A job has one runtime for all of its
// ranks, and one more for each process set that this rank is a member of.
#ifndef HOROVOD_TF_COMMON_RUNTIME_JOB_END_H_
#define HOROVOD_TF_COMMON_RUNTIME_JOB_END_H_

#include <functional>
#include <map>

#include "horovod_tf/common/base/mutex.h"
#include "horovod_tf/common/base/status.h"

namespace horovod_tf {

// Why a runtime ends: a failure, or (not `failed`) the agreement of its ranks. Not OK.
using EndFunction = std::function<void(const Status& why, bool failed)>;

// Sets are known by their ids; 0 is the job as a whole.
//
// Thread rule: any thread.
class JobEnd {
 public:
  // `end` asks that runtime to end; it may be called on any thread, and does not wait. At once if
  // the job has ended.
  void Join(int set, const EndFunction& end);
  // Its end, from now on, is nobody else's, and the others' not its own.
  void Leave(int set);

  // That runtime has ended. A failure of any is the job's. What the ranks of the job agreed on ends
  // the sets too, and what the ranks of a set agreed on ends nothing else.
  void Ended(int set, const Status& why, bool failed);

  // OK while the job goes on, then why it ended: the first cause.
  Status why() const;

 private:
  mutable Mutex mutex_;
  std::map<int, EndFunction> members_ HVD_GUARDED_BY(mutex_);
  Status why_ HVD_GUARDED_BY(mutex_);
  bool failed_ HVD_GUARDED_BY(mutex_) = false;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_JOB_END_H_
