// TensorQueue: the door between the framework's threads and the background thread.
#ifndef HOROVOD_TF_COMMON_RUNTIME_TENSOR_QUEUE_H_
#define HOROVOD_TF_COMMON_RUNTIME_TENSOR_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/runtime/tensor_entry.h"

namespace horovod_tf {

// Somebody does not want tensors any more: those that were submitted with this ticket or, without
// one, all that have waited for so long.
struct TensorWithdrawal {
  std::optional<std::uint64_t> ticket;
  Duration waited{0};
  std::string reason;
};

// Thread rule: safe for use from any thread. No callback runs while its lock is held.
class TensorQueue {
 public:
  // `world_size` is what root ranks are validated against.
  explicit TensorQueue(int world_size);
  // What was not taken is dropped, and so finished with Aborted.
  ~TensorQueue();
  TensorQueue(const TensorQueue&) = delete;
  TensorQueue& operator=(const TensorQueue&) = delete;

  // Adds all of `group` or none. Every completion is finished exactly once, whatever happens: if
  // the group is refused (a request that is not valid, a name that is in flight or twice in the
  // group, a closed queue) then now, on this thread, with the reason. `*was_empty` (may be null)
  // says whether the background thread has to be woken. Returns what the completions were told.
  Status Add(std::vector<TensorEntry> group, bool* was_empty);

  // Notes a withdrawal; what it is about may have been finished already. `*was_empty` as in Add.
  void Withdraw(TensorWithdrawal withdrawal, bool* was_empty);

  // Everything added since the last call, in order, and the withdrawals if they are asked for: of
  // tensors in this result or an earlier one.
  std::vector<TensorEntry> TakeNew(std::vector<TensorWithdrawal>* withdrawn = nullptr);

  // From now on Add refuses with `reason` (not OK; the first reason stays). What was added but not
  // taken is returned for the caller to finish.
  std::vector<TensorEntry> Close(const Status& reason);

  // Names in flight: added and not yet finished. For diagnosis.
  std::size_t in_flight() const;

 private:
  class Names;
  struct State;  // used by the completions too, which may outlive the queue

  // All or nothing; what was refused is left in `group`.
  Status Insert(std::vector<TensorEntry>* group, bool* was_empty);

  std::shared_ptr<State> state_;
  const int world_size_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_TENSOR_QUEUE_H_
