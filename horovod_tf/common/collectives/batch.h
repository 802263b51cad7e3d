// Batch: tensors that all ranks agreed to run as one operation, in the agreed order.
#ifndef HOROVOD_TF_COMMON_COLLECTIVES_BATCH_H_
#define HOROVOD_TF_COMMON_COLLECTIVES_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "horovod_tf/common/base/framework.h"
#include "horovod_tf/common/collectives/host_reduce.h"
#include "horovod_tf/common/protocol/message.h"

namespace horovod_tf {

// One tensor of a batch, as a backend sees it.
struct BatchTensor {
  std::string name;
  TensorView input;
  TensorView output;  // allocated before any backend runs
  // Kinds that gather rows: dimension 0 on each rank; else empty.
  std::vector<std::int64_t> first_dims;
  SplitsOfRanks splits{};  // kinds that split rows; else empty

  // Of one row of the input. REQUIRES: it is not a scalar.
  std::size_t row_bytes() const;
};

// Everything here is the same on every rank, but for the buffers and `device`.
struct Batch {
  CollectiveKind kind = CollectiveKind::kAllreduce;
  DataType dtype = DataType::kFloat32;
  ReduceOp reduce_op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int root_rank = 0;
  int device = kCpuDevice;
  // Ranks that have joined, increasing: they take part, but their inputs count for nothing.
  std::vector<int> absent{};
  std::vector<BatchTensor> tensors;  // more than one only if the kind is fusable

  std::size_t input_bytes() const;  // of all tensors
  // Kinds that reduce: OK, or Unimplemented if the arithmetic is not there.
  Status CheckArithmetic() const;
  // The arithmetic of a reduction over `ranks` ranks, of which the absent ones do not count.
  Reduction reduction(int ranks) const;
};

// Takes those of `absent` (as in Batch) out of what there is by rank.
void DropAbsent(const std::vector<int>& absent, std::vector<const void*>* by_rank);

// Copies all inputs, in order and without gaps, to `buffer`, which has input_bytes().
void PackInputs(const Batch& batch, void* buffer);
// The other way: from `buffer` to all outputs.
void UnpackOutputs(const Batch& batch, const void* buffer);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_COLLECTIVES_BATCH_H_
