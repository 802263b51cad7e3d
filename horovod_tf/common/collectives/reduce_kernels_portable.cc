// The kernels of host_reduce for any CPU: vectors of 16 bytes, which every 64-bit machine has.
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "horovod_tf/common/collectives/half.h"
#include "horovod_tf/common/collectives/reduce_kernels.h"

#define HVD_KERNEL_TARGET

namespace horovod_tf {
namespace {

constexpr std::size_t kVectorBytes = 16;

using Floats __attribute__((vector_size(kVectorBytes))) = float;
using UInts __attribute__((vector_size(kVectorBytes))) = std::uint32_t;
using Shorts __attribute__((vector_size(kVectorBytes / 2))) = std::uint16_t;

struct Float16Codec {
  static Floats Load(const unsigned char* from) {
    Shorts shorts;
    std::memcpy(&shorts, from, sizeof shorts);
    return half_internal::HalfBitsToFloat<UInts, Floats>(__builtin_convertvector(shorts, UInts));
  }
  static void Store(const Floats& floats, unsigned char* to) {
    const Shorts shorts =
        __builtin_convertvector(half_internal::FloatToHalfBits<UInts>(floats), Shorts);
    std::memcpy(to, &shorts, sizeof shorts);
  }
};

#include "horovod_tf/common/collectives/reduce_kernels.inc"

}  // namespace

FoldFunction FindPortableKernel(DataType dtype, ReduceOp op) { return FindKernel(dtype, op); }

}  // namespace horovod_tf
