// What ranks match the tensors of a kernel by.
#ifndef HOROVOD_TF_OPS_TENSOR_NAMES_H_
#define HOROVOD_TF_OPS_TENSOR_NAMES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace horovod_tf {

// One name for each input of the node, as its attributes ask for, before trips of loops are told
// apart. A group's members have names of their own, so that ranks which group differently, or not
// at all, still match. InvalidArgument: it has names for another number of tensors.
absl::Status NamesOf(tensorflow::OpKernelConstruction* construction,
                     std::vector<std::string>* names);

// What is put behind the names. The same node runs once per trip of a loop, and trips may overlap.
// Nothing outside loops.
std::string TripOf(const tensorflow::OpKernelContext& context);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_OPS_TENSOR_NAMES_H_
