// Between TensorFlow's types and ours.
#ifndef HOROVOD_TF_OPS_TF_ADAPTER_H_
#define HOROVOD_TF_OPS_TF_ADAPTER_H_

#include <optional>

#include "absl/status/status.h"
#include "horovod_tf/common/base/framework.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace horovod_tf {

absl::Status ToTensorFlow(const Status& status);
// Nothing if the library has no such type.
std::optional<DataType> FromTensorFlow(tensorflow::DataType type);
TensorShape FromTensorFlow(const tensorflow::TensorShape& shape);
// The tensor's own buffer. REQUIRES: FromTensorFlow(tensor.dtype()) has a value.
TensorView ViewOf(const tensorflow::Tensor& tensor);

// Allocates output 0 of a kernel that is running asynchronously.
//
// Thread rule: one thread at a time, and only before the kernel's done() has been called: the
// kernel's context lives that long.
class KernelOutput final : public OpContext {
 public:
  explicit KernelOutput(tensorflow::OpKernelContext* context) : context_(context) {}
  Status AllocateOutput(const TensorShape& shape, TensorView* output) override;

 private:
  tensorflow::OpKernelContext* const context_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_OPS_TF_ADAPTER_H_
