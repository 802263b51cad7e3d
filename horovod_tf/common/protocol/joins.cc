#include "horovod_tf/common/protocol/joins.h"

#include <algorithm>
#include <string>

namespace horovod_tf {

bool Joins::Ask(int rank, std::uint64_t applied, TimePoint now) {
  State& state = states_[static_cast<std::size_t>(rank)];
  if (state.asked.has_value()) return false;
  state.asked = now;
  state.counts_from = std::max(applied, forgotten_);
  return true;
}

bool Joins::Settle(int rank, std::uint64_t applied) {
  State& state = states_[static_cast<std::size_t>(rank)];
  if (!state.asked.has_value() || state.joined || applied < state.counts_from) return false;
  state.joined = true;
  ++joined_;
  last_rank_ = rank;
  last_time_ = *state.asked;
  return true;
}

bool Joins::Leave(int rank, bool* joined) {
  State& state = states_[static_cast<std::size_t>(rank)];
  *joined = state.joined;
  if (!state.asked.has_value()) return false;
  if (state.joined) --joined_;
  state = State();
  return true;
}

void Joins::Clear() {
  std::fill(states_.begin(), states_.end(), State());
  joined_ = 0;
}

std::optional<PendingTensor> Joins::Pending() const {
  PendingTensor pending;
  pending.name = std::string(kJoinName);
  pending.since = kNever;
  for (std::size_t rank = 0; rank < states_.size(); ++rank) {
    const State& state = states_[rank];
    (state.joined ? pending.ready_ranks : pending.missing_ranks).push_back(static_cast<int>(rank));
    if (state.joined) pending.since = std::min(pending.since, *state.asked);
  }
  return any() ? std::optional(std::move(pending)) : std::nullopt;
}

}  // namespace horovod_tf
