#include "horovod_tf/common/protocol/round_table.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "horovod_tf/common/base/check.h"
#include "horovod_tf/common/protocol/request_checks.h"

namespace horovod_tf {

std::vector<Request> NamedRound::Requests() const {
  std::vector<Request> requests(announced.size(), first);
  for (const auto& [rank, request] : differing) {
    requests[static_cast<std::size_t>(rank)] = request;
  }
  return requests;
}

std::vector<std::uint32_t> NamedRound::NotAnnounced() const {
  std::vector<std::uint32_t> ranks;
  for (std::size_t rank = 0; rank < announced.size(); ++rank) {
    if (!announced[rank]) ranks.push_back(static_cast<std::uint32_t>(rank));
  }
  return ranks;
}

RoundTable::RoundTable(int size)
    : size_(size),
      words_((static_cast<std::size_t>(size) + 63) / 64),
      absent_(static_cast<std::size_t>(size)) {
  HVD_CHECK(size >= 1, "a process set has at least one rank");
}

void RoundTable::Grow(TensorId id) {
  if (id < rounds_.size()) return;
  rounds_.resize(id + std::size_t{1});
  announced_.resize(rounds_.size() * words_);
}

void RoundTable::OpenId(TensorId id, std::uint64_t usable_from) {
  Grow(id);
  rounds_[id].usable_from = usable_from;
  EndIdRound(id);
}

void RoundTable::OpenCompleteId(TensorId id, std::uint64_t usable_from) {
  OpenId(id, usable_from);
  rounds_[id].missing = 0;
  for (std::size_t i = 0; i < words_; ++i) announced_[id * words_ + i] = ~std::uint64_t{0};
}

void RoundTable::EndIdRound(TensorId id) {
  Round& round = rounds_[id];
  round.missing = size_;
  for (std::size_t i = 0; i < words_; ++i) announced_[id * words_ + i] = 0;
  if (round.differs) differing_.erase(id);
  round.differs = false;
}

RoundTable::Outcome RoundTable::AnnounceIdInFull(TensorId id, int rank, std::uint64_t applied,
                                                 const Request& request, bool differs,
                                                 TimePoint now) {
  const Outcome outcome = Announcer(this, rank, applied, now)(id);
  if (differs && (outcome == Outcome::kCounted || outcome == Outcome::kComplete)) {
    rounds_[id].differs = true;
    differing_[id].emplace_back(rank, request);
  }
  return outcome;
}

bool RoundTable::Waits(TensorId id) const {
  const Round& round = rounds_[id];
  return round.usable_from != kUnusable && round.missing > 0 && round.missing < size_;
}

RoundTable::Outcome RoundTable::AnnounceNamed(int rank, const Request& request, TimePoint now,
                                              NamedRound** round) {
  const auto [entry, opened] = named_.try_emplace(request.name);
  NamedRound& it = entry->second;
  *round = &it;
  if (opened) {
    it.first = request;
    it.announced.resize(static_cast<std::size_t>(size_));
    it.missing = size_;
    it.since = now;
    NoteOpened(now);
  }
  if (it.announced[static_cast<std::size_t>(rank)]) return Outcome::kTwice;
  it.announced[static_cast<std::size_t>(rank)] = true;
  if (request != it.first) it.differing.emplace_back(rank, request);
  if (--it.missing > 0 && !OnlyAbsentMissing(it)) return Outcome::kCounted;
  it.missing = 0;
  --waiting_;
  return Outcome::kComplete;
}

std::vector<std::uint32_t> RoundTable::NotAnnounced(TensorId id) const {
  std::vector<std::uint32_t> ranks;
  for (int rank = 0; rank < size_; ++rank) {
    if (!HasAnnounced(id, rank)) ranks.push_back(static_cast<std::uint32_t>(rank));
  }
  return ranks;
}

bool RoundTable::OnlyAbsentMissing(TensorId id) const {
  if (rounds_[id].missing > absent_count_) return false;
  for (int rank = 0; rank < size_; ++rank) {
    if (!absent_[static_cast<std::size_t>(rank)] && !HasAnnounced(id, rank)) return false;
  }
  return true;
}

bool RoundTable::OnlyAbsentMissing(const NamedRound& round) const {
  if (round.missing > absent_count_) return false;
  for (std::size_t rank = 0; rank < absent_.size(); ++rank) {
    if (!absent_[rank] && !round.announced[rank]) return false;
  }
  return true;
}

std::vector<RoundTable::CompleteRound> RoundTable::SetAbsent(int rank, const TensorTable& table) {
  absent_[static_cast<std::size_t>(rank)] = true;
  ++absent_count_;
  std::map<std::string, CompleteRound> complete;  // the order is nobody's memory layout
  for (TensorId id = 0; id < rounds_.size() && AnyWaiting(); ++id) {
    if (!Waits(id) || !OnlyAbsentMissing(id)) continue;
    rounds_[id].missing = 0;
    complete[table.definition(id).common.name] = {id, nullptr, true};
  }
  for (auto& [name, round] : named_) {
    if (round.missing == 0 || !OnlyAbsentMissing(round)) continue;
    round.missing = 0;
    complete[name] = {0, &round, true};
  }
  waiting_ -= complete.size();
  std::vector<CompleteRound> rounds;
  rounds.reserve(complete.size());
  for (const auto& [name, round] : complete) rounds.push_back(round);
  return rounds;
}

void RoundTable::SetPresent(int rank) {
  absent_[static_cast<std::size_t>(rank)] = false;
  --absent_count_;
}

namespace {

void DropRank(int rank, DifferingRequests* differing) {
  const auto is_its = [rank](const auto& one) { return one.first == rank; };
  differing->erase(std::remove_if(differing->begin(), differing->end(), is_its), differing->end());
}

}  // namespace

bool RoundTable::Withdraw(const std::string& name, int rank, const TensorTable& table) {
  const std::optional<PendingTensor> waiting = WaitingRound(name, table);
  if (!waiting.has_value()) return false;
  const std::vector<int>& ready = waiting->ready_ranks;
  if (!std::binary_search(ready.begin(), ready.end(), rank)) return false;
  if (ready.size() == 1) {
    Abandon(name, table);
  } else if (const std::optional<TensorId> id = table.Find(name)) {
    WithdrawId(*id, rank);
  } else {
    WithdrawNamed(&named_.at(name), rank);
  }
  return true;
}

void RoundTable::WithdrawId(TensorId id, int rank) {
  const auto bit = static_cast<std::size_t>(rank);
  announced_[id * words_ + bit / 64] &= ~(std::uint64_t{1} << (bit % 64));
  Round& round = rounds_[id];
  ++round.missing;
  if (!round.differs) return;
  DropRank(rank, &differing_.at(id));
  if (!differing_.at(id).empty()) return;
  differing_.erase(id);
  round.differs = false;
}

// That `first` may have been this rank's request does no harm: it says what those ask for who do
// not differ from it, and before the round is complete this rank says again what it asks for.
void RoundTable::WithdrawNamed(NamedRound* round, int rank) {
  round->announced[static_cast<std::size_t>(rank)] = false;
  ++round->missing;
  DropRank(rank, &round->differing);
}

std::optional<PendingTensor> RoundTable::WaitingRound(const std::string& name,
                                                      const TensorTable& table) const {
  if (const std::optional<TensorId> id = table.Find(name)) {
    return Waits(*id) ? std::optional(DescribeId(*id, table)) : std::nullopt;
  }
  const auto named = named_.find(name);
  const bool waits = named != named_.end() && named->second.missing > 0;
  return waits ? std::optional(DescribeNamed(named->second)) : std::nullopt;
}

void RoundTable::Abandon(const std::string& name, const TensorTable& table) {
  --waiting_;
  if (const std::optional<TensorId> id = table.Find(name)) {
    EndIdRound(*id);
  } else {
    EndNamedRound(name);
  }
}

std::optional<TimePoint> RoundTable::WaitingSince() const {
  return AnyWaiting() ? std::optional<TimePoint>(waiting_since_) : std::nullopt;
}

bool RoundTable::HasAnnounced(TensorId id, int rank) const {
  const auto bit = static_cast<std::size_t>(rank);
  return ((announced_[id * words_ + bit / 64] >> (bit % 64)) & 1) != 0;
}

namespace {

// Without a number of rows that may differ between ranks, and on any device, as definitions are.
std::string SignatureOf(Request request) {
  if (Info(request.kind).rows_differ() && request.shape.rank() > 0) request.shape.set_dim(0, 0);
  request.splits.clear();
  request.device = kCpuDevice;
  return Describe(request);
}

}  // namespace

PendingTensor RoundTable::DescribeId(TensorId id, const TensorTable& table) const {
  PendingTensor pending;
  pending.name = table.definition(id).common.name;
  pending.since = rounds_[id].since;
  pending.kind = table.definition(id).common.kind;
  pending.signature = SignatureOf(table.definition(id).common);
  for (int rank = 0; rank < size_; ++rank) {
    if (HasAnnounced(id, rank)) {
      pending.ready_ranks.push_back(rank);
    } else if (!absent_[static_cast<std::size_t>(rank)]) {
      pending.missing_ranks.push_back(rank);
    }
  }
  return pending;
}

PendingTensor RoundTable::DescribeNamed(const NamedRound& round) const {
  PendingTensor pending;
  pending.name = round.first.name;
  pending.since = round.since;
  pending.kind = round.first.kind;
  pending.signature = SignatureOf(round.first);
  for (int rank = 0; rank < size_; ++rank) {
    if (round.announced[static_cast<std::size_t>(rank)]) {
      pending.ready_ranks.push_back(rank);
    } else if (!absent_[static_cast<std::size_t>(rank)]) {
      pending.missing_ranks.push_back(rank);
    }
  }
  return pending;
}

std::vector<PendingTensor> RoundTable::Waiting(const TensorTable& table) const {
  std::vector<PendingTensor> waiting;
  if (!AnyWaiting()) return waiting;
  for (TensorId id = 0; id < rounds_.size(); ++id) {
    if (Waits(id)) waiting.push_back(DescribeId(id, table));
  }
  for (const auto& [name, round] : named_) {
    if (round.missing > 0) waiting.push_back(DescribeNamed(round));
  }
  std::sort(waiting.begin(), waiting.end(), [](const PendingTensor& a, const PendingTensor& b) {
    return std::tie(a.since, a.name) < std::tie(b.since, b.name);
  });
  HVD_CHECK(waiting.size() == waiting_, "the count of waiting rounds is kept");
  return waiting;
}

void RoundTable::Clear() {
  rounds_.clear();
  announced_.clear();
  differing_.clear();
  named_.clear();
  waiting_ = 0;
}

}  // namespace horovod_tf
