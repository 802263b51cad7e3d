// Activity: what a rank has done so far, for those who ask.
#ifndef HOROVOD_TF_COMMON_RUNTIME_ACTIVITY_H_
#define HOROVOD_TF_COMMON_RUNTIME_ACTIVITY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/types.h"
#include "horovod_tf/common/protocol/message.h"

namespace horovod_tf {

// Thread rule: for the background thread.
class Activity {
 public:
  explicit Activity(TimePoint start) : when_(start) {}

  // These have been executed together. REQUIRES: not empty.
  void NoteExecuted(const std::vector<const TensorDefinition*>& batch, TimePoint now);
  // All of a report but what waits.
  Report MakeReport(TimePoint now) const;

 private:
  std::uint64_t executed_ = 0;
  // Of the last one; its memory is used again, so that a steady step allocates nothing.
  std::string name_;
  CollectiveKind kind_ = CollectiveKind::kAllreduce;
  TimePoint when_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_ACTIVITY_H_
