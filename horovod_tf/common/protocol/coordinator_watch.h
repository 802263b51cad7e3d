// CoordinatorWatch: how the other ranks notice that rank 0 is gone, which watches all but itself.
// Pure: time is an argument.
#ifndef HOROVOD_TF_COMMON_PROTOCOL_COORDINATOR_WATCH_H_
#define HOROVOD_TF_COMMON_PROTOCOL_COORDINATOR_WATCH_H_

#include <optional>
#include <string>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/protocol/stall_monitor.h"

namespace horovod_tf {

// While this rank waits for something and hears nothing of rank 0, it asks rank 0 now and then.
// Who waits for another rank gets an answer at once; then rank 0 watches.
//
// Thread rule: one thread at a time.
class CoordinatorWatch {
 public:
  // The same times as for the stall check, which this belongs to.
  explicit CoordinatorWatch(const StallOptions& options);

  // This rank begins to wait; or a message of rank 0 has come.
  void Restart(TimePoint now);

  // When to call Check while this rank waits.
  TimePoint NextCheck() const;

  struct Verdict {
    bool ask = false;     // send an Inquiry
    std::string warning;  // to be logged, or empty
    Status failure;       // not OK: the job is to be ended
  };
  // Says nothing before NextCheck.
  Verdict Check(TimePoint now);

 private:
  const StallOptions options_;
  const Duration lead_;
  TimePoint since_;                 // of the silence
  std::optional<TimePoint> asked_;  // in this silence
  std::optional<TimePoint> warned_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_PROTOCOL_COORDINATOR_WATCH_H_
