#include "horovod_tf/common/protocol/replica_table.h"

#include <algorithm>
#include <utility>

#include "horovod_tf/common/protocol/request_checks.h"

namespace horovod_tf {

ReplicaEntry* ReplicaTable::Find(const std::string& name) {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

Status ReplicaTable::Define(const DefineRecord& record) {
  const std::string& name = record.definition.common.name;
  const std::string what =
      "the log defines id " + std::to_string(record.id) + " as tensor '" + name;
  if (record.id > slots_.size()) {  // the coordinator takes the lowest free one
    return Violation(what + "', but the ids before " + std::to_string(record.id) +
                     " are not all in use");
  }
  ReplicaEntry& entry = At(name);
  const ReplicaEntry* const holder = Find(record.id);
  if ((holder != nullptr && holder != &entry) || (entry.id.has_value() && *entry.id != record.id)) {
    return Violation(what + "' before the old meaning has been forgotten");
  }
  if (entry.state == FlightState::kQueuedById || entry.state == FlightState::kQueuedInFull) {
    return Violation(what + "', which rank " + std::to_string(rank_) + " has not announced");
  }
  if (entry.state != FlightState::kNone) {
    HVD_RETURN_IF_ERROR(CheckSubmitted(entry, record.definition));
  }
  if (record.id == slots_.size()) slots_.emplace_back();
  Slot& slot = slots_[record.id];
  if (slot.definition != nullptr) replaced_.push_back(std::move(slot.definition));
  slot.definition = std::make_unique<const TensorDefinition>(record.definition);
  slot.entry = &entry;
  // The new class first: releasing an equal one could end it.
  classes_.Release(std::exchange(slot.fusion_class, classes_.Acquire(record.definition)));
  entry.id = record.id;
  entry.own = record.definition.RequestOf(rank_);
  return Status::Ok();
}

Status ReplicaTable::CheckSubmitted(const ReplicaEntry& entry,
                                    const TensorDefinition& definition) const {
  const Request agreed = definition.RequestOf(rank_);
  if (agreed == entry.submitted()) return Status::Ok();
  return Violation("the log says that rank " + std::to_string(rank_) + " submitted tensor '" +
                   agreed.name + "' as " + Describe(agreed) + ", but it submitted " +
                   Describe(entry.submitted()));
}

Status ReplicaTable::Violation(const std::string& what) const {
  return Status::Internal("The coordinator broke the control protocol: " + what + " (rank " +
                          std::to_string(rank_) +
                          "). Do all ranks run the same build of the library?");
}

void ReplicaTable::Forget(TensorId id) {
  Slot& slot = slots_[id];
  classes_.Release(std::exchange(slot.fusion_class, kNeverFused));
  replaced_.push_back(std::move(slot.definition));
  slot.entry->id.reset();
  slot.entry = nullptr;
}

void ReplicaTable::Tidy(const std::string& name) {
  const auto found = entries_.find(name);
  if (found == entries_.end() || found->second.id.has_value()) return;
  if (found->second.state == FlightState::kNone) entries_.erase(found);
}

const TensorDefinition& ReplicaTable::Keep(const TensorDefinition& definition) {
  replaced_.push_back(std::make_unique<const TensorDefinition>(definition));
  return *replaced_.back();
}

std::vector<std::uint64_t> ReplicaTable::Tokens() const {
  std::vector<std::uint64_t> tokens;
  for (const auto& [name, entry] : entries_) {
    if (entry.state != FlightState::kNone) tokens.push_back(entry.token);
  }
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

std::vector<std::uint64_t> ReplicaTable::LandAll() {
  std::vector<std::uint64_t> tokens = Tokens();
  for (auto& [name, entry] : entries_) entry.Land();
  return tokens;
}

}  // namespace horovod_tf
