#include "horovod_tf/common/runtime/runtime_state.h"

#include <array>

#include "horovod_tf/common/base/check.h"

namespace horovod_tf {
namespace {

struct Transition {
  RuntimeState from;
  RuntimeState to;
};

constexpr std::array<Transition, 8> kTransitions = {{
    {RuntimeState::kIdle, RuntimeState::kStarting},
    {RuntimeState::kStarting, RuntimeState::kRunning},
    {RuntimeState::kRunning, RuntimeState::kDraining},
    {RuntimeState::kDraining, RuntimeState::kStopped},
    {RuntimeState::kIdle, RuntimeState::kFailed},
    {RuntimeState::kStarting, RuntimeState::kFailed},
    {RuntimeState::kRunning, RuntimeState::kFailed},
    {RuntimeState::kDraining, RuntimeState::kFailed},
}};

}  // namespace

std::string_view RuntimeStateName(RuntimeState state) {
  switch (state) {
    case RuntimeState::kIdle:
      return "Idle";
    case RuntimeState::kStarting:
      return "Starting";
    case RuntimeState::kRunning:
      return "Running";
    case RuntimeState::kDraining:
      return "Draining";
    case RuntimeState::kStopped:
      return "Stopped";
    case RuntimeState::kFailed:
      return "Failed";
  }
  return "unknown state";
}

bool TransitionAllowed(RuntimeState from, RuntimeState to) {
  for (const Transition& transition : kTransitions) {
    if (transition.from == from && transition.to == to) return true;
  }
  return false;
}

Status NotInitializedStatus() {
  return Status::FailedPrecondition("Horovod has not been initialized; use hvd.init().");
}

RuntimeState RuntimeLifecycle::state() const {
  MutexLock lock(mutex_);
  return state_;
}

Status RuntimeLifecycle::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

Status RuntimeLifecycle::Refusal() const {
  MutexLock lock(mutex_);
  switch (state_) {
    case RuntimeState::kRunning:
      return Status::Ok();
    case RuntimeState::kIdle:
    case RuntimeState::kStarting:
      return NotInitializedStatus();
    case RuntimeState::kDraining:
    case RuntimeState::kStopped:
      return shutdown_;
    case RuntimeState::kFailed:
      break;
  }
  return failure_;
}

void RuntimeLifecycle::BeginStart() {
  MutexLock lock(mutex_);
  MoveTo(RuntimeState::kStarting);
}

void RuntimeLifecycle::FinishStart() {
  MutexLock lock(mutex_);
  if (state_ != RuntimeState::kStarting) return;
  MoveTo(RuntimeState::kRunning);
  if (stop_reason_) MoveTo(RuntimeState::kDraining);
}

void RuntimeLifecycle::AskToStop(std::string_view reason) {
  MutexLock lock(mutex_);
  if (state_ != RuntimeState::kStarting && state_ != RuntimeState::kRunning) return;
  if (stop_reason_) return;
  stop_reason_ = std::string(reason);
  shutdown_ =
      Status::Unknown("Horovod has been shut down: this rank asked for it (" + *stop_reason_ + ")");
  if (state_ == RuntimeState::kRunning) MoveTo(RuntimeState::kDraining);
}

std::optional<std::string> RuntimeLifecycle::TakeStopRequest() {
  MutexLock lock(mutex_);
  if (state_ != RuntimeState::kDraining || !stop_reason_ || stop_request_taken_) {
    return std::nullopt;
  }
  stop_request_taken_ = true;
  return stop_reason_;
}

bool RuntimeLifecycle::StopRequested() const {
  MutexLock lock(mutex_);
  return stop_reason_.has_value();
}

void RuntimeLifecycle::BeginDraining(const Status& why) {
  HVD_CHECK(!why.ok(), "a shutdown needs a reason");
  MutexLock lock(mutex_);
  if (state_ == RuntimeState::kFailed) return;
  shutdown_ = why;
  if (state_ == RuntimeState::kRunning) MoveTo(RuntimeState::kDraining);
}

void RuntimeLifecycle::FinishDraining() {
  MutexLock lock(mutex_);
  if (state_ != RuntimeState::kFailed) MoveTo(RuntimeState::kStopped);
}

void RuntimeLifecycle::Fail(const Status& failure) {
  HVD_CHECK(!failure.ok(), "a failure needs a reason");
  MutexLock lock(mutex_);
  if (state_ == RuntimeState::kFailed || state_ == RuntimeState::kStopped) return;
  failure_ = failure;
  MoveTo(RuntimeState::kFailed);
}

void RuntimeLifecycle::MarkThreadEnded() {
  MutexLock lock(mutex_);
  thread_ended_ = true;
  changed_.NotifyAll();
}

bool RuntimeLifecycle::WaitUntilStarted(TimePoint deadline) {
  MutexLock lock(mutex_);
  while (state_ == RuntimeState::kStarting) {
    if (clock_.Now() >= deadline) return false;
    clock_.WaitUntil(changed_, mutex_, deadline);
  }
  return true;
}

bool RuntimeLifecycle::WaitUntilThreadEnded(TimePoint deadline) {
  MutexLock lock(mutex_);
  while (!thread_ended_) {
    if (clock_.Now() >= deadline) return false;
    clock_.WaitUntil(changed_, mutex_, deadline);
  }
  return true;
}

void RuntimeLifecycle::MoveTo(RuntimeState next) {
  HVD_CHECK(TransitionAllowed(state_, next),
            std::string(RuntimeStateName(state_)) + " -> " + std::string(RuntimeStateName(next)));
  state_ = next;
  changed_.NotifyAll();
}

}  // namespace horovod_tf
