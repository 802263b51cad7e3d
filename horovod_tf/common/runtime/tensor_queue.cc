#include "horovod_tf/common/runtime/tensor_queue.h"

#include <iterator>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "horovod_tf/common/base/check.h"
#include "horovod_tf/common/base/mutex.h"

namespace horovod_tf {

// The names in flight. Those that were are kept for a while: the next step has the same ones, and
// then nothing is allocated. Thread rule: one thread at a time.
class TensorQueue::Names {
 public:
  using Name = std::pair<const std::string, bool>;  // and whether it is in flight

  // Null: it is in flight. The name does not move while it is.
  Name* Launch(const std::string& name) {
    if (known_.size() > kMostIdle + 2 * in_flight_) ForgetIdle();
    const auto found = known_.try_emplace(name, false).first;
    if (std::exchange(found->second, true)) return nullptr;
    ++in_flight_;
    return &*found;
  }
  void Land(Name* name) {
    name->second = false;
    --in_flight_;
  }
  std::size_t in_flight() const { return in_flight_; }

 private:
  static constexpr std::size_t kMostIdle = 4096;

  void ForgetIdle() {
    for (auto name = known_.begin(); name != known_.end();) {
      name = name->second ? std::next(name) : known_.erase(name);
    }
  }

  std::unordered_map<std::string, bool> known_;
  std::size_t in_flight_ = 0;
};

// Thread rule: any thread.
struct TensorQueue::State {
  mutable Mutex mutex;
  std::vector<TensorEntry> added HVD_GUARDED_BY(mutex);
  std::vector<TensorWithdrawal> withdrawn HVD_GUARDED_BY(mutex);
  Names names HVD_GUARDED_BY(mutex);
  Status closed HVD_GUARDED_BY(mutex);  // not OK: why Add refuses
  // This, while names are in flight: their completions may outlive the queue.
  std::shared_ptr<State> self HVD_GUARDED_BY(mutex);

  // Whether the background thread has nothing to look at.
  bool Idle() const HVD_REQUIRES(mutex) { return added.empty() && withdrawn.empty(); }

  void Land(Names::Name* name) HVD_EXCLUDES(mutex) {
    std::shared_ptr<State> last;  // goes after the lock
    MutexLock lock(mutex);
    names.Land(name);
    if (names.in_flight() == 0) last = std::move(self);
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

Status CheckJoin(const TensorEntry& entry) {
  Request request;
  request.name = std::string(kJoinName);
  request.dtype = DataType::kInt32;
  if (entry.request.name != kJoinName || !entry.done.pending()) {
    return Status::InvalidArgument("A join has a completion, and the name " +
                                   std::string(kJoinName) + "; this one's is '" +
                                   entry.request.name + "'");
  }
  return CheckBuffer(request, entry.output, "output");
}

Status CheckEntry(const TensorEntry& entry, int world_size) {
  if (entry.joins) return CheckJoin(entry);
  HVD_RETURN_IF_ERROR(ValidateRequest(entry.request, world_size));
  HVD_RETURN_IF_ERROR(CheckBuffer(entry.request, entry.input, "input"));
  if (!Info(entry.request.kind).changes_rows) {
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
  if (name == kJoinName) {
    return Status::InvalidArgument(
        "join() was called while another join() of this rank, or a tensor named '" + name +
        "', is waiting: wait until it has finished");
  }
  return Status::InvalidArgument(
      "Tensor '" + name +
      "' was submitted with the same name as another tensor that is currently being processed: "
      "give every operation its own name, or wait until the first has finished");
}

}  // namespace

TensorQueue::TensorQueue(int world_size)
    : state_(std::make_shared<State>()), world_size_(world_size) {}

// By hand: the entries keep the state alive, which would keep the entries alive.
TensorQueue::~TensorQueue() { TakeNew().clear(); }

Status TensorQueue::Add(std::vector<TensorEntry> group, bool* was_empty) {
  if (was_empty != nullptr) *was_empty = false;
  Status status;
  for (TensorEntry& entry : group) {
    status = CompleteSplits(&entry.request, world_size_);
    if (status.ok()) status = CheckEntry(entry, world_size_);
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
  std::vector<Names::Name*> names;
  names.reserve(group->size());
  for (const TensorEntry& entry : *group) {
    names.push_back(state.names.Launch(entry.request.name));
    if (names.back() != nullptr) continue;
    names.pop_back();
    for (Names::Name* const name : names) state.names.Land(name);
    return DuplicateName(entry.request.name);
  }
  if (group->empty()) return Status::Ok();
  if (was_empty != nullptr) *was_empty = state.Idle();
  state.self = state_;
  auto next_name = names.begin();
  for (TensorEntry& entry : *group) {
    // Two pointers: what a std::function holds without memory of its own.
    entry.done.AddBefore([at = &state, name = *next_name++] { at->Land(name); });
    state.added.push_back(std::move(entry));
  }
  return Status::Ok();
}

void TensorQueue::Withdraw(TensorWithdrawal withdrawal, bool* was_empty) {
  MutexLock lock(state_->mutex);
  *was_empty = state_->Idle();
  if (state_->closed.ok()) state_->withdrawn.push_back(std::move(withdrawal));
}

std::vector<TensorEntry> TensorQueue::TakeNew(std::vector<TensorWithdrawal>* withdrawn) {
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
  return state_->names.in_flight();
}

}  // namespace horovod_tf
