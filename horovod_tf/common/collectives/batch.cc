#include "horovod_tf/common/collectives/batch.h"

#include <cstring>

namespace horovod_tf {

std::size_t BatchTensor::row_bytes() const {
  return static_cast<std::size_t>(input.shape.row_elements()) * Info(input.dtype).size;
}

std::size_t Batch::input_bytes() const {
  std::size_t bytes = 0;
  for (const BatchTensor& tensor : tensors) bytes += tensor.input.bytes();
  return bytes;
}

Status Batch::CheckArithmetic() const {
  if (!Info(kind).reduces || CanReduce(dtype, reduce_op)) return Status::Ok();
  return Status::Unimplemented(std::string(Info(dtype).name) +
                               (Info(dtype).reducible ? " has no order" : " has no arithmetic"));
}

Reduction Batch::reduction(int ranks) const {
  Reduction reduction;
  reduction.dtype = dtype;
  reduction.op = reduce_op;
  reduction.prescale = prescale;
  reduction.postscale = postscale;
  reduction.divisor = ranks - static_cast<int>(absent.size());
  return reduction;
}

void DropAbsent(const std::vector<int>& absent, std::vector<const void*>* by_rank) {
  for (auto rank = absent.rbegin(); rank != absent.rend(); ++rank) {
    by_rank->erase(by_rank->begin() + *rank);
  }
}

void PackInputs(const Batch& batch, void* buffer) {
  auto* to = static_cast<unsigned char*>(buffer);
  for (const BatchTensor& tensor : batch.tensors) {
    const std::size_t bytes = tensor.input.bytes();
    // Pointers may be null when there is nothing to copy, which memcpy does not allow.
    if (bytes == 0) continue;
    std::memcpy(to, tensor.input.data, bytes);
    to += bytes;
  }
}

void UnpackOutputs(const Batch& batch, const void* buffer) {
  const auto* from = static_cast<const unsigned char*>(buffer);
  for (const BatchTensor& tensor : batch.tensors) {
    const std::size_t bytes = tensor.output.bytes();
    if (bytes == 0) continue;
    std::memcpy(tensor.output.data, from, bytes);
    from += bytes;
  }
}

}  // namespace horovod_tf
