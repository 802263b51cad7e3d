#include "test/cpp/support/scripted_backend.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace horovod_tf {
namespace {

void CopyInputs(const Batch& batch) {
  for (const BatchTensor& tensor : batch.tensors) {
    const std::size_t bytes = std::min(tensor.input.bytes(), tensor.output.bytes());
    if (bytes > 0) std::memmove(tensor.output.data, tensor.input.data, bytes);
  }
}

}  // namespace

void BackendScript::Push(ScriptStep step) {
  MutexLock lock(mutex_);
  steps_.push_back(std::move(step));
}

void BackendScript::SetSupports(Status answer) {
  MutexLock lock(mutex_);
  supports_ = std::move(answer);
}

void BackendScript::Release() {
  MutexLock lock(mutex_);
  released_ = true;
  changed_.NotifyAll();
}

std::function<void(const Status&)> BackendScript::TakeLater(TimePoint deadline) {
  MutexLock lock(mutex_);
  while (later_.empty()) {
    if (Clock::Real().Now() >= deadline) return nullptr;
    changed_.WaitUntil(mutex_, deadline);
  }
  std::function<void(const Status&)> oldest = std::move(later_.front());
  later_.pop_front();
  return oldest;
}

bool BackendScript::WaitForRuns(std::size_t count, TimePoint deadline) {
  MutexLock lock(mutex_);
  while (run_.size() < count) {
    if (Clock::Real().Now() >= deadline) return false;
    changed_.WaitUntil(mutex_, deadline);
  }
  return true;
}

std::vector<std::vector<std::string>> BackendScript::batches() const {
  MutexLock lock(mutex_);
  std::vector<std::vector<std::string>> all;
  for (const Batch& batch : run_) {
    std::vector<std::string> names;
    for (const BatchTensor& tensor : batch.tensors) names.push_back(tensor.name);
    all.push_back(std::move(names));
  }
  return all;
}

Batch BackendScript::last_batch() const {
  MutexLock lock(mutex_);
  return run_.empty() ? Batch() : run_.back();
}

std::vector<void*> BackendScript::scratch_buffers() const {
  MutexLock lock(mutex_);
  return scratch_buffers_;
}

std::vector<Status> BackendScript::scratch_answers() const {
  MutexLock lock(mutex_);
  return scratch_answers_;
}

Status ScriptedBackend::Supports(const Batch&) const {
  MutexLock lock(script_->mutex_);
  return script_->supports_;
}

Status ScriptedBackend::Run(Batch& batch, RunContext& context) {
  const ScriptStep step = NextStep(batch);
  for (const char* activity : step.activities) context.Activity(activity);
  if (step.scratch > 0) {
    void* buffer = nullptr;
    const Status answer = context.Scratch(step.scratch, &buffer);
    MutexLock lock(script_->mutex_);
    script_->scratch_buffers_.push_back(buffer);
    script_->scratch_answers_.push_back(answer);
    if (!answer.ok()) return answer;
    std::memset(buffer, 0x5A, step.scratch);  // all of it is ours
  }
  switch (step.action) {
    case ScriptAction::kError:
      return step.status;
    case ScriptAction::kThrow:
      throw std::runtime_error(step.status.message());
    case ScriptAction::kThrowOther:
      throw 42;
    case ScriptAction::kLaterError:
      KeepLater(context);
      return step.status;
    case ScriptAction::kBlock:
      HVD_RETURN_IF_ERROR(Block(context));
      break;
    case ScriptAction::kLater:
    case ScriptAction::kFinish:
      break;
  }
  CopyInputs(batch);
  if (step.action == ScriptAction::kLater) KeepLater(context);
  return Status::Ok();
}

ScriptStep ScriptedBackend::NextStep(const Batch& batch) {
  MutexLock lock(script_->mutex_);
  script_->run_.push_back(batch);
  script_->changed_.NotifyAll();
  if (script_->steps_.empty()) return ScriptStep();
  ScriptStep step = std::move(script_->steps_.front());
  script_->steps_.pop_front();
  return step;
}

Status ScriptedBackend::Block(RunContext& context) {
  MutexLock lock(script_->mutex_);
  while (!script_->released_) {
    HVD_RETURN_IF_ERROR(context.Interrupted());
    script_->changed_.WaitUntil(script_->mutex_,
                                Clock::Real().Now() + std::chrono::milliseconds(1));
  }
  script_->released_ = false;
  return Status::Ok();
}

void ScriptedBackend::KeepLater(RunContext& context) {
  std::function<void(const Status&)> finish = context.TakeCompletion();
  MutexLock lock(script_->mutex_);
  script_->later_.push_back(std::move(finish));
  script_->changed_.NotifyAll();
}

}  // namespace horovod_tf
