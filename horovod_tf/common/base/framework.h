// What the library needs of a framework (TensorFlow, a test): buffers, late allocation, readiness.
// The framework's adapter implements these; nothing here knows which framework it is.
#ifndef HOROVOD_TF_COMMON_BASE_FRAMEWORK_H_
#define HOROVOD_TF_COMMON_BASE_FRAMEWORK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/base/types.h"

namespace horovod_tf {

// A buffer that the framework owns and keeps alive until the tensor's completion has run. Inputs
// are only read, unless the framework handed the same buffer over as the output.
struct TensorView {
  DataType dtype = DataType::kUInt8;
  TensorShape shape;
  void* data = nullptr;  // may be null when there are no elements

  std::size_t bytes() const {
    return static_cast<std::size_t>(shape.elements()) * Info(dtype).size;
  }
};

// Allocates outputs whose size is known only after negotiation, of kinds whose output has other
// rows than the input. Called on the background thread, each function at most once per tensor.
class OpContext {
 public:
  virtual ~OpContext() = default;
  // Kinds that split rows: how many rows of the output come from each rank. Before AllocateOutput.
  virtual Status TakeReceivedRows(const std::vector<std::int64_t>& rows) {
    (void)rows;
    return Status::Ok();
  }
  // Fills `output` with a buffer of this shape and of the input's type.
  virtual Status AllocateOutput(const TensorShape& shape, TensorView* output) = 0;
};

// When a tensor's bytes are there. Host tensors need none; a device's tensors carry an event that
// was recorded on the framework's stream.
class ReadyEvent {
 public:
  virtual ~ReadyEvent() = default;
  // Whether the bytes are there now. Never blocks. Any thread.
  virtual bool Ready() const = 0;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_BASE_FRAMEWORK_H_
