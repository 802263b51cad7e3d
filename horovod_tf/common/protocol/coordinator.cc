#include "horovod_tf/common/protocol/coordinator.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "horovod_tf/common/base/check.h"
#include "horovod_tf/common/protocol/coordinator_impl.h"
#include "horovod_tf/common/protocol/fusion.h"
#include "horovod_tf/common/protocol/request_checks.h"

namespace horovod_tf {
namespace {

// Each tensor's bytes fit, but not the sum of several that no memory could hold. REQUIRES: a and b
// are not negative.
std::int64_t SaturatingAdd(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::int64_t>::max() : sum;
}

// Checks what all ranks asked for and says what it amounts to.
Status Agree(const NamedRound& round, TensorDefinition* definition) {
  const Request& first = round.first;
  // Where nothing is kept by rank, one of many equal requests says as much as all of them.
  const bool one_is_enough =
      round.differing.empty() && !Info(first.kind).rows_differ() && first.device == kCpuDevice;
  const std::vector<Request> requests =
      one_is_enough ? std::vector<Request>{first} : round.Requests();
  HVD_RETURN_IF_ERROR(CheckRequests(requests));
  *definition = Define(requests);
  return Status::Ok();
}

}  // namespace

Status Violation(int rank, const std::string& what) {
  return Status::Internal("Rank " + std::to_string(rank) + " broke the control protocol: " + what +
                          ". Do all ranks run the same build of the library?");
}

Status Coordinator::Impl::OnAnnounce(int rank, const Announce& announce, TimePoint now) {
  if (rank < 0 || rank >= options_.size) {
    return Violation(rank, "there are only ranks 0 to " + std::to_string(options_.size - 1));
  }
  if (stopped_) return Status::Ok();
  std::uint64_t& applied = applied_[static_cast<std::size_t>(rank)];
  if (announce.applied < applied || announce.applied > sequence_) {
    return Violation(rank, "it says that it has applied " + std::to_string(announce.applied) +
                               " log records, after " + std::to_string(applied) + " of the " +
                               std::to_string(sequence_) + " there are");
  }
  applied = announce.applied;
  // First: the requests of the same message may be for the same tensors, asked for again.
  for (const Withdrawal& withdrawal : announce.withdrawn) OnWithdrawal(rank, withdrawal, now);
  HVD_RETURN_IF_ERROR(OnKnown(rank, announce, now));
  for (const Request& request : announce.requests) {
    HVD_RETURN_IF_ERROR(OnRequest(rank, request, announce.applied, now));
  }
  HVD_RETURN_IF_ERROR(OnJoin(rank, announce, now));
  if (announce.shutdown && !shutdown_.has_value()) {
    shutdown_ = ShutdownRequest{rank, announce.shutdown_reason, now};
  }
  return Status::Ok();
}

Status Coordinator::Impl::OnKnown(int rank, const Announce& announce, TimePoint now) {
  RoundTable::Announcer announce_id(&rounds_, rank, announce.applied, now);
  for (const TensorId id : announce.known) {
    const RoundTable::Outcome outcome = announce_id(id);
    if (outcome == RoundTable::Outcome::kUnknownId) {
      HVD_RETURN_IF_ERROR(OnUnknownId(rank, id, announce.applied));
      continue;
    }
    if (outcome == RoundTable::Outcome::kTwice) {
      return Violation(rank, "it announced tensor '" + table_.definition(id).common.name +
                                 "' twice in one round");
    }
    if (observer_ != nullptr || !withdrawals_.empty()) {
      const Request& common = table_.definition(id).common;
      NoteReady(rank, common.name, common.kind);
    }
    if (outcome == RoundTable::Outcome::kComplete) NoteComplete({id, nullptr, joins_.any()}, now);
  }
  return Status::Ok();
}

Status Coordinator::Impl::OnUnknownId(int rank, TensorId id, std::uint64_t applied) const {
  // Forgotten while the announcement was on its way: the rank will see the Forget, which asks it to
  // announce the tensor again in full.
  if (table_.Resting(id, applied)) return Status::Ok();
  return Violation(rank, "it announced tensor id " + std::to_string(id) +
                             ", which has no meaning after log record " + std::to_string(applied));
}

Status Coordinator::Impl::OnRequest(int rank, const Request& request, std::uint64_t applied,
                                    TimePoint now) {
  RoundTable::Outcome outcome = RoundTable::Outcome::kUnknownId;
  Complete complete;
  if (const std::optional<TensorId> id = table_.Find(request.name)) {
    complete.id = *id;
    const bool differs = request != table_.definition(*id).RequestOf(rank);
    outcome = rounds_.AnnounceIdInFull(*id, rank, applied, request, differs, now);
  } else {
    outcome = rounds_.AnnounceNamed(rank, request, now, &complete.named);
  }
  // Not to know of its definition means not to know the end of the round in which it got one.
  if (outcome == RoundTable::Outcome::kTwice || outcome == RoundTable::Outcome::kUnknownId) {
    return Violation(rank, "it announced tensor '" + request.name + "' twice in one round");
  }
  NoteReady(rank, request.name, request.kind);
  complete.without_absent = joins_.any();
  if (outcome == RoundTable::Outcome::kComplete) NoteComplete(complete, now);
  return Status::Ok();
}

// What is complete is decided, and its execution is the answer. And what this rank is not known to
// have announced has been answered while the withdrawal was on its way.
void Coordinator::Impl::OnWithdrawal(int rank, const Withdrawal& withdrawal, TimePoint now) {
  const std::string& name = withdrawal.name;
  bool joined = false;
  if (name == kJoinName && joins_.Leave(rank, &joined)) {
    if (joined) rounds_.SetPresent(rank);
    return AnswerWithdrawal(rank, withdrawal, now);
  }
  if (!withdrawal.announced) return withdrawals_.Note(rank, withdrawal, now);
  if (!rounds_.Withdraw(name, rank, table_)) return;
  if (!rounds_.WaitingRound(name, table_).has_value()) NoteNegotiated(name);
  if (!joins_.Has(rank)) withdrawals_.Note(rank, withdrawal, now);
  AnswerWithdrawal(rank, withdrawal, now);
}

void Coordinator::Impl::AnswerWithdrawal(int rank, const Withdrawal& withdrawal, TimePoint now) {
  const std::string& name = withdrawal.name;
  Status status = WithdrawnStatus(withdrawal.reason);
  const std::vector<std::uint32_t> ranks = {static_cast<std::uint32_t>(rank)};
  if (withdrawn_.empty()) first_withdrawn_ = now;
  ErrorRecord* const last = withdrawn_.empty() ? nullptr : &withdrawn_.back();
  if (last != nullptr && last->ranks == ranks && last->status.message() == status.message()) {
    last->names.push_back(name);
  } else {
    withdrawn_.push_back(ErrorRecord{{name}, std::move(status), ranks});
  }
}

void Coordinator::Impl::NoteReady(int rank, const std::string& name, CollectiveKind kind) {
  if (!withdrawals_.empty()) withdrawals_.ComeBack(rank, name);
  if (observer_ != nullptr) observer_->OnRankReady(name, kind, rank);
}

void Coordinator::Impl::NoteNegotiated(const std::string& name) {
  if (observer_ != nullptr) observer_->OnNegotiated(name);
}

void Coordinator::Impl::NoteComplete(Complete complete, TimePoint now) {
  if (complete_.empty() && ready_.empty()) first_complete_ = now;
  complete_.push_back(complete);
}

void Coordinator::Impl::Advance(TimePoint now, Log* log) {
  log->first_sequence = sequence_;
  log->records.clear();
  if (stopped_) return;
  if (table_.AnyResting()) table_.EndRest(*std::min_element(applied_.begin(), applied_.end()));
  Resolve(log);
  AnswerWithdrawals(now, log);
  if (ShouldExecute(now) || joins_.all()) Execute(log);
  if (joins_.all()) EndJoins(log);
  if (shutdown_.has_value()) {
    const std::string rank = std::to_string(shutdown_->rank);
    const std::string reason =
        shutdown_->reason.empty() ? std::string("no reason given") : shutdown_->reason;
    Stop(shutdown_->rank,
         Status::Unknown("Horovod has been shut down: rank " + rank + " asked for it (" + reason +
                         "). Every rank stops together; look at rank " + rank +
                         " if that was not meant to happen."),
         log);
  } else {
    CheckStalls(now, log);
  }
  if (!stopped_) MakeRoom(log);
  sequence_ = Next(*log);
}

// Checks what has become complete: what is wrong is answered at once, the rest is ready.
void Coordinator::Impl::Resolve(Log* log) {
  for (Complete& complete : complete_) {
    NoteNegotiated(NameOf(complete));
    if (ResolveWithoutAbsent(complete, log)) continue;
    if (complete.named != nullptr) {
      if (!ResolveNamed(&complete, log)) continue;
    } else if (rounds_.Differs(complete.id)) {
      if (!ResolveDiffering(complete.id, log)) continue;
    }
    ready_.push_back(complete);
    candidates_.push_back(complete.named == nullptr
                              ? table_.candidate(complete.id)
                              : FusionCandidate{kNeverFused, complete.named->definition.bytes()});
    ready_bytes_ = SaturatingAdd(ready_bytes_, candidates_.back().bytes);
  }
  complete_.clear();
}

bool Coordinator::Impl::ResolveNamed(Complete* complete, Log* log) {
  NamedRound* const round = complete->named;
  const std::string name = round->first.name;
  const Status status = Agree(*round, &round->definition);
  if (!status.ok()) {
    rounds_.EndNamedRound(name);
    Fail(name, status, log);
    return false;
  }
  const std::optional<TensorId> id = table_.Define(round->definition);
  if (!id.has_value()) {
    ++ids_wanted_;
    return true;
  }
  *complete = {*id, nullptr, false};
  log->records.emplace_back(DefineRecord{*id, std::move(round->definition)});
  rounds_.OpenCompleteId(*id, Next(*log));
  rounds_.EndNamedRound(name);
  return true;
}

bool Coordinator::Impl::ResolveDiffering(TensorId id, Log* log) {
  const std::vector<Request> requests = RequestsById(id);
  const Status status = CheckRequests(requests);
  if (!status.ok()) {
    rounds_.EndIdRound(id);
    Fail(table_.definition(id).common.name, status, log);  // the old definition stays
    return false;
  }
  log->records.emplace_back(DefineRecord{id, Define(requests)});
  table_.Redefine(id, std::get<DefineRecord>(log->records.back()).definition);
  rounds_.OpenCompleteId(id, Next(*log));
  return true;
}

void Coordinator::Impl::Fail(const std::string& name, Status status, Log* log) {
  log->records.emplace_back(ErrorRecord{{name}, std::move(status)});
}

void Coordinator::Impl::AnswerWithdrawals(TimePoint now, Log* log) {
  for (ErrorRecord& record : withdrawn_) log->records.emplace_back(std::move(record));
  withdrawn_.clear();
  if (withdrawals_.empty()) return;
  for (Withdrawals::Failure& failure : withdrawals_.Overdue(now, rounds_, table_)) {
    const std::string name = failure.round.name;
    const std::vector<int>& waiting = failure.round.ready_ranks;
    rounds_.Abandon(name, table_);
    NoteNegotiated(name);
    log->records.emplace_back(
        ErrorRecord{{name}, std::move(failure.status), {waiting.begin(), waiting.end()}});
  }
}

bool Coordinator::Impl::ShouldExecute(TimePoint now) const {
  if (ready_.empty()) return false;
  if (options_.fusion_threshold <= 0 || ready_bytes_ >= options_.fusion_threshold) return true;
  return !rounds_.AnyWaiting() || now >= AfterDelay(first_complete_, options_.cycle_time);
}

void Coordinator::Impl::Execute(Log* log) {
  executed_ += ready_.size();
  for (const std::vector<std::size_t>& batch : PlanFusion(candidates_, options_.fusion_threshold)) {
    if (NamedRound* const named = ready_[batch.front()].named) {
      const std::string name = named->first.name;
      log->records.emplace_back(ExecuteOnceRecord{std::move(named->definition)});
      rounds_.EndNamedRound(name);
      continue;
    }
    ExecuteRecord execute;
    execute.ids.reserve(batch.size());
    for (const std::size_t i : batch) execute.ids.push_back(ready_[i].id);
    std::sort(execute.ids.begin(), execute.ids.end());
    for (const TensorId id : execute.ids) {
      rounds_.EndIdRound(id);
      table_.NoteExecuted(id);
    }
    log->records.emplace_back(std::move(execute));
  }
  ready_.clear();
  candidates_.clear();
  ready_bytes_ = 0;
}

// Evicts for tensors that found the table full, after everything that this log executes. They get
// an id when they come again and all ranks know that the old meanings are gone.
void Coordinator::Impl::MakeRoom(Log* log) {
  const std::size_t wanted = std::exchange(ids_wanted_, 0);
  if (wanted == 0 || table_.AnyResting()) return;  // room is already coming
  const std::size_t some_more = table_.size() / 64;
  std::vector<TensorId> victims = table_.Evict(
      std::max(wanted, some_more), [this](TensorId id) { return !rounds_.Idle(id); }, Next(*log));
  if (victims.empty()) return;
  for (const TensorId id : victims) rounds_.CloseId(id);
  log->records.emplace_back(ForgetRecord{std::move(victims)});
  joins_.NoteForgotten(Next(*log));
}

void Coordinator::Impl::CheckStalls(TimePoint now, Log* log) {
  if (now < NextStallCheck()) return;
  const std::vector<PendingTensor> waiting = rounds_.Waiting(table_);
  if (waiting.empty()) return;
  rounds_.RefineWaitingSince(waiting.front().since);
  AskMissingRanks(waiting, now);
  StallReport report = stall_monitor_.Check(now, waiting);
  const std::string they = inquiries_.Describe(report.missing_ranks, now);
  if (!report.warning.empty()) warnings_.push_back(report.warning + they);
  if (report.shutdown.ok()) return;
  Stop(0,
       Status::FromCode(report.shutdown.code(),
                        report.shutdown.message() + " The ranks have executed " +
                            std::to_string(executed_) + " collectives; this is number " +
                            std::to_string(executed_ + 1) + "." + report.also_waiting + they),
       log);
}

TimePoint Coordinator::Impl::NextStallCheck() const {
  return inquiries_.NextAsk(stall_monitor_.NextCheck(rounds_.WaitingSince()));
}

void Coordinator::Impl::AskMissingRanks(const std::vector<PendingTensor>& waiting, TimePoint now) {
  const TimePoint complaint = stall_monitor_.NextCheck(waiting.front().since);
  std::vector<const PendingTensor*> all;
  all.reserve(waiting.size());
  for (const PendingTensor& tensor : waiting) all.push_back(&tensor);
  const std::vector<int> asked = inquiries_.Ask(complaint, MissingRanks(all), now);
  to_ask_.insert(to_ask_.end(), asked.begin(), asked.end());
}

// What every rank has asked for is still done; the rest is given up.
void Coordinator::Impl::Stop(int rank, Status status, Log* log) {
  if (!ready_.empty()) Execute(log);
  if (observer_ != nullptr) {
    for (const PendingTensor& pending : Pending()) NoteNegotiated(pending.name);
  }
  log->records.emplace_back(ShutdownRecord{rank, std::move(status)});
  stopped_ = true;
  rounds_.Clear();
  withdrawals_.Clear();
}

TimePoint Coordinator::Impl::NextDeadline() const {
  if (stopped_) return kNever;
  TimePoint deadline = NextStallCheck();
  deadline = std::min(deadline, withdrawals_.NextCheck());
  if (!withdrawn_.empty()) deadline = std::min(deadline, first_withdrawn_);  // Advance is due
  if (!complete_.empty()) deadline = std::min(deadline, first_complete_);    // and here
  if (joins_.all()) deadline = std::min(deadline, joins_.last_time());
  if (!ready_.empty()) {
    deadline = std::min(deadline, AfterDelay(first_complete_, options_.cycle_time));
  }
  if (shutdown_.has_value()) deadline = std::min(deadline, shutdown_->when);
  return deadline;
}

Coordinator::Coordinator(const CoordinatorOptions& options, NegotiationObserver* observer)
    : impl_(std::make_unique<Impl>(options, observer)) {}
Coordinator::~Coordinator() = default;

Status Coordinator::OnAnnounce(int rank, const Announce& announce, TimePoint now) {
  return impl_->OnAnnounce(rank, announce, now);
}
void Coordinator::Advance(TimePoint now, Log* log) { impl_->Advance(now, log); }
TimePoint Coordinator::NextDeadline() const { return impl_->NextDeadline(); }
std::vector<std::string> Coordinator::TakeWarnings() { return impl_->TakeWarnings(); }
std::vector<int> Coordinator::TakeInquiries() { return impl_->TakeInquiries(); }
void Coordinator::OnReport(int rank, Report report, TimePoint now) {
  impl_->OnReport(rank, std::move(report), now);
}
std::vector<PendingTensor> Coordinator::Pending() const { return impl_->Pending(); }
bool Coordinator::stopped() const { return impl_->stopped(); }

}  // namespace horovod_tf
