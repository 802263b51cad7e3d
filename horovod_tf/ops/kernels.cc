// The kernels: each hands its tensors to the library and returns; TensorFlow's done() is called
// when their collectives are complete.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "horovod_tf/common/runtime/tensor_entry.h"
#include "horovod_tf/ops/submission.h"
#include "horovod_tf/ops/tensor_names.h"
#include "horovod_tf/ops/tf_adapter.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace horovod_tf {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

// Common to all collectives, of one tensor or of a group; a subclass's constructor says which
// collective it is.
//
// Thread rule: as TensorFlow's: ComputeAsync may run on several threads at once; nothing changes
// after construction.
class CollectiveKernel : public AsyncOpKernel {
 public:
  CollectiveKernel(OpKernelConstruction* construction, CollectiveKind kind)
      : AsyncOpKernel(construction) {
    request_.kind = kind;
    // Whether there is such a set shows when it runs.
    OP_REQUIRES_OK(construction, construction->GetAttr("process_set_id", &process_set_));
    OP_REQUIRES_OK(construction, NamesOf(construction, &names_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) final {
    const std::string trip = TripOf(*context);
    std::vector<TensorEntry> group(names_.size());
    for (std::size_t i = 0; i < names_.size(); ++i) {
      group[i].request = request_;
      group[i].request.name = names_[i] + trip;
      OP_REQUIRES_OK_ASYNC(context, SetSplits(context, &group[i].request), done);
      OP_REQUIRES_OK_ASYNC(context, SetBuffers(context, static_cast<int>(i), &group[i]), done);
    }
    Submit(context, process_set_, std::move(group), std::move(done));
  }

 protected:
  // The parts that are the same on every run and for all tensors.
  Request request_;

 private:
  // Of kinds that split rows.
  virtual absl::Status SetSplits(OpKernelContext* context, Request* request) const {
    (void)context;
    (void)request;
    return absl::OkStatus();
  }

  // Input and output `i`.
  absl::Status SetBuffers(OpKernelContext* context, int i, TensorEntry* entry) const {
    const tensorflow::Tensor& input = context->input(i);
    entry->input = ViewOf(input);
    entry->request.dtype = entry->input.dtype;
    entry->request.shape = entry->input.shape;
    if (Info(request_.kind).changes_rows) {
      entry->context = std::make_shared<KernelOutput>(context, i);
      return absl::OkStatus();
    }
    tensorflow::Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(context->forward_input_or_allocate_output({i}, i, input.shape(), &output));
    entry->output = ViewOf(*output);
    return absl::OkStatus();
  }

  int process_set_ = 0;
  std::vector<std::string> names_;
};

// Also of a group: all members are reduced in the same way.
template <CollectiveKind kKind>
class ReductionKernel final : public CollectiveKernel {
 public:
  explicit ReductionKernel(OpKernelConstruction* construction)
      : CollectiveKernel(construction, kKind) {
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
      : CollectiveKernel(construction, CollectiveKind::kAllgather) {
    bool average = false;
    OP_REQUIRES_OK(construction, construction->GetAttr("average", &average));
    if (average) request_.reduce_op = ReduceOp::kAverage;
  }
};

class BroadcastKernel final : public CollectiveKernel {
 public:
  explicit BroadcastKernel(OpKernelConstruction* construction)
      : CollectiveKernel(construction, CollectiveKind::kBroadcast) {
    OP_REQUIRES_OK(construction, construction->GetAttr("root_rank", &request_.root_rank));
  }
};

class AlltoallKernel final : public CollectiveKernel {
 public:
  explicit AlltoallKernel(OpKernelConstruction* construction)
      : CollectiveKernel(construction, CollectiveKind::kAlltoall) {}

 private:
  // None: the library divides the rows.
  absl::Status SetSplits(OpKernelContext* context, Request* request) const override {
    const tensorflow::Tensor& splits = context->input(1);
    if (splits.dims() != 1) {
      return absl::InvalidArgumentError("alltoall expects a 1D splits tensor; tensor '" +
                                        request->name + "' has splits of shape " +
                                        splits.shape().DebugString());
    }
    const auto rows = splits.vec<std::int32_t>();
    request->splits.assign(rows.data(), rows.data() + rows.size());
    const tensorflow::Tensor& tensor = context->input(0);
    const bool countable =
        tensor.dims() == 0 || tensor.dim_size(0) <= std::numeric_limits<std::int32_t>::max();
    if (rows.size() > 0 || countable) return absl::OkStatus();
    return absl::InvalidArgumentError("tensor '" + request->name + "' has " +
                                      std::to_string(tensor.dim_size(0)) +
                                      " rows: alltoall of more than 2^31-1 needs splits");
  }
};

using AllreduceKernel = ReductionKernel<CollectiveKind::kAllreduce>;
using ReducescatterKernel = ReductionKernel<CollectiveKind::kReducescatter>;

// This rank has no more data.
//
// Thread rule: as TensorFlow's.
class JoinKernel final : public AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(OpKernelContext* context, DoneCallback done) final {
    tensorflow::Tensor* output = nullptr;
    OP_REQUIRES_OK_ASYNC(context, context->allocate_output(0, {}, &output), done);
    std::vector<TensorEntry> group(1);
    group.front().joins = true;
    group.front().request.name = std::string(kJoinName);
    group.front().output = ViewOf(*output);
    Submit(context, /*process_set=*/0, std::move(group), std::move(done));
  }
};

// The types are the operations' own: op_definitions.cc.
REGISTER_KERNEL_BUILDER(Name("HorovodAllreduce").Device(tensorflow::DEVICE_CPU), AllreduceKernel);
REGISTER_KERNEL_BUILDER(Name("HorovodGroupedAllreduce").Device(tensorflow::DEVICE_CPU),
                        AllreduceKernel);
REGISTER_KERNEL_BUILDER(Name("HorovodReducescatter").Device(tensorflow::DEVICE_CPU),
                        ReducescatterKernel);
REGISTER_KERNEL_BUILDER(Name("HorovodGroupedReducescatter").Device(tensorflow::DEVICE_CPU),
                        ReducescatterKernel);
REGISTER_KERNEL_BUILDER(Name("HorovodAlltoall").Device(tensorflow::DEVICE_CPU), AlltoallKernel);
REGISTER_KERNEL_BUILDER(Name("HorovodAllgather").Device(tensorflow::DEVICE_CPU), AllgatherKernel);
REGISTER_KERNEL_BUILDER(Name("HorovodBroadcast").Device(tensorflow::DEVICE_CPU), BroadcastKernel);
REGISTER_KERNEL_BUILDER(Name("HorovodJoin").Device(tensorflow::DEVICE_CPU), JoinKernel);

}  // namespace
}  // namespace horovod_tf
