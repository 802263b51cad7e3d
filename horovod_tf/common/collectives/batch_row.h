// BatchRow: the tensors of a batch as one row of bytes, without gaps, of which any range can be
// copied or looked at where it lies.
#ifndef HOROVOD_TF_COMMON_COLLECTIVES_BATCH_ROW_H_
#define HOROVOD_TF_COMMON_COLLECTIVES_BATCH_ROW_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "horovod_tf/common/collectives/batch.h"

namespace horovod_tf {

// Half-open, in bytes.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  std::size_t size() const { return end - begin; }
};

// Thread rule: one thread at a time. The batch outlives it; inputs and outputs have equal sizes.
class BatchRow {
 public:
  explicit BatchRow(const Batch& batch);

  std::size_t bytes() const { return ends_.back(); }

  // The part of a range that lies in one tensor.
  struct Piece {
    std::size_t at;  // from the beginning of the range
    std::size_t bytes;
    const unsigned char* input;
    unsigned char* output;
  };
  // Calls visit(piece) for each piece of the range, in order. REQUIRES: range.end <= bytes().
  template <typename Visit>
  void ForEachPiece(ByteRange range, Visit&& visit) const {
    std::size_t at = range.begin;
    std::size_t tensor = TensorAt(at);
    while (at < range.end) {
      const std::size_t first = tensor == 0 ? 0 : ends_[tensor - 1];
      const std::size_t end = std::min(range.end, ends_[tensor]);
      if (end > at) visit(PieceOf(tensor, at - first, at - range.begin, end - at));
      at = std::max(at, end);
      ++tensor;
    }
  }

  void CopyInputs(ByteRange range, void* to) const;
  // `copy` works like memcpy. It is not used for outputs that are their inputs, whose bytes have
  // just been read and are in the caches.
  using Copy = void (*)(void* to, const void* from, std::size_t bytes);
  void CopyToOutputs(ByteRange range, const void* from, Copy copy) const;

 private:
  std::size_t TensorAt(std::size_t byte) const;
  Piece PieceOf(std::size_t tensor, std::size_t offset, std::size_t at, std::size_t bytes) const;

  const Batch& batch_;
  std::vector<std::size_t> ends_;  // of each tensor
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_COLLECTIVES_BATCH_ROW_H_
