#include "horovod_tf/common/runtime/control_loop.h"

#include <cstdint>
#include <utility>
#include <variant>

#include "horovod_tf/common/protocol/withdrawals.h"
#include "horovod_tf/common/runtime/inbox.h"

namespace horovod_tf {
namespace {

StallOptions MakeStallOptions(const Config& config) {
  StallOptions options;
  options.enabled = !config.stall_check_disable;
  options.warning_time = config.stall_warning_time;
  options.shutdown_time = config.stall_shutdown_time;
  return options;
}

std::unique_ptr<Coordinator> MakeCoordinator(const LoopSurroundings& with) {
  if (with.transport.rank() != 0) return nullptr;
  CoordinatorOptions options;
  options.size = with.transport.size();
  options.fusion_threshold = with.config.fusion_threshold_bytes;
  options.capacity = with.config.cache_capacity;
  options.cycle_time = with.config.cycle_time;
  options.withdrawal_grace = with.config.withdrawal_grace;
  options.stall = MakeStallOptions(with.config);
  return std::make_unique<Coordinator>(options, with.timeline);
}

}  // namespace

ControlLoop::ControlLoop(const LoopSurroundings& surroundings)
    : with_(surroundings),
      negotiator_(with_.transport.rank(), with_.transport.size()),
      coordinator_(MakeCoordinator(with_)),
      watch_(MakeStallOptions(with_.config)),
      activity_(with_.clock.Now()),
      executor_(with_.backends, with_.transport,
                OperationWatch(MakeStallOptions(with_.config), with_.clock, with_.logger),
                with_.timeline) {}

Status ControlLoop::Turn(bool* worked) {
  std::vector<TensorWithdrawal> withdrawn;
  std::vector<TensorEntry> entries = with_.queue.TakeNew(&withdrawn);
  *worked = !entries.empty() || !withdrawn.empty();
  if (with_.status_desk.TakeQuestion()) HVD_RETURN_IF_ERROR(AnswerStatusDesk());
  Submit(std::move(entries));
  Withdraw(withdrawn);
  HVD_RETURN_IF_ERROR(TakeMessages(worked));
  if (stopped()) return Status::Ok();
  const Status sent = AnnounceNew(worked);
  if (!sent.ok()) {
    // Rank 0 may have told everybody to stop and left while we were looking elsewhere: then its
    // last message is here, and that nobody takes ours is no failure.
    const Status last_messages = TakeMessages(worked);
    return stopped() ? Status::Ok() : sent;
  }
  return coordinator_ != nullptr ? Decide(worked) : WatchCoordinator();
}

TimePoint ControlLoop::NextDeadline() const {
  if (coordinator_ != nullptr) return coordinator_->NextDeadline();
  return waits() ? watch_.NextCheck() : kNever;
}

Expectation ControlLoop::expectation() const {
  return waits() ? Expectation::kAnswer : Expectation::kNothing;
}

void ControlLoop::RequestShutdown(std::string reason) {
  if (!waits()) watch_.Restart(with_.clock.Now());
  asked_to_stop_ = true;
  negotiator_.RequestShutdown(std::move(reason));
}

void ControlLoop::Submit(std::vector<TensorEntry> entries) {
  if (entries.empty()) return;
  const TimePoint now = with_.clock.Now();
  if (!waits()) watch_.Restart(now);
  for (TensorEntry& entry : entries) {
    const Token token = in_flight_.Add(std::move(entry), now);
    if (in_flight_.Joins(token)) {
      negotiator_.Join(token);
    } else {
      negotiator_.Submit(in_flight_.RequestOf(token), token);
    }
  }
}

// A tensor that is not in flight any more has been answered, or its operation runs: all ranks take
// part in it, so it ends.
void ControlLoop::Withdraw(const std::vector<TensorWithdrawal>& withdrawn) {
  for (const TensorWithdrawal& withdrawal : withdrawn) {
    const TimePoint latest = with_.clock.Now() - withdrawal.waited;
    for (const Token token : in_flight_.FindAll(withdrawal.ticket, latest)) {
      if (negotiator_.Withdraw(in_flight_.RequestOf(token).name, withdrawal.reason)) {
        FinishAll(in_flight_.Take({token}), WithdrawnStatus(withdrawal.reason));
      }
    }
  }
}

// Also the one place that learns of a peer's failure, after everything that came before it.
Status ControlLoop::TakeMessages(bool* worked) {
  while (!stopped()) {
    Received received;
    bool got = false;
    HVD_RETURN_IF_ERROR(TakeMessage(with_.transport, &received, &got));
    if (!got) break;
    *worked = true;
    HVD_RETURN_IF_ERROR(Take(std::move(received)));
  }
  return Status::Ok();
}

// Rank 0 talks with all others, and they with nobody else.
Status ControlLoop::Take(Received received) {
  if (coordinator_ == nullptr && received.from != 0) {
    return UnexpectedMessage(received, with_.transport.rank());
  }
  const TimePoint now = with_.clock.Now();
  if (coordinator_ == nullptr) watch_.Restart(now);
  if (std::holds_alternative<Inquiry>(received.message)) return Answer(received.from);
  Report* const report = std::get_if<Report>(&received.message);
  if (report != nullptr) {
    if (coordinator_ != nullptr) {
      coordinator_->OnReport(received.from, std::move(*report), now);
    } else {
      with_.status_desk.SayWaiting(std::move(report->waiting));
    }
    return Status::Ok();
  }
  const Announce* const announce = std::get_if<Announce>(&received.message);
  if (coordinator_ != nullptr && announce != nullptr) {
    return coordinator_->OnAnnounce(received.from, *announce, now);
  }
  const Log* const log = std::get_if<Log>(&received.message);
  if (coordinator_ == nullptr && log != nullptr) return Apply(*log);
  return UnexpectedMessage(received, with_.transport.rank());
}

Status ControlLoop::Answer(int rank) {
  const TimePoint now = with_.clock.Now();
  Report report = MakeReport(now);
  if (coordinator_ != nullptr) report.waiting = JobWaits(now);
  return with_.transport.Send(rank, EncodeMessage(std::move(report)));
}

Report ControlLoop::MakeReport(TimePoint now) const {
  Report report = activity_.MakeReport(now);
  report.waiting = in_flight_.Oldest(kMaxWaitingInReport, now);
  return report;
}

Status ControlLoop::AnnounceNew(bool* worked) {
  Announce announce;
  if (!negotiator_.TakeAnnounce(&announce)) return Status::Ok();
  *worked = true;
  if (coordinator_ != nullptr) return coordinator_->OnAnnounce(0, announce, with_.clock.Now());
  return with_.transport.Send(0, EncodeMessage(std::move(announce)));
}

Status ControlLoop::Decide(bool* worked) {
  Log log;
  coordinator_->Advance(with_.clock.Now(), &log);
  for (const std::string& warning : coordinator_->TakeWarnings()) {
    with_.logger.Log(LogLevel::kWarning, warning);
  }
  HVD_RETURN_IF_ERROR(AskMissingRanks());
  if (log.records.empty()) return Status::Ok();
  *worked = true;
  if (with_.transport.size() == 1) return Apply(log);
  // The others first, so that all ranks start the operations together.
  Message message = std::move(log);
  HVD_RETURN_IF_ERROR(with_.transport.Broadcast(EncodeMessage(message)));
  return Apply(std::get<Log>(message));
}

std::vector<WaitingTensor> ControlLoop::JobWaits(TimePoint now) const {
  std::vector<WaitingTensor> waiting;
  for (const PendingTensor& tensor : coordinator_->Pending()) {
    if (waiting.size() == kMaxWaitingInReport) break;
    waiting.push_back({tensor.name,
                       Milliseconds(now - tensor.since),
                       {tensor.missing_ranks.begin(), tensor.missing_ranks.end()}});
  }
  return waiting;
}

// Who is missing is for rank 0 to say.
Status ControlLoop::AnswerStatusDesk() {
  const TimePoint now = with_.clock.Now();
  Report report = MakeReport(now);
  const bool complete = report.waiting.empty();
  with_.status_desk.SayHere(std::move(report), complete);
  if (complete) return Status::Ok();
  if (coordinator_ == nullptr) return with_.transport.Send(0, EncodeMessage(Inquiry()));
  with_.status_desk.SayWaiting(JobWaits(now));
  return Status::Ok();
}

Status ControlLoop::AskMissingRanks() {
  for (const int rank : coordinator_->TakeInquiries()) {
    if (rank == 0) {
      const TimePoint now = with_.clock.Now();
      coordinator_->OnReport(0, MakeReport(now), now);
    } else {
      HVD_RETURN_IF_ERROR(with_.transport.Send(rank, EncodeMessage(Inquiry())));
    }
  }
  return Status::Ok();
}

Status ControlLoop::WatchCoordinator() {
  if (stopped() || !waits() || with_.clock.Now() < watch_.NextCheck()) return Status::Ok();
  const CoordinatorWatch::Verdict verdict = watch_.Check(with_.clock.Now());
  HVD_RETURN_IF_ERROR(verdict.failure);
  if (!verdict.warning.empty()) with_.logger.Log(LogLevel::kWarning, verdict.warning);
  return verdict.ask ? with_.transport.Send(0, EncodeMessage(Inquiry())) : Status::Ok();
}

Status ControlLoop::Apply(const Log& log) {
  std::vector<Response> responses;
  HVD_RETURN_IF_ERROR(negotiator_.OnLog(log, &responses));
  for (Response& response : responses) {
    HVD_RETURN_IF_ERROR(Act(response));
  }
  return Status::Ok();
}

Status ControlLoop::Act(Response& response) {
  switch (response.type) {
    case Response::Type::kExecute:
      HVD_RETURN_IF_ERROR(
          response.tokens.empty()
              ? executor_.ExecuteAbsent(*response.definitions.front())
              : executor_.Execute(in_flight_.Take(response.tokens), response.definitions));
      activity_.NoteExecuted(response.definitions, with_.clock.Now());
      break;
    case Response::Type::kError:
      FinishAll(in_flight_.Take(response.tokens), response.status);
      break;
    case Response::Type::kShutdown:
      if (response.status.ok()) return Status::Internal("rank 0 ended the job without a reason");
      shutdown_ = response.status;
      break;
    case Response::Type::kJoined:
      executor_.EndAbsence();
      std::vector<TensorEntry> joins = in_flight_.Take(response.tokens);
      for (const TensorEntry& join : joins) {
        *static_cast<std::int32_t*>(join.output.data) = response.last_rank;
      }
      FinishAll(std::move(joins), Status::Ok());
      break;
  }
  return Status::Ok();
}

}  // namespace horovod_tf
