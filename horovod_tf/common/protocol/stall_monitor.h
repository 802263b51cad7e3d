// Notices tensors that only some ranks have submitted for too long. Pure: time is an argument.
#ifndef HOROVOD_TF_COMMON_PROTOCOL_STALL_MONITOR_H_
#define HOROVOD_TF_COMMON_PROTOCOL_STALL_MONITOR_H_

#include <optional>
#include <string>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/base/types.h"

namespace horovod_tf {

struct StallOptions {
  bool enabled = true;
  Duration warning_time{};   // > 0
  Duration shutdown_time{};  // 0: never
};

// A tensor that not every rank has submitted.
struct PendingTensor {
  std::string name;
  TimePoint since;                 // when its first rank submitted it
  std::vector<int> ready_ranks;    // increasing
  std::vector<int> missing_ranks;  // increasing, not empty
  CollectiveKind kind = CollectiveKind::kAllreduce;
  std::string signature{};  // all but the name that must be equal on all ranks, to compare with
};

// "0-3, 7".
std::string RankList(const std::vector<int>& ranks);
// Who is missing in any of them; increasing.
std::vector<int> MissingRanks(const std::vector<const PendingTensor*>& pending);

struct StallReport {
  // One text for all stalled tensors, empty if there is nothing new to say: names each, with the
  // ranks that are ready and that are missing, and says that ranks submitting different tensors
  // deadlock.
  std::string warning;
  // Not OK once a tensor has waited longer than the shutdown time; names it and the missing ranks.
  Status shutdown;
  // With it: a line for each other tensor that waits, which may be why, and what their names say.
  // Begins with a newline.
  std::string also_waiting;
  // Whom the one or the other complains of.
  std::vector<int> missing_ranks;
};

// Thread rule: one thread at a time.
class StallMonitor {
 public:
  explicit StallMonitor(const StallOptions& options) : options_(options) {}

  // When to call Check next, given the oldest pending tensor's age; kNever if nothing is pending or
  // the check is off.
  TimePoint NextCheck(std::optional<TimePoint> oldest_pending) const;
  // Looks at most once per warning time (calls before NextCheck say nothing).
  StallReport Check(TimePoint now, const std::vector<PendingTensor>& pending);

 private:
  const StallOptions options_;
  std::optional<TimePoint> last_warning_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_PROTOCOL_STALL_MONITOR_H_
