#include "horovod_tf/common/runtime/operation_watch.h"

namespace horovod_tf {

Status OperationWatch::Look(const std::function<std::string()>& what) {
  if (!options_.enabled) return Status::Ok();
  const TimePoint now = clock_.Now();
  if (!since_.has_value()) {
    since_ = now;
    next_warning_ = AfterDelay(now, options_.warning_time);
  }
  const Duration running = now - *since_;
  if (options_.shutdown_time > Duration::zero() && running >= options_.shutdown_time) {
    return Status::DeadlineExceeded(
        "it has not ended for " + SecondsText(running) + ", which is more than the " +
        SecondsText(options_.shutdown_time) +
        " that HOROVOD_STALL_SHUTDOWN_TIME_SECONDS allows: the process of a rank that takes part "
        "is stopped, or its host is out of reach");
  }
  if (now >= next_warning_) {
    next_warning_ = AfterDelay(now, options_.warning_time);
    logger_.Log(LogLevel::kWarning, "the " + what() + " has not ended for " + SecondsText(running) +
                                        ": the process of a rank that takes part is stopped or "
                                        "overloaded, or its host is out of reach");
  }
  return Status::Ok();
}

}  // namespace horovod_tf
