// TensorEntry: one submitted tensor while it is in flight.
#ifndef HOROVOD_TF_COMMON_RUNTIME_TENSOR_ENTRY_H_
#define HOROVOD_TF_COMMON_RUNTIME_TENSOR_ENTRY_H_

#include <cstdint>
#include <memory>

#include "horovod_tf/common/base/framework.h"
#include "horovod_tf/common/protocol/message.h"
#include "horovod_tf/common/runtime/completion.h"

namespace horovod_tf {

struct TensorEntry {
  // What it can be withdrawn by, alone or together with others; 0: it cannot be.
  std::uint64_t ticket = 0;
  // Not a tensor: this rank joins. The request's name is kJoinName, and the output an int32 scalar
  // that gets the rank which joined last; the rest is unused.
  bool joins = false;
  Request request;  // type and shape are the input's
  TensorView input;
  // Where the result goes: given by the submitter for kinds whose output has the input's shape (it
  // may be the input's own buffer), allocated through `context` for kinds that change rows.
  TensorView output;
  std::shared_ptr<OpContext> context;
  std::unique_ptr<ReadyEvent> ready;  // null: the input is there now
  Completion done;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_TENSOR_ENTRY_H_
