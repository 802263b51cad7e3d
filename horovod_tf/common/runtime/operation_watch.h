// OperationWatch: notices that an operation over the ranks does not end, because one that takes
// part in it is stopped or cut off. (A rank that has ended is found by other means, and at once.)
#ifndef HOROVOD_TF_COMMON_RUNTIME_OPERATION_WATCH_H_
#define HOROVOD_TF_COMMON_RUNTIME_OPERATION_WATCH_H_

#include <functional>
#include <optional>
#include <string>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/logging.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/protocol/stall_monitor.h"

namespace horovod_tf {

// Thread rule: for the background thread.
class OperationWatch {
 public:
  // The stall check's times: to whoever waits it is the same whether a rank does not come or does
  // not go on. `clock` and `logger` outlive the watch.
  OperationWatch(const StallOptions& options, const Clock& clock, const Logger& logger)
      : options_(options), clock_(clock), logger_(logger) {}

  // Another operation begins.
  void Restart() { since_.reset(); }
  // For whoever waits inside it, again and again: warns in time, and fails in the end. `what` names
  // the operation. Time counts from the first look on, so that what nobody waits in costs nothing.
  Status Look(const std::function<std::string()>& what);

 private:
  const StallOptions options_;
  const Clock& clock_;
  const Logger& logger_;
  std::optional<TimePoint> since_;
  TimePoint next_warning_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_OPERATION_WATCH_H_
