// The kernels: each hands its tensor to the library and returns; TensorFlow's done() is called when
// the collective is complete.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "horovod_tf/common/runtime/process_runtime.h"
#include "horovod_tf/ops/cancellation_watch.h"
#include "horovod_tf/ops/tf_adapter.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace horovod_tf {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

// What ranks match an operation by. The same node runs once per trip of a loop, and trips may
// overlap. Outside loops frame and iteration are 0, or not set at all in some executors.
void TellTripsApart(const OpKernelContext& context, std::string* name) {
  const auto trip = context.frame_iter();
  if (trip.iter_id < 0 || (trip.frame_id == 0 && trip.iter_id == 0)) return;
  *name += "@" + std::to_string(trip.frame_id) + ":" + std::to_string(trip.iter_id);
}

// The name that the attributes ask for, before loops are told apart.
absl::Status NameOf(OpKernelConstruction* construction, std::string* name) {
  bool ignore_scope = false;
  TF_RETURN_IF_ERROR(construction->GetAttr("ignore_name_scope", &ignore_scope));
  TF_RETURN_IF_ERROR(construction->GetAttr("tensor_name", name));
  if (name->empty()) *name = construction->def().name();
  // npos + 1 is 0: a name without a scope stays whole.
  if (ignore_scope) *name = name->substr(name->find_last_of('/') + 1);
  return absl::OkStatus();
}

absl::Status CheckProcessSet(OpKernelConstruction* construction) {
  int process_set = 0;
  TF_RETURN_IF_ERROR(construction->GetAttr("process_set_id", &process_set));
  if (process_set == 0) return absl::OkStatus();
  return absl::UnimplementedError(
      "process sets other than 0 (all ranks) are not available: process_set_id is " +
      std::to_string(process_set));
}

// Hands one tensor over. The one place where a kernel waits for peers, until they have come or the
// step is cancelled.
//
// The context, and with it the input's buffer, lives until done() is called, which is the last
// thing that happens here: done() may destroy the context.
void Submit(OpKernelContext* context, TensorEntry entry, AsyncOpKernel::DoneCallback done) {
  std::shared_ptr<CancellationWatch> watch =
      CancellationWatch::Join(context->cancellation_manager());
  if (watch == nullptr) {
    context->SetStatus(absl::CancelledError("the step was cancelled before tensor '" +
                                            entry.request.name + "' was submitted"));
    return done();
  }
  entry.ticket = watch->ticket();
  entry.done = Completion([context, watch, done = std::move(done)](const Status& status) {
    watch->Leave();
    if (!status.ok()) context->SetStatus(ToTensorFlow(status));
    done();
  });
  std::vector<TensorEntry> group;
  group.push_back(std::move(entry));
  ProcessEnqueue(std::move(group));
  watch->Submitted();
}

// Common to all collectives; a subclass's constructor says which collective it is.
//
// Thread rule: as TensorFlow's: ComputeAsync may run on several threads at once; nothing changes
// after construction.
class CollectiveKernel : public AsyncOpKernel {
 public:
  CollectiveKernel(OpKernelConstruction* construction, CollectiveKind kind)
      : AsyncOpKernel(construction) {
    request_.kind = kind;
    OP_REQUIRES_OK(construction, CheckProcessSet(construction));
    OP_REQUIRES_OK(construction, NameOf(construction, &request_.name));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) final {
    const tensorflow::Tensor& input = context->input(0);
    TensorEntry entry;
    entry.request = request_;
    TellTripsApart(*context, &entry.request.name);
    entry.input = ViewOf(input);
    entry.request.dtype = entry.input.dtype;
    entry.request.shape = entry.input.shape;
    if (Info(request_.kind).gathers_rows) {
      entry.context = std::make_shared<KernelOutput>(context);
    } else {
      tensorflow::Tensor* output = nullptr;
      OP_REQUIRES_OK_ASYNC(
          context, context->forward_input_or_allocate_output({0}, 0, input.shape(), &output), done);
      entry.output = ViewOf(*output);
    }
    Submit(context, std::move(entry), std::move(done));
  }

 protected:
  // The parts that are the same on every run.
  Request request_;
};

class AllreduceKernel final : public CollectiveKernel {
 public:
  explicit AllreduceKernel(OpKernelConstruction* construction)
      : CollectiveKernel(construction, CollectiveKind::kAllreduce) {
    int number = 0;
    OP_REQUIRES_OK(construction, construction->GetAttr("reduce_op", &number));
    const std::optional<ReduceOp> op =
        number < 0 ? std::nullopt : ReduceOpFromInt(static_cast<std::uint64_t>(number));
    OP_REQUIRES(construction, op.has_value(),
                absl::InvalidArgumentError("reduce_op is " + std::to_string(number) +
                                           ", which is none of 0 (average), 1 (sum), 3 (min), 4 "
                                           "(max), 5 (product)"));
    request_.reduce_op = *op;
    float factor = 1.0F;
    OP_REQUIRES_OK(construction, construction->GetAttr("prescale_factor", &factor));
    request_.prescale = static_cast<double>(factor);
    OP_REQUIRES_OK(construction, construction->GetAttr("postscale_factor", &factor));
    request_.postscale = static_cast<double>(factor);
  }
};

class AllgatherKernel final : public CollectiveKernel {
 public:
  explicit AllgatherKernel(OpKernelConstruction* construction)
      : CollectiveKernel(construction, CollectiveKind::kAllgather) {}
};

class BroadcastKernel final : public CollectiveKernel {
 public:
  explicit BroadcastKernel(OpKernelConstruction* construction)
      : CollectiveKernel(construction, CollectiveKind::kBroadcast) {
    OP_REQUIRES_OK(construction, construction->GetAttr("root_rank", &request_.root_rank));
  }
};

// The types are the operations' own: op_definitions.cc.
REGISTER_KERNEL_BUILDER(Name("HorovodAllreduce").Device(tensorflow::DEVICE_CPU), AllreduceKernel);
REGISTER_KERNEL_BUILDER(Name("HorovodAllgather").Device(tensorflow::DEVICE_CPU), AllgatherKernel);
REGISTER_KERNEL_BUILDER(Name("HorovodBroadcast").Device(tensorflow::DEVICE_CPU), BroadcastKernel);

}  // namespace
}  // namespace horovod_tf
