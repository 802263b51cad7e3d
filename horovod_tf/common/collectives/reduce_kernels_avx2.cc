// A leaf: the kernels of host_reduce for x86 CPUs with AVX2 and F16C. With cpu_hints.cc the only
// file in the core that asks which CPU it is compiled for.
#include "horovod_tf/common/collectives/reduce_kernels.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#define HVD_KERNEL_TARGET __attribute__((target("avx2,f16c")))

namespace horovod_tf {
namespace {

constexpr std::size_t kVectorBytes = 32;

#define HVD_CODEC HVD_KERNEL_TARGET __attribute__((always_inline)) static inline

struct Float16Codec {
  HVD_CODEC __m256 Load(const unsigned char* from) {
    __m128i halves;
    std::memcpy(&halves, from, sizeof halves);
    return _mm256_cvtph_ps(halves);
  }
  HVD_CODEC void Store(const __m256& floats, unsigned char* to) {
    const __m128i halves = _mm256_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT);
    std::memcpy(to, &halves, sizeof halves);
  }
};

#include "horovod_tf/common/collectives/reduce_kernels.inc"

// __builtin_cpu_supports also asks whether the operating system saves the wide registers, but not
// every compiler's knows F16C.
bool CpuHasAvx2AndF16c() {
  unsigned int eax = 0;
  unsigned int ebx = 0;
  unsigned int ecx = 0;
  unsigned int edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (ecx & static_cast<unsigned int>(bit_F16C)) != 0 && __builtin_cpu_supports("avx2") != 0;
}

}  // namespace

FoldFunction FindAvx2Kernel(DataType dtype, ReduceOp op) {
  static const bool supported = CpuHasAvx2AndF16c();
  return supported ? FindKernel(dtype, op) : nullptr;
}

}  // namespace horovod_tf

#else

namespace horovod_tf {

FoldFunction FindAvx2Kernel(DataType, ReduceOp) { return nullptr; }

}  // namespace horovod_tf

#endif
