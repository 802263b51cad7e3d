#include "horovod_tf/ops/submission.h"

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "horovod_tf/common/runtime/process_runtime.h"
#include "horovod_tf/ops/cancellation_watch.h"
#include "horovod_tf/ops/tf_adapter.h"

namespace horovod_tf {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpKernelContext;

// What a kernel still waits for. Owned by the tensors that have not been answered: the last answer
// ends the kernel and destroys this.
//
// Thread rule: any thread; answers may come on several at once.
class Waiting {
 public:
  Waiting(OpKernelContext* context, std::shared_ptr<CancellationWatch> watch,
          AsyncOpKernel::DoneCallback done, std::size_t tensors)
      : context_(context), watch_(std::move(watch)), done_(std::move(done)), tensors_(tensors) {}

  // Once for each tensor. The counter makes what earlier answers did visible to the last one.
  void Answer(const Status& status) {
    if (!status.ok() && !failed_.exchange(true)) context_->SetStatus(ToTensorFlow(status));
    if (tensors_.fetch_sub(1) > 1) return;
    const std::unique_ptr<Waiting> last(this);
    watch_->Leave();
    done_();
  }

 private:
  OpKernelContext* const context_;
  const std::shared_ptr<CancellationWatch> watch_;
  const AsyncOpKernel::DoneCallback done_;
  std::atomic<std::size_t> tensors_;
  std::atomic<bool> failed_{false};
};

std::string Described(const std::vector<TensorEntry>& group) {
  const std::string first = "tensor '" + group.front().request.name + "'";
  if (group.size() == 1) return first;
  return first + " and " + std::to_string(group.size() - 1) + " more";
}

}  // namespace

void Submit(OpKernelContext* context, int process_set, std::vector<TensorEntry> group,
            AsyncOpKernel::DoneCallback done) {
  std::shared_ptr<CancellationWatch> watch =
      CancellationWatch::Join(context->cancellation_manager());
  if (watch == nullptr) {
    context->SetStatus(absl::CancelledError("the step was cancelled before " + Described(group) +
                                            " could be submitted"));
    return done();
  }
  Waiting* const waiting =
      std::make_unique<Waiting>(context, watch, std::move(done), group.size()).release();
  for (TensorEntry& entry : group) {
    entry.ticket = watch->ticket();
    // One pointer: what a std::function holds without memory of its own.
    entry.done = Completion([waiting](const Status& status) { waiting->Answer(status); });
  }
  ProcessEnqueue(std::move(group), process_set);
  watch->Submitted();
}

}  // namespace horovod_tf
