// Executor: runs agreed batches one after the other: allocates outputs, picks a backend, reports to
// the timeline, finishes completions.
#ifndef HOROVOD_TF_COMMON_RUNTIME_EXECUTOR_H_
#define HOROVOD_TF_COMMON_RUNTIME_EXECUTOR_H_

#include <memory>
#include <vector>

#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/collectives/registry.h"
#include "horovod_tf/common/protocol/message.h"
#include "horovod_tf/common/runtime/operation_watch.h"
#include "horovod_tf/common/runtime/tensor_entry.h"
#include "horovod_tf/common/runtime/timeline.h"
#include "horovod_tf/common/transport/transport.h"

namespace horovod_tf {

// Thread rule: for the background thread.
class Executor {
 public:
  // All outlive the executor, and `timeline`, which may be null, also every completion that a
  // backend took over.
  Executor(const BackendRegistry& backends, Transport& transport, const OperationWatch& watch,
           Timeline* timeline);
  ~Executor();

  // Runs one batch, which is not empty. Every entry is finished exactly once, before this returns
  // or later by a backend that took the completion over. `definitions` is parallel to `entries`.
  //
  // An error that every rank meets alike (no backend supports the batch) is told to the entries
  // only and OK is returned. Any other error may have left peers in the middle of the operation: it
  // is told to the entries and returned, and the runtime must fail.
  Status Execute(std::vector<TensorEntry> entries,
                 const std::vector<const TensorDefinition*>& definitions);

  // Takes part in a batch of one tensor to which this rank, which has joined, brings nothing: with
  // a buffer of its own, of the tensor's size, that is kept for the next one. An error is as above.
  Status ExecuteAbsent(const TensorDefinition& definition);
  // There will be no next one for now: frees the buffer.
  void EndAbsence();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_EXECUTOR_H_
