#include "horovod_tf/common/protocol/coordinator_watch.h"

#include <algorithm>

#include "horovod_tf/common/protocol/inquiries.h"

namespace horovod_tf {

CoordinatorWatch::CoordinatorWatch(const StallOptions& options)
    : options_(options), lead_(InquiryLead(options)) {}

void CoordinatorWatch::Restart(TimePoint now) {
  since_ = now;
  asked_.reset();
  warned_.reset();
}

// Silence counts from the question on: who was stopped for a while himself must not blame rank 0.
TimePoint CoordinatorWatch::NextCheck() const {
  if (!options_.enabled) return kNever;
  const bool limited = options_.shutdown_time > Duration::zero();
  if (!asked_.has_value()) {
    const Duration first =
        limited ? std::min(options_.warning_time, options_.shutdown_time) : options_.warning_time;
    return AfterDelay(since_, first - lead_);
  }
  const TimePoint warning = AfterDelay(warned_.value_or(*asked_), options_.warning_time);
  return limited ? std::min(warning, AfterDelay(*asked_, options_.shutdown_time)) : warning;
}

CoordinatorWatch::Verdict CoordinatorWatch::Check(TimePoint now) {
  Verdict verdict;
  if (now < NextCheck()) return verdict;
  if (!asked_.has_value()) {
    asked_ = now;
    verdict.ask = true;
    return verdict;
  }
  const std::string silence = "Rank 0 " + DescribeSilence(now - *asked_);
  if (options_.shutdown_time > Duration::zero() &&
      now >= AfterDelay(*asked_, options_.shutdown_time)) {
    verdict.failure =
        Status::Unknown(silence + ". That is more than the " + SecondsText(options_.shutdown_time) +
                        " that HOROVOD_STALL_SHUTDOWN_TIME_SECONDS allows.");
    return verdict;
  }
  warned_ = now;
  verdict.warning = silence + ". Tensors wait for it here.";
  return verdict;
}

}  // namespace horovod_tf
