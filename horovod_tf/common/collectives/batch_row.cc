#include "horovod_tf/common/collectives/batch_row.h"

#include <cstring>

#include "horovod_tf/common/base/check.h"

namespace horovod_tf {

BatchRow::BatchRow(const Batch& batch) : batch_(batch) {
  HVD_CHECK(!batch.tensors.empty(), "a batch has tensors");
  ends_.reserve(batch.tensors.size());
  std::size_t end = 0;
  for (const BatchTensor& tensor : batch.tensors) {
    const std::size_t bytes = tensor.input.bytes();
    HVD_CHECK(tensor.output.bytes() == bytes, "an output of another size");
    end += bytes;
    ends_.push_back(end);
  }
}

std::size_t BatchRow::TensorAt(std::size_t byte) const {
  return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), byte) -
                                  ends_.begin());
}

BatchRow::Piece BatchRow::PieceOf(std::size_t tensor, std::size_t offset, std::size_t at,
                                  std::size_t bytes) const {
  const BatchTensor& it = batch_.tensors[tensor];
  return {at, bytes, static_cast<const unsigned char*>(it.input.data) + offset,
          static_cast<unsigned char*>(it.output.data) + offset};
}

void BatchRow::CopyInputs(ByteRange range, void* to) const {
  ForEachPiece(range, [to](const Piece& piece) {
    std::memcpy(static_cast<unsigned char*>(to) + piece.at, piece.input, piece.bytes);
  });
}

void BatchRow::CopyToOutputs(ByteRange range, const void* from, Copy copy) const {
  ForEachPiece(range, [from, copy](const Piece& piece) {
    const unsigned char* const bytes = static_cast<const unsigned char*>(from) + piece.at;
    if (piece.output == piece.input) {
      std::memcpy(piece.output, bytes, piece.bytes);
    } else {
      copy(piece.output, bytes, piece.bytes);
    }
  });
}

}  // namespace horovod_tf
