// A leaf: like the kernels of reduce_kernels_avx2.cc it asks which CPU it is compiled for.
#include "horovod_tf/common/collectives/cpu_hints.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)

#include <immintrin.h>

namespace horovod_tf {

void PauseSpinning() { _mm_pause(); }

void CopyPastCaches(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  auto* out = static_cast<unsigned char*>(to);
  const auto* in = static_cast<const unsigned char*>(from);
  // Whole lines only: a part of one would be read before it is written.
  const std::size_t before =
      std::min(bytes, (kLine - reinterpret_cast<std::uintptr_t>(out) % kLine) % kLine);
  std::memcpy(out, in, before);
  std::size_t at = before;
  for (; at + kLine <= bytes; at += kLine) {
    __m128i line[4];
    std::memcpy(line, in + at, kLine);
    auto* const target = static_cast<__m128i*>(static_cast<void*>(out + at));
    for (int i = 0; i < 4; ++i) _mm_stream_si128(target + i, line[i]);
  }
  _mm_sfence();
  std::memcpy(out + at, in + at, bytes - at);
}

}  // namespace horovod_tf

#else

namespace horovod_tf {

void PauseSpinning() {}

void CopyPastCaches(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

}  // namespace horovod_tf

#endif
