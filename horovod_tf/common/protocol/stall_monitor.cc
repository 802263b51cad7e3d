#include "horovod_tf/common/protocol/stall_monitor.h"

#include <algorithm>
#include <set>

#include "horovod_tf/common/protocol/numbered_names.h"

namespace horovod_tf {
namespace {

// More would bury what matters: the oldest ones.
constexpr std::size_t kTensorsInWarning = 20;

// "'x' (allreduce) for 61 s [ready ranks: 0-2] [missing ranks: 3]".
std::string Describe(const PendingTensor& tensor, TimePoint now) {
  return "'" + tensor.name + "' (" + std::string(Info(tensor.kind).name) + ") for " +
         SecondsText(now - tensor.since) + " [ready ranks: " + RankList(tensor.ready_ranks) +
         "] [missing ranks: " + RankList(tensor.missing_ranks) + "]";
}

// Those at least `age` old, the oldest first.
std::vector<const PendingTensor*> OlderThan(Duration age, TimePoint now,
                                            const std::vector<PendingTensor>& pending) {
  std::vector<const PendingTensor*> old;
  for (const PendingTensor& tensor : pending) {
    if (AfterDelay(tensor.since, age) <= now) old.push_back(&tensor);
  }
  std::stable_sort(old.begin(), old.end(), [](const PendingTensor* a, const PendingTensor* b) {
    return a->since < b->since;
  });
  return old;
}

// A line for each, but the first.
std::string Others(const std::vector<const PendingTensor*>& pending, TimePoint now) {
  std::string text;
  const std::size_t listed = std::min(pending.size(), kTensorsInWarning);
  for (std::size_t i = 1; i < listed; ++i) text += "\nAlso waiting: " + Describe(*pending[i], now);
  return pending.size() > listed
             ? text + "\n... and " + std::to_string(pending.size() - listed) + " more"
             : text;
}

std::string WarningText(TimePoint now, Duration warning_time,
                        const std::vector<const PendingTensor*>& stalled) {
  std::string text =
      "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of "
      "ranks and are waiting for the remainder of ranks for more than " +
      SecondsText(warning_time) +
      ". This may mean that different ranks submit different tensors, or that only a subset of "
      "ranks submits any (one has left its training loop, or is much slower); ranks that wait for "
      "each other's tensors like this deadlock. Stalled:";
  const std::size_t listed = std::min(stalled.size(), kTensorsInWarning);
  for (std::size_t i = 0; i < listed; ++i) text += "\n" + Describe(*stalled[i], now);
  if (stalled.size() > listed) {
    text += "\n... and " + std::to_string(stalled.size() - listed) + " more";
  }
  return text +
         "\nHOROVOD_STALL_CHECK_TIME_SECONDS changes how long to wait for this warning, "
         "HOROVOD_STALL_CHECK_DISABLE=1 turns it off.";
}

}  // namespace

std::string RankList(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

std::vector<int> MissingRanks(const std::vector<const PendingTensor*>& pending) {
  std::set<int> missing;
  for (const PendingTensor* tensor : pending) {
    missing.insert(tensor->missing_ranks.begin(), tensor->missing_ranks.end());
  }
  return {missing.begin(), missing.end()};
}

TimePoint StallMonitor::NextCheck(std::optional<TimePoint> oldest_pending) const {
  if (!options_.enabled || !oldest_pending.has_value()) return kNever;
  TimePoint next = AfterDelay(*oldest_pending, options_.warning_time);
  if (last_warning_.has_value()) {
    next = std::max(next, AfterDelay(*last_warning_, options_.warning_time));
  }
  if (options_.shutdown_time > Duration::zero()) {
    next = std::min(next, AfterDelay(*oldest_pending, options_.shutdown_time));
  }
  return next;
}

StallReport StallMonitor::Check(TimePoint now, const std::vector<PendingTensor>& pending) {
  StallReport report;
  if (!options_.enabled) return report;
  if (options_.shutdown_time > Duration::zero()) {
    const auto expired = OlderThan(options_.shutdown_time, now, pending);
    if (!expired.empty()) {
      // Those that wait for it may be waited for themselves.
      const auto all = OlderThan(Duration::zero(), now, pending);
      report.missing_ranks = MissingRanks(all);
      report.shutdown =
          Status::Unknown("Not all ranks submitted tensor " + Describe(*expired.front(), now) +
                          ", which is more than the " + SecondsText(options_.shutdown_time) +
                          " that HOROVOD_STALL_SHUTDOWN_TIME_SECONDS allows.");
      report.also_waiting = Others(all, now) + ExplainNumbers(all);
    }
  }
  if (last_warning_.has_value() && now < AfterDelay(*last_warning_, options_.warning_time)) {
    return report;
  }
  const auto stalled = OlderThan(options_.warning_time, now, pending);
  if (stalled.empty()) return report;
  last_warning_ = now;
  report.warning = WarningText(now, options_.warning_time, stalled) +
                   ExplainNumbers(OlderThan(Duration::zero(), now, pending));
  if (report.shutdown.ok()) report.missing_ranks = MissingRanks(stalled);
  return report;
}

}  // namespace horovod_tf
