#include "horovod_tf/common/protocol/withdrawals.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace horovod_tf {

Status WithdrawnStatus(const std::string& reason) {
  return Status::Cancelled("withdrawn before all ranks asked for it: " + reason);
}

void Withdrawals::Note(int rank, Withdrawal withdrawal, TimePoint now) {
  pending_[{std::move(withdrawal.name), rank}] =
      Pending{std::move(withdrawal.reason), now, AfterDelay(now, grace_)};
}

void Withdrawals::ComeBack(int rank, const std::string& name) { pending_.erase({name, rank}); }

void Withdrawals::Drop(int rank) {
  for (auto it = pending_.begin(); it != pending_.end();) {
    it = it->first.second == rank ? pending_.erase(it) : std::next(it);
  }
}

TimePoint Withdrawals::NextCheck() const {
  TimePoint next = kNever;
  for (const auto& [key, pending] : pending_) next = std::min(next, pending.due);
  return next;
}

std::vector<Withdrawals::Failure> Withdrawals::Overdue(TimePoint now, const RoundTable& rounds,
                                                       const TensorTable& table) {
  std::vector<Failure> failures;
  for (auto it = pending_.begin(); it != pending_.end();) {
    const auto& [name, rank] = it->first;
    Pending& pending = it->second;
    if (now < pending.due) {
      ++it;
      continue;
    }
    std::optional<PendingTensor> round = rounds.WaitingRound(name, table);
    if (round.has_value() && round->since <= AfterDelay(pending.since, grace_)) {
      // Whoever came late has the same time to wait.
      pending.due = std::max(pending.due, AfterDelay(round->since, grace_));
      if (now < pending.due) {
        ++it;
        continue;
      }
      // Of several ranks that have withdrawn one tensor, the first is named.
      const bool told = !failures.empty() && failures.back().round.name == name;
      if (!told) failures.push_back({*std::move(round), Describe(name, rank, pending)});
    }
    it = pending_.erase(it);
  }
  return failures;
}

Status Withdrawals::Describe(const std::string& name, int rank, const Pending& pending) const {
  const std::string who = "rank " + std::to_string(rank);
  return Status::Unknown(
      "Tensor '" + name + "' cannot be processed: " + who + " asked for it, withdrew it (" +
      pending.reason + ") and has not asked for it again within " + SecondsText(grace_) +
      " (HOROVOD_TF_WITHDRAWAL_GRACE_SECONDS). Look at " + who + " for the first error.");
}

}  // namespace horovod_tf
