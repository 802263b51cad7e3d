#include "horovod_tf/common/runtime/tensor_queue.h"

#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "horovod_tf/common/base/check.h"
#include "horovod_tf/common/base/mutex.h"

namespace horovod_tf {

// Thread rule: any thread.
struct TensorQueue::State {
  mutable Mutex mutex;
  std::vector<TensorEntry> added HVD_GUARDED_BY(mutex);
  std::vector<TicketWithdrawal> withdrawn HVD_GUARDED_BY(mutex);
  std::unordered_set<std::string> names HVD_GUARDED_BY(mutex);  // in flight
  Status closed HVD_GUARDED_BY(mutex);                          // not OK: why Add refuses

  // Whether the background thread has nothing to look at.
  bool Idle() const HVD_REQUIRES(mutex) { return added.empty() && withdrawn.empty(); }
  void Forget(const std::string& name) HVD_EXCLUDES(mutex) {
    MutexLock lock(mutex);
    names.erase(name);
  }
};

namespace {

std::string Quoted(const Request& request) { return "tensor '" + request.name + "'"; }

// Whether the buffer is what the request says.
Status CheckBuffer(const Request& request, const TensorView& view, std::string_view role) {
  const auto refuse = [&](const std::string& why) {
    return Status::InvalidArgument("The " + std::string(role) + " of " + Quoted(request) + " " +
                                   why);
  };
  if (view.dtype != request.dtype) {
    return refuse("has type " + std::string(Info(view.dtype).name) + ", but the request says " +
                  std::string(Info(request.dtype).name));
  }
  if (view.shape != request.shape) {
    return refuse("has shape " + view.shape.ToString() + ", but the request says " +
                  request.shape.ToString());
  }
  if (view.data == nullptr && view.shape.elements() > 0) {
    return refuse("has no buffer, but shape " + view.shape.ToString());
  }
  return Status::Ok();
}

Status CheckEntry(const TensorEntry& entry, int world_size) {
  HVD_RETURN_IF_ERROR(ValidateRequest(entry.request, world_size));
  HVD_RETURN_IF_ERROR(CheckBuffer(entry.request, entry.input, "input"));
  if (!Info(entry.request.kind).gathers_rows) {
    HVD_RETURN_IF_ERROR(CheckBuffer(entry.request, entry.output, "output"));
  } else if (entry.context == nullptr) {
    return Status::InvalidArgument("The " + std::string(Info(entry.request.kind).name) + " of " +
                                   Quoted(entry.request) +
                                   " has no context to allocate its output through");
  }
  if (!entry.done.pending()) {
    return Status::InvalidArgument("The " + Quoted(entry.request) +
                                   " was submitted without a completion");
  }
  return Status::Ok();
}

Status DuplicateName(const std::string& name) {
  return Status::InvalidArgument(
      "Tensor '" + name +
      "' was submitted with the same name as another tensor that is currently being processed: "
      "give every operation its own name, or wait until the first has finished");
}

}  // namespace

TensorQueue::TensorQueue(int world_size)
    : state_(std::make_shared<State>()), world_size_(world_size) {}

// By hand: the entries' hooks keep the state alive, which would keep the entries alive.
TensorQueue::~TensorQueue() { TakeNew().clear(); }

Status TensorQueue::Add(std::vector<TensorEntry> group, bool* was_empty) {
  if (was_empty != nullptr) *was_empty = false;
  Status status;
  for (const TensorEntry& entry : group) {
    status = CheckEntry(entry, world_size_);
    if (!status.ok()) break;
  }
  if (status.ok()) status = Insert(&group, was_empty);
  if (!status.ok()) {
    for (TensorEntry& entry : group) {
      if (entry.done.pending()) entry.done.Finish(status);
    }
  }
  return status;
}

Status TensorQueue::Insert(std::vector<TensorEntry>* group, bool* was_empty) {
  State& state = *state_;
  MutexLock lock(state.mutex);
  if (!state.closed.ok()) return state.closed;
  for (std::size_t i = 0; i < group->size(); ++i) {
    const std::string& name = (*group)[i].request.name;
    if (state.names.insert(name).second) continue;
    for (std::size_t k = 0; k < i; ++k) state.names.erase((*group)[k].request.name);
    return DuplicateName(name);
  }
  if (was_empty != nullptr) *was_empty = state.Idle() && !group->empty();
  for (TensorEntry& entry : *group) {
    // Only now: an entry that is refused must not forget its namesake that is in flight.
    entry.done.AddBefore([shared = state_, name = entry.request.name] { shared->Forget(name); });
    state.added.push_back(std::move(entry));
  }
  return Status::Ok();
}

void TensorQueue::Withdraw(TicketWithdrawal withdrawal, bool* was_empty) {
  MutexLock lock(state_->mutex);
  *was_empty = state_->Idle();
  if (state_->closed.ok()) state_->withdrawn.push_back(std::move(withdrawal));
}

std::vector<TensorEntry> TensorQueue::TakeNew(std::vector<TicketWithdrawal>* withdrawn) {
  std::vector<TensorEntry> taken;
  MutexLock lock(state_->mutex);
  taken.swap(state_->added);
  if (withdrawn != nullptr) withdrawn->swap(state_->withdrawn);
  return taken;
}

std::vector<TensorEntry> TensorQueue::Close(const Status& reason) {
  HVD_CHECK(!reason.ok(), "a queue is closed for a reason");
  std::vector<TensorEntry> taken;
  MutexLock lock(state_->mutex);
  if (state_->closed.ok()) state_->closed = reason;
  taken.swap(state_->added);
  return taken;
}

std::size_t TensorQueue::in_flight() const {
  MutexLock lock(state_->mutex);
  return state_->names.size();
}

}  // namespace horovod_tf
