// Reductions of host memory: N inputs to one output, in the order of the inputs, so that every rank
// and every run computes the same bits. Vectorised, with the instruction set chosen at run time.
#ifndef HOROVOD_TF_COMMON_COLLECTIVES_HOST_REDUCE_H_
#define HOROVOD_TF_COMMON_COLLECTIVES_HOST_REDUCE_H_

#include <cstddef>
#include <string_view>
#include <vector>

#include "horovod_tf/common/base/table.h"
#include "horovod_tf/common/base/types.h"

namespace horovod_tf {

// How the inputs become the output: out = postscale * op(prescale * in[0], ..., prescale *
// in[n-1]), and for kAverage the sum is divided by `divisor`.
//
// float16 and bfloat16 are computed in float32 and rounded once, at the end; float32 and float64 in
// themselves, factors included. A NaN among the inputs makes the result NaN, for kMin and kMax too,
// and a NaN result is the type's canonical quiet one. kMin and kMax of -0 and +0 give the first.
//
// Integers wrap around. An integer average divides the wrapped sum, truncating toward zero,
// exactly; integer scale factors other than 1 are applied in float64 and truncate toward zero,
// saturating at the type's limits.
//
// complex64 and complex128 are computed in float32 and float64, part by part; a product is (ac -
// bd, ad + bc), whatever is infinite.
//
// A single input without factors is copied bit for bit.
struct Reduction {
  DataType dtype = DataType::kFloat32;  // REQUIRES: CanReduce(dtype, op)
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;   // finite
  double postscale = 1.0;  // finite
  int divisor = 1;         // of kAverage: the number of ranks that took part, >= 1
};

// Reductions are bound by memory, where vectors wider than AVX2's gain nothing worth a third set:
// docs/shared_memory.md, what was tried.
enum class InstructionSet { kScalar, kAvx2 };
std::string_view InstructionSetName(InstructionSet set);
// What this CPU and build can do, best last; always has kScalar (the portable one).
Table<InstructionSet> SupportedInstructionSets();

// Thread rule: free functions, safe from any thread.
//
// `out` may be the same buffer as any of `inputs`, but may not overlap them otherwise. Buffers need
// no alignment. REQUIRES: inputs is not empty.
void Reduce(const Reduction& reduction, const std::vector<const void*>& inputs,
            std::size_t elements, void* out);
// The same with a given instruction set, for tests and benchmarks; all give the same bits.
// REQUIRES: it is supported.
void ReduceWith(InstructionSet set, const Reduction& reduction,
                const std::vector<const void*>& inputs, std::size_t elements, void* out);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_COLLECTIVES_HOST_REDUCE_H_
