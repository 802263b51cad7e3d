// The coordinator's part in join(): who counts as ready without asking, and what the others ask for
// without them.
#include <algorithm>
#include <utility>

#include "horovod_tf/common/protocol/coordinator_impl.h"
#include "horovod_tf/common/protocol/request_checks.h"

namespace horovod_tf {

// After everything that the same message announces.
Status Coordinator::Impl::OnJoin(int rank, const Announce& announce, TimePoint now) {
  if (joins_.Has(rank) && !(announce.known.empty() && announce.requests.empty())) {
    return Violation(rank, "it announced a tensor while it waited in join()");
  }
  if (announce.joins && !joins_.Ask(rank, announce.applied, now)) {
    return Violation(rank, "it joined twice");
  }
  if (!joins_.Settle(rank, announce.applied)) return Status::Ok();
  withdrawals_.Drop(rank);
  for (const Complete& complete : rounds_.SetAbsent(rank, table_)) NoteComplete(complete, now);
  return Status::Ok();
}

// Behind everything that the ranks had asked for before they joined.
void Coordinator::Impl::EndJoins(Log* log) {
  for (int rank = 0; rank < options_.size; ++rank) rounds_.SetPresent(rank);
  log->records.emplace_back(JoinRecord{joins_.last_rank()});
  joins_.Clear();
}

std::vector<PendingTensor> Coordinator::Impl::Pending() const {
  std::vector<PendingTensor> pending = rounds_.Waiting(table_);
  if (std::optional<PendingTensor> join = joins_.Pending()) pending.push_back(*std::move(join));
  return pending;
}

// False: nobody was absent. What ranks ask for without the others runs at once, alone and without
// an id, so that nothing of it is left when they are present again.
bool Coordinator::Impl::ResolveWithoutAbsent(const Complete& complete, Log* log) {
  if (!complete.without_absent) return false;
  NamedRound* const named = complete.named;
  const std::string name = NameOf(complete);
  ExecuteOnceRecord record;
  const std::vector<std::uint32_t> absent =
      named != nullptr ? named->NotAnnounced() : rounds_.NotAnnounced(complete.id);
  const Status status = AgreeWithout(
      absent, named != nullptr ? named->Requests() : RequestsById(complete.id), &record.definition);
  if (named != nullptr) {
    rounds_.EndNamedRound(name);
  } else {
    rounds_.EndIdRound(complete.id);
    table_.NoteExecuted(complete.id);
  }
  if (!status.ok()) {
    // A rank that is absent may have submitted a tensor of this name for later.
    ErrorRecord error{{name}, status, {}};
    for (int rank = 0; rank < options_.size; ++rank) {
      const auto number = static_cast<std::uint32_t>(rank);
      if (!std::binary_search(absent.begin(), absent.end(), number)) error.ranks.push_back(number);
    }
    log->records.emplace_back(std::move(error));
    return true;
  }
  log->records.emplace_back(std::move(record));
  ++executed_;
  return true;
}

const std::string& Coordinator::Impl::NameOf(const Complete& complete) const {
  return complete.named != nullptr ? complete.named->first.name
                                   : table_.definition(complete.id).common.name;
}

// By rank: what its definition says or, where that is not it, what was announced in full.
std::vector<Request> Coordinator::Impl::RequestsById(TensorId id) const {
  const TensorDefinition& definition = table_.definition(id);
  std::vector<Request> requests;
  requests.reserve(static_cast<std::size_t>(options_.size));
  for (int rank = 0; rank < options_.size; ++rank) requests.push_back(definition.RequestOf(rank));
  if (!rounds_.Differs(id)) return requests;
  for (const auto& [rank, request] : rounds_.Differing(id)) {
    requests[static_cast<std::size_t>(rank)] = request;
  }
  return requests;
}

}  // namespace horovod_tf
