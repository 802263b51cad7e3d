// Submit: how a kernel's tensors get to the library, and how the kernel ends.
#ifndef HOROVOD_TF_OPS_SUBMISSION_H_
#define HOROVOD_TF_OPS_SUBMISSION_H_

#include <vector>

#include "horovod_tf/common/runtime/tensor_entry.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace horovod_tf {

// Hands the tensors of one kernel over together, all or none, to the ranks of a process set. done()
// is called once, when the last of them has been answered, with the first error that any of them
// got. The one place where a kernel waits for peers, until they have come or the step is cancelled.
//
// The context, and with it the buffers of inputs and outputs, lives until done() is called, which
// is the last thing that happens: done() may destroy the context. So what has been answered keeps
// its buffers until the others are, too.
//
// `group` is not empty, and its entries have neither ticket nor completion yet.
//
// Thread rule: any thread. done() may run on this one, or on one of the library's.
void Submit(tensorflow::OpKernelContext* context, int process_set, std::vector<TensorEntry> group,
            tensorflow::AsyncOpKernel::DoneCallback done);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_OPS_SUBMISSION_H_
