#include "horovod_tf/common/runtime/in_flight.h"

#include <algorithm>
#include <utility>

#include "horovod_tf/common/base/check.h"

namespace horovod_tf {

void FinishAll(std::vector<TensorEntry> entries, const Status& status) {
  for (TensorEntry& entry : entries) {
    if (entry.done.pending()) entry.done.Finish(status);
  }
}

Token InFlight::Add(TensorEntry entry, TimePoint now) {
  if (free_.empty()) {
    free_.push_back(slots_.size());
    slots_.emplace_back();
  }
  const Token token = free_.back();
  free_.pop_back();
  slots_[token].used = true;
  slots_[token].since = now;
  slots_[token].entry = std::move(entry);
  return token;
}

std::vector<TensorEntry> InFlight::Take(const std::vector<Token>& tokens) {
  std::vector<TensorEntry> entries;
  entries.reserve(tokens.size());
  for (const Token token : tokens) {
    HVD_CHECK(token < slots_.size() && slots_[token].used, "a token that is not in flight");
    slots_[token].used = false;
    entries.push_back(std::move(slots_[token].entry));
    free_.push_back(token);
  }
  return entries;
}

std::vector<Token> InFlight::FindAll(std::optional<std::uint64_t> ticket, TimePoint latest) const {
  std::vector<Token> tokens;
  for (Token token = 0; token < slots_.size(); ++token) {
    const Slot& slot = slots_[token];
    const bool wanted = slot.used && (!ticket.has_value() || slot.entry.ticket == *ticket);
    if (wanted && slot.since <= latest) tokens.push_back(token);
  }
  return tokens;
}

std::vector<WaitingTensor> InFlight::Oldest(std::size_t most, TimePoint now) const {
  std::vector<const Slot*> used;
  for (const Slot& slot : slots_) {
    if (slot.used) used.push_back(&slot);
  }
  const auto end = used.begin() + static_cast<std::ptrdiff_t>(std::min(most, used.size()));
  std::partial_sort(used.begin(), end, used.end(),
                    [](const Slot* a, const Slot* b) { return a->since < b->since; });
  std::vector<WaitingTensor> oldest;
  for (auto slot = used.begin(); slot != end; ++slot) {
    oldest.push_back({(*slot)->entry.request.name, Milliseconds(now - (*slot)->since), {}});
  }
  return oldest;
}

std::vector<TensorEntry> InFlight::TakeAll() {
  std::vector<Token> tokens;
  for (Token token = 0; token < slots_.size(); ++token) {
    if (slots_[token].used) tokens.push_back(token);
  }
  return Take(tokens);
}

}  // namespace horovod_tf
