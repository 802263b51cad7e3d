// What host_reduce.cc and the kernels of each instruction set agree on. Internal to host_reduce.
#ifndef HOROVOD_TF_COMMON_COLLECTIVES_REDUCE_KERNELS_H_
#define HOROVOD_TF_COMMON_COLLECTIVES_REDUCE_KERNELS_H_

#include <array>
#include <cstddef>

#include "horovod_tf/common/base/types.h"

namespace horovod_tf {

// Inputs that one kernel reads side by side: few enough for the hardware's prefetchers and for the
// vectors to stay in registers.
inline constexpr std::size_t kMaxFoldInputs = 4;

// Partial results are read and written in whole vectors, so their buffers have room for this many
// elements more than the step has.
inline constexpr std::size_t kPartialSlack = 64;

// One call of a kernel: folds up to kMaxFoldInputs inputs, after `partial` if there is one, into
// `out`. Partial results hold accumulators: integers as they are, floating-point types in an order
// of the kernel's own (float32 for the 16-bit ones). Factors concern floating-point types only; 1
// means none.
struct FoldStep {
  std::array<const unsigned char*, kMaxFoldInputs> inputs{};
  std::size_t input_count = 0;
  const unsigned char* partial = nullptr;
  unsigned char* out = nullptr;
  std::size_t elements = 0;
  bool last = true;  // `out` gets finished elements of the tensor's type, else a partial result
  double prescale = 1.0;  // of every input
  double divisor = 1.0;   // when last: result / divisor * postscale
  double postscale = 1.0;
};
using FoldFunction = void (*)(const FoldStep& step);

// The kernel for a reducible type and an operation (kAverage sums). Null if there is none.
FoldFunction FindPortableKernel(DataType dtype, ReduceOp op);
// The same with AVX2 and F16C; null where the CPU or the build lacks them.
FoldFunction FindAvx2Kernel(DataType dtype, ReduceOp op);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_COLLECTIVES_REDUCE_KERNELS_H_
