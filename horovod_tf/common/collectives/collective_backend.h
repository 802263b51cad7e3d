// CollectiveBackend: one way to move tensors' bytes between ranks. Backends compete: the executor
// asks them in the order of their scores and takes the first that supports the batch.
#ifndef HOROVOD_TF_COMMON_COLLECTIVES_COLLECTIVE_BACKEND_H_
#define HOROVOD_TF_COMMON_COLLECTIVES_COLLECTIVE_BACKEND_H_

#include <cstddef>
#include <functional>
#include <string_view>

#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/collectives/batch.h"

namespace horovod_tf {

// What a running backend may ask of its surroundings.
//
// Thread rule: for the background thread, during Run.
class RunContext {
 public:
  virtual ~RunContext() = default;

  // OK, or why the job has failed meanwhile. Whoever waits for a peer asks it at least every 100 ms
  // and returns its answer when it is not OK, so that a dead peer never hangs a rank.
  virtual Status Interrupted() = 0;

  // A buffer of at least `bytes`, aligned to 64, that is the caller's until Run returns; allocated
  // when first needed and kept. ResourceExhausted if there is no memory.
  virtual Status Scratch(std::size_t bytes, void** buffer) = 0;

  // The timeline's activity for all tensors of the batch from now on; it ends with the next one or
  // with Run. `name` is a constant.
  virtual void Activity(std::string_view name) = 0;

  // For backends that finish after Run has returned (a GPU's stream): takes over the duty to finish
  // the batch. The returned function is called exactly once, from any thread, when the outputs are
  // complete or the operation has failed.
  virtual std::function<void(const Status&)> TakeCompletion() = 0;
};

// Thread rule: everything is called on the background thread.
class CollectiveBackend {
 public:
  virtual ~CollectiveBackend() = default;

  virtual std::string_view name() const = 0;
  // Higher is asked first; equal scores in the order of registration.
  virtual int score() const = 0;
  // OK, or Unimplemented with the reason. Depends on nothing but what all ranks share, so that all
  // ranks take the same backend.
  virtual Status Supports(const Batch& batch) const = 0;
  // Moves the bytes and returns when the outputs are complete (or see TakeCompletion). An error
  // here is the end of the job: peers may be in the middle of the same operation. REQUIRES:
  // Supports(batch).ok().
  virtual Status Run(Batch& batch, RunContext& context) = 0;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_COLLECTIVES_COLLECTIVE_BACKEND_H_
