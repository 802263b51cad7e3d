#include "horovod_tf/common/runtime/control_loop.h"

#include <utility>
#include <variant>

#include "horovod_tf/common/protocol/withdrawals.h"
#include "horovod_tf/common/runtime/inbox.h"

namespace horovod_tf {
namespace {

std::unique_ptr<Coordinator> MakeCoordinator(const LoopSurroundings& with) {
  if (with.transport.rank() != 0) return nullptr;
  CoordinatorOptions options;
  options.size = with.transport.size();
  options.fusion_threshold = with.config.fusion_threshold_bytes;
  options.capacity = with.config.cache_capacity;
  options.cycle_time = with.config.cycle_time;
  options.withdrawal_grace = with.config.withdrawal_grace;
  options.stall.enabled = !with.config.stall_check_disable;
  options.stall.warning_time = with.config.stall_warning_time;
  options.stall.shutdown_time = with.config.stall_shutdown_time;
  return std::make_unique<Coordinator>(options, with.timeline);
}

}  // namespace

ControlLoop::ControlLoop(const LoopSurroundings& surroundings)
    : with_(surroundings),
      negotiator_(with_.transport.rank(), with_.transport.size()),
      coordinator_(MakeCoordinator(with_)),
      executor_(with_.backends, with_.transport, with_.timeline) {}

Status ControlLoop::Turn(bool* worked) {
  std::vector<TicketWithdrawal> withdrawn;
  std::vector<TensorEntry> entries = with_.queue.TakeNew(&withdrawn);
  *worked = !entries.empty() || !withdrawn.empty();
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
  return coordinator_ != nullptr ? Decide(worked) : Status::Ok();
}

TimePoint ControlLoop::NextDeadline() const {
  return coordinator_ != nullptr ? coordinator_->NextDeadline() : kNever;
}

Expectation ControlLoop::expectation() const {
  const bool waits = !in_flight_.empty() || asked_to_stop_;
  return waits ? Expectation::kAnswer : Expectation::kNothing;
}

void ControlLoop::RequestShutdown(std::string reason) {
  asked_to_stop_ = true;
  negotiator_.RequestShutdown(std::move(reason));
}

void ControlLoop::Submit(std::vector<TensorEntry> entries) {
  for (TensorEntry& entry : entries) {
    const Token token = in_flight_.Add(std::move(entry));
    negotiator_.Submit(in_flight_.RequestOf(token), token);
  }
}

// A tensor that is not in flight any more has been answered, or its operation runs: all ranks take
// part in it, so it ends.
void ControlLoop::Withdraw(const std::vector<TicketWithdrawal>& withdrawn) {
  for (const TicketWithdrawal& withdrawal : withdrawn) {
    for (const Token token : in_flight_.FindAll(withdrawal.ticket)) {
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
    const Announce* announce = std::get_if<Announce>(&received.message);
    const Log* log = std::get_if<Log>(&received.message);
    if (coordinator_ != nullptr && announce != nullptr) {
      HVD_RETURN_IF_ERROR(coordinator_->OnAnnounce(received.from, *announce, with_.clock.Now()));
    } else if (coordinator_ == nullptr && log != nullptr && received.from == 0) {
      HVD_RETURN_IF_ERROR(Apply(*log));
    } else {
      return UnexpectedMessage(received, with_.transport.rank());
    }
  }
  return Status::Ok();
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
  if (log.records.empty()) return Status::Ok();
  *worked = true;
  if (with_.transport.size() == 1) return Apply(log);
  // The others first, so that all ranks start the operations together.
  Message message = std::move(log);
  HVD_RETURN_IF_ERROR(with_.transport.Broadcast(EncodeMessage(message)));
  return Apply(std::get<Log>(message));
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
      return executor_.Execute(in_flight_.Take(response.tokens), response.definitions);
    case Response::Type::kError:
      FinishAll(in_flight_.Take(response.tokens), response.status);
      break;
    case Response::Type::kShutdown:
      if (response.status.ok()) return Status::Internal("rank 0 ended the job without a reason");
      shutdown_ = response.status;
      break;
  }
  return Status::Ok();
}

}  // namespace horovod_tf
