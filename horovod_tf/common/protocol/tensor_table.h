// What the coordinator remembers of negotiated tensors: the meaning of each id, which ids are free,
// and which must rest because a rank may still announce their old meaning.
#ifndef HOROVOD_TF_COMMON_PROTOCOL_TENSOR_TABLE_H_
#define HOROVOD_TF_COMMON_PROTOCOL_TENSOR_TABLE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "horovod_tf/common/protocol/fusion.h"
#include "horovod_tf/common/protocol/message.h"

namespace horovod_tf {

// Small numbers for "may share an operation", so that planning compares integers. A number is given
// back with its last tensor: scale factors that change with every step must not pile up.
//
// Thread rule: one thread at a time.
class FusionClasses {
 public:
  // kNeverFused for kinds that are not fused.
  std::uint32_t Acquire(const TensorDefinition& definition);
  void Release(std::uint32_t fusion_class);
  std::size_t size() const { return numbers_.size(); }

 private:
  struct Class {
    std::string key;
    std::size_t users = 0;
  };
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::vector<Class> classes_ = std::vector<Class>(1);  // [kNeverFused] is unused
  std::vector<std::uint32_t> free_;
};

// Thread rule: one thread at a time.
class TensorTable {
 public:
  explicit TensorTable(std::int64_t capacity);

  std::optional<TensorId> Find(const std::string& name) const;
  // Numbers in use or used before: all ids are smaller.
  std::size_t size() const { return slots_.size(); }
  // REQUIRES: `id` is defined.
  const TensorDefinition& definition(TensorId id) const { return slots_[id].definition; }
  const FusionCandidate& candidate(TensorId id) const { return candidates_[id]; }

  // Gives the lowest free id this meaning; nothing if there is none.
  std::optional<TensorId> Define(const TensorDefinition& definition);
  // REQUIRES: `id` is defined, under the same name.
  void Redefine(TensorId id, const TensorDefinition& definition);
  void NoteExecuted(TensorId id) { last_executed_[id] = ++executions_; }

  // Forgets ids that are not `busy`, those that were executed longest ago first, `count` of them or
  // as many as there are. They rest until every rank has applied log record `sequence`.
  std::vector<TensorId> Evict(std::size_t count, const std::function<bool(TensorId)>& busy,
                              std::uint64_t sequence);
  // Whether `id` is forgotten and a rank that has applied `applied` records may not know it yet.
  bool Resting(TensorId id, std::uint64_t applied) const;
  bool AnyResting() const { return !resting_.empty(); }
  // Frees the ids whose rest is over now that every rank has applied `applied` records.
  void EndRest(std::uint64_t applied);

 private:
  enum class State : std::uint8_t { kFree, kDefined, kResting };
  struct Slot {
    State state = State::kFree;
    std::uint64_t forgotten_at = 0;  // while resting
    TensorDefinition definition;
  };
  void Fill(TensorId id, const TensorDefinition& definition);

  const std::size_t capacity_;
  std::vector<Slot> slots_;
  // Beside slots_, and not in it, because a steady step touches only these.
  std::vector<FusionCandidate> candidates_;
  std::vector<std::uint64_t> last_executed_;
  std::uint64_t executions_ = 0;
  std::unordered_map<std::string, TensorId> ids_;
  std::priority_queue<TensorId, std::vector<TensorId>, std::greater<>> free_;
  std::deque<TensorId> resting_;  // in the order of forgotten_at
  FusionClasses classes_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_PROTOCOL_TENSOR_TABLE_H_
