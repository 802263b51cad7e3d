// InFlight: the entries that the negotiator knows and nobody has answered yet, found by token.
#ifndef HOROVOD_TF_COMMON_RUNTIME_IN_FLIGHT_H_
#define HOROVOD_TF_COMMON_RUNTIME_IN_FLIGHT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/protocol/message.h"
#include "horovod_tf/common/protocol/negotiator.h"
#include "horovod_tf/common/runtime/tensor_entry.h"

namespace horovod_tf {

// Finishes every completion with `status`, in order.
void FinishAll(std::vector<TensorEntry> entries, const Status& status);

// Tokens are positions in an array, used again when free: a steady step hashes and allocates
// nothing here.
//
// Thread rule: for the background thread.
class InFlight {
 public:
  Token Add(TensorEntry entry, TimePoint now);
  // Takes them out, in the order of `tokens`. REQUIRES: each was added and not taken since.
  std::vector<TensorEntry> Take(const std::vector<Token>& tokens);
  std::vector<TensorEntry> TakeAll();
  // Those with this ticket, or without one all, that were added by then. Looks at all of them,
  // since tensors are rarely withdrawn.
  std::vector<Token> FindAll(std::optional<std::uint64_t> ticket, TimePoint latest) const;
  // Valid until the next Add or Take.
  const Request& RequestOf(Token token) const { return slots_[token].entry.request; }
  bool Joins(Token token) const { return slots_[token].entry.joins; }
  bool empty() const { return free_.size() == slots_.size(); }
  // Looks at all of them. The oldest first, at most so many.
  std::vector<WaitingTensor> Oldest(std::size_t most, TimePoint now) const;

 private:
  struct Slot {
    bool used = false;
    TimePoint since;
    TensorEntry entry;
  };
  std::vector<Slot> slots_;
  std::vector<Token> free_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_IN_FLIGHT_H_
