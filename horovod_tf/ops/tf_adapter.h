// Between TensorFlow's types and ours.
#ifndef HOROVOD_TF_OPS_TF_ADAPTER_H_
#define HOROVOD_TF_OPS_TF_ADAPTER_H_

#include <cstdint>
#include <optional>
#include <vector>

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

// Allocates an output of a kernel that is running asynchronously; the numbers of rows that came
// from each rank are the output after it, of a kernel that has it.
//
// Thread rule: one thread at a time, and only before the kernel's done() has been called: the
// kernel's context lives that long.
class KernelOutput final : public OpContext {
 public:
  KernelOutput(tensorflow::OpKernelContext* context, int index)
      : context_(context), index_(index) {}
  Status TakeReceivedRows(const std::vector<std::int64_t>& rows) override;
  Status AllocateOutput(const TensorShape& shape, TensorView* output) override;

 private:
  Status Allocate(int index, const TensorShape& shape, tensorflow::Tensor** tensor);

  tensorflow::OpKernelContext* const context_;
  const int index_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_OPS_TF_ADAPTER_H_
