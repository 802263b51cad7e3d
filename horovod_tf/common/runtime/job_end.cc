#include "horovod_tf/common/runtime/job_end.h"

#include <vector>

namespace horovod_tf {

void JobEnd::Join(int set, const EndFunction& end) {
  Status why;
  bool failed = false;
  {
    MutexLock lock(mutex_);
    members_[set] = end;
    why = why_;
    failed = failed_;
  }
  if (!why.ok()) end(why, failed);
}

void JobEnd::Leave(int set) {
  MutexLock lock(mutex_);
  members_.erase(set);
}

void JobEnd::Ended(int set, const Status& why, bool failed) {
  std::vector<EndFunction> others;
  {
    MutexLock lock(mutex_);
    if (set != 0 && (!failed || members_.count(set) == 0)) return;
    // A failure after an agreement is still news: somebody may wait for what was agreed.
    if (!why_.ok() && (failed_ || !failed)) return;
    if (why_.ok()) why_ = why;
    failed_ = failed;
    for (const auto& [id, end] : members_) {
      if (id != set) others.push_back(end);
    }
  }
  for (const EndFunction& end : others) end(why, failed);
}

Status JobEnd::why() const {
  MutexLock lock(mutex_);
  return why_;
}

}  // namespace horovod_tf
