// Operations that say who and how many there are when they run: a graph may be built, or saved,
// before that is known. They wait for nobody.
#include <optional>
#include <string>
#include <vector>

#include "horovod_tf/common/runtime/process_runtime.h"
#include "horovod_tf/ops/tf_adapter.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace horovod_tf {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

// A subclass says which number. Thread rule: as TensorFlow's.
class NumberKernel : public OpKernel {
 public:
  explicit NumberKernel(OpKernelConstruction* construction) : OpKernel(construction) {}

  void Compute(OpKernelContext* context) final {
    int number = 0;
    OP_REQUIRES_OK(context, ToTensorFlow(Ask(&number)));
    tensorflow::Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, tensorflow::TensorShape({}), &output));
    output->scalar<std::int32_t>()() = number;
  }

 private:
  virtual Status Ask(int* number) const = 0;
};

// One of the topology's.
template <int Topology::*kMember>
class TopologyKernel final : public NumberKernel {
 public:
  using NumberKernel::NumberKernel;

 private:
  Status Ask(int* number) const override {
    const std::optional<Topology> topology = ProcessTopology();
    if (!topology) return ProcessNotInitialized();
    *number = (*topology).*kMember;
    return Status::Ok();
  }
};

// One of a process set's.
template <int (*kNumberOf)(const ProcessSetView& set)>
class ProcessSetKernel final : public NumberKernel {
 public:
  explicit ProcessSetKernel(OpKernelConstruction* construction) : NumberKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("process_set_id", &process_set_));
  }

 private:
  Status Ask(int* number) const override {
    const std::optional<std::vector<ProcessSetView>> sets = ProcessSetList();
    if (!sets) return ProcessNotInitialized();
    for (const ProcessSetView& set : *sets) {
      if (set.id != process_set_) continue;
      *number = kNumberOf(set);
      return Status::Ok();
    }
    return Status::InvalidArgument("process set " + std::to_string(process_set_) +
                                   " does not exist or has not been registered");
  }

  int process_set_ = 0;
};

int SizeOf(const ProcessSetView& set) { return static_cast<int>(set.ranks.size()); }
int IncludedIn(const ProcessSetView& set) { return set.rank < 0 ? 0 : 1; }

}  // namespace

// Stateful, or TensorFlow would take the number of the process that builds the graph.

REGISTER_OP("HorovodSize")
    .Attr("process_set_id: int = 0")
    .Output("size: int32")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("The number of ranks in a process set; 0 is the set of all of them.");

REGISTER_OP("HorovodProcessSetIncluded")
    .Attr("process_set_id: int = 0")
    .Output("included: int32")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("1 if this process is in a process set, else 0.");

REGISTER_OP("HorovodRank")
    .Output("rank: int32")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("This process's number among all.");

REGISTER_OP("HorovodLocalRank")
    .Output("rank: int32")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("This process's number among those on its host.");

REGISTER_OP("HorovodLocalSize")
    .Output("size: int32")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("The number of processes on this host.");

namespace {

REGISTER_KERNEL_BUILDER(Name("HorovodSize").Device(tensorflow::DEVICE_CPU),
                        ProcessSetKernel<SizeOf>);
REGISTER_KERNEL_BUILDER(Name("HorovodProcessSetIncluded").Device(tensorflow::DEVICE_CPU),
                        ProcessSetKernel<IncludedIn>);
REGISTER_KERNEL_BUILDER(Name("HorovodRank").Device(tensorflow::DEVICE_CPU),
                        TopologyKernel<&Topology::rank>);
REGISTER_KERNEL_BUILDER(Name("HorovodLocalRank").Device(tensorflow::DEVICE_CPU),
                        TopologyKernel<&Topology::local_rank>);
REGISTER_KERNEL_BUILDER(Name("HorovodLocalSize").Device(tensorflow::DEVICE_CPU),
                        TopologyKernel<&Topology::local_size>);

}  // namespace
}  // namespace horovod_tf
