// A leaf: like the kernels of reduce_kernels_avx2.cc it asks which CPU it is compiled for.
#include "horovod_tf/common/collectives/cpu_hints.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace horovod_tf {

void PauseSpinning() { _mm_pause(); }

}  // namespace horovod_tf

#else

namespace horovod_tf {

void PauseSpinning() {}

}  // namespace horovod_tf

#endif
