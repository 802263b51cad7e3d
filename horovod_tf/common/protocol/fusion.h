// Which ready tensors become one operation. Pure and deterministic.
#ifndef HOROVOD_TF_COMMON_PROTOCOL_FUSION_H_
#define HOROVOD_TF_COMMON_PROTOCOL_FUSION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace horovod_tf {

struct FusionCandidate {
  // Tensors with equal classes may share an operation: the caller gives one number to each
  // combination of kind, type, reduce operation, factors and devices. kNeverFused: always alone.
  std::uint32_t fusion_class = 0;
  std::int64_t bytes = 0;
};
inline constexpr std::uint32_t kNeverFused = 0;

// Batches of indices into `ready`, each in increasing order. Every index appears exactly once; a
// batch has one class; its bytes are at most `threshold` unless it is a single tensor; batches are
// ordered by their first index. A tensor that does not fit does not close the batch for smaller
// ones behind it. threshold <= 0: no fusion.
std::vector<std::vector<std::size_t>> PlanFusion(const std::vector<FusionCandidate>& ready,
                                                 std::int64_t threshold);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_PROTOCOL_FUSION_H_
