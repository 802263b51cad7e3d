#include "horovod_tf/common/protocol/tensor_table.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "horovod_tf/common/base/check.h"

namespace horovod_tf {
namespace {

template <typename T>
void AppendBytes(const T& value, std::string* key) {
  static_assert(std::is_trivially_copyable_v<T>, "only plain values have bytes to compare");
  key->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Equal for tensors that one operation can process. The devices of all ranks are in it: an
// operation runs on one device.
std::string FusionKey(const TensorDefinition& definition) {
  const Request& common = definition.common;
  std::string key;
  AppendBytes(common.kind, &key);
  AppendBytes(common.dtype, &key);
  AppendBytes(common.reduce_op, &key);
  AppendBytes(common.prescale, &key);
  AppendBytes(common.postscale, &key);
  if (Info(common.kind).has_root) AppendBytes(common.root_rank, &key);
  for (int device : definition.devices) AppendBytes(device, &key);
  return key;
}

}  // namespace

std::uint32_t FusionClasses::Acquire(const TensorDefinition& definition) {
  if (!Info(definition.common.kind).fusable) return kNeverFused;
  std::string key = FusionKey(definition);
  const auto [entry, added] = numbers_.try_emplace(key, 0);
  if (added) {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(classes_.size()));
      classes_.emplace_back();
    }
    entry->second = free_.back();
    free_.pop_back();
    classes_[entry->second].key = std::move(key);
  }
  ++classes_[entry->second].users;
  return entry->second;
}

void FusionClasses::Release(std::uint32_t fusion_class) {
  if (fusion_class == kNeverFused) return;
  Class& released = classes_[fusion_class];
  if (--released.users > 0) return;
  numbers_.erase(released.key);
  free_.push_back(fusion_class);
}

TensorTable::TensorTable(std::int64_t capacity)
    : capacity_(static_cast<std::size_t>(
          std::clamp<std::int64_t>(capacity, 0, static_cast<std::int64_t>(kMaxTensorIds)))) {}

std::optional<TensorId> TensorTable::Find(const std::string& name) const {
  const auto found = ids_.find(name);
  return found == ids_.end() ? std::nullopt : std::optional<TensorId>(found->second);
}

void TensorTable::Fill(TensorId id, const TensorDefinition& definition) {
  Slot& slot = slots_[id];
  // The new class first: releasing an equal one could end it.
  const FusionCandidate candidate{classes_.Acquire(definition), definition.bytes()};
  if (slot.state == State::kDefined) classes_.Release(candidates_[id].fusion_class);
  candidates_[id] = candidate;
  slot.state = State::kDefined;
  slot.definition = definition;
}

std::optional<TensorId> TensorTable::Define(const TensorDefinition& definition) {
  if (free_.empty()) {
    if (slots_.size() >= capacity_) return std::nullopt;
    free_.push(static_cast<TensorId>(slots_.size()));
    slots_.emplace_back();
    candidates_.emplace_back();
    last_executed_.push_back(0);
  }
  const TensorId id = free_.top();
  free_.pop();
  Fill(id, definition);
  NoteExecuted(id);  // it is about to be
  ids_[definition.common.name] = id;
  return id;
}

void TensorTable::Redefine(TensorId id, const TensorDefinition& definition) {
  HVD_CHECK(slots_[id].state == State::kDefined &&
                slots_[id].definition.common.name == definition.common.name,
            "an id keeps its tensor until it is forgotten");
  Fill(id, definition);
}

std::vector<TensorId> TensorTable::Evict(std::size_t count,
                                         const std::function<bool(TensorId)>& busy,
                                         std::uint64_t sequence) {
  std::vector<TensorId> victims;
  for (TensorId id = 0; id < slots_.size(); ++id) {
    if (slots_[id].state == State::kDefined && !busy(id)) victims.push_back(id);
  }
  const auto older = [this](TensorId a, TensorId b) {
    return last_executed_[a] < last_executed_[b];  // distinct by construction
  };
  if (victims.size() > count) {
    std::nth_element(victims.begin(), victims.begin() + static_cast<std::ptrdiff_t>(count),
                     victims.end(), older);
    victims.resize(count);
  }
  std::sort(victims.begin(), victims.end());
  for (TensorId id : victims) {
    Slot& slot = slots_[id];
    ids_.erase(slot.definition.common.name);
    classes_.Release(candidates_[id].fusion_class);
    slot = Slot{State::kResting, sequence, TensorDefinition{}};
    resting_.push_back(id);
  }
  return victims;
}

bool TensorTable::Resting(TensorId id, std::uint64_t applied) const {
  return id < slots_.size() && slots_[id].state == State::kResting &&
         applied <= slots_[id].forgotten_at;
}

void TensorTable::EndRest(std::uint64_t applied) {
  while (!resting_.empty() && slots_[resting_.front()].forgotten_at < applied) {
    slots_[resting_.front()].state = State::kFree;
    free_.push(resting_.front());
    resting_.pop_front();
  }
}

}  // namespace horovod_tf
