// Joins: which ranks have no more data and wait for the others to finish theirs.
#ifndef HOROVOD_TF_COMMON_PROTOCOL_JOINS_H_
#define HOROVOD_TF_COMMON_PROTOCOL_JOINS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/protocol/message.h"
#include "horovod_tf/common/protocol/stall_monitor.h"

namespace horovod_tf {

// The coordinator's. Thread rule: one thread at a time.
class Joins {
 public:
  explicit Joins(int size) : states_(static_cast<std::size_t>(size)) {}

  // Ids have been forgotten by the record before number `sequence`.
  void NoteForgotten(std::uint64_t sequence) { forgotten_ = sequence; }

  // `rank`, which has applied so many records, joins. False: it has asked for that already.
  bool Ask(int rank, std::uint64_t applied, TimePoint now);
  // To be called after each announcement of a rank. True: it counts as joined from now on. A rank
  // that did not know of forgotten ids when it joined has something to announce again, perhaps, and
  // counts only when it has applied the record.
  bool Settle(int rank, std::uint64_t applied);
  // It does not join any more. False: it has not asked. `*joined`: it did count.
  bool Leave(int rank, bool* joined);

  bool Has(int rank) const { return states_[static_cast<std::size_t>(rank)].joined; }
  bool any() const { return joined_ > 0; }
  bool all() const { return joined_ == static_cast<int>(states_.size()); }
  // Who came last, and when. REQUIRES: any().
  int last_rank() const { return last_rank_; }
  TimePoint last_time() const { return last_time_; }
  // All are present again.
  void Clear();

  // As a tensor that waits for the ranks that have not joined; nothing if nobody waits.
  std::optional<PendingTensor> Pending() const;

 private:
  struct State {
    std::optional<TimePoint> asked;
    std::uint64_t counts_from = 0;  // once the rank has applied so many records
    bool joined = false;
  };

  std::vector<State> states_;  // by rank
  int joined_ = 0;
  int last_rank_ = 0;
  TimePoint last_time_;
  std::uint64_t forgotten_ = 0;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_PROTOCOL_JOINS_H_
