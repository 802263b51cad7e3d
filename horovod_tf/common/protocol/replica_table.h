// One rank's copy of the tensors that have an id, and what is in flight here under each name.
#ifndef HOROVOD_TF_COMMON_PROTOCOL_REPLICA_TABLE_H_
#define HOROVOD_TF_COMMON_PROTOCOL_REPLICA_TABLE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/protocol/message.h"
#include "horovod_tf/common/protocol/tensor_table.h"

namespace horovod_tf {

// Where a tensor is between its submission and its response.
enum class FlightState : std::uint8_t {
  kNone,           // nothing in flight
  kQueuedById,     // to be announced by id
  kQueuedInFull,   // to be announced in full
  kAnnouncedById,  // the coordinator has been told the id
  kAnnouncedInFull,
};

// Everything about one name.
struct ReplicaEntry {
  FlightState state = FlightState::kNone;
  std::uint64_t token = 0;     // while in flight
  std::optional<TensorId> id;  // while the tensor has one
  Request own;                 // what this rank asks for under `id`
  // What was submitted, while it is in flight in full; what is in flight by id equals `own`.
  std::unique_ptr<const Request> in_full;
  // Why this rank does not want it any more; null: it does.
  std::unique_ptr<const std::string> withdrawn;

  const Request& submitted() const { return in_full != nullptr ? *in_full : own; }
  // Ends the flight.
  void Land() {
    state = FlightState::kNone;
    in_full.reset();
    withdrawn.reset();
  }
};

// Entries do not move while they exist. Thread rule: one thread at a time.
class ReplicaTable {
 public:
  explicit ReplicaTable(int rank) : rank_(rank) {}

  // The entry of this name, made if there is none.
  ReplicaEntry& At(const std::string& name) { return entries_[name]; }
  // Null if there is none.
  ReplicaEntry* Find(const std::string& name);
  // Null if `id` has no meaning.
  ReplicaEntry* Find(TensorId id) { return id < slots_.size() ? slots_[id].entry : nullptr; }
  // REQUIRES: Find(id) != nullptr.
  const TensorDefinition& definition(TensorId id) const { return *slots_[id].definition; }

  // Equal for tensors that one operation can process; kNeverFused for those that run alone.
  // REQUIRES: Find(id) != nullptr.
  std::uint32_t fusion_class(TensorId id) const { return slots_[id].fusion_class; }

  // Refuses a definition that contradicts what is in flight here under its name.
  Status Define(const DefineRecord& record);
  // Whether `definition` says about this rank what was submitted here. REQUIRES: in flight.
  Status CheckSubmitted(const ReplicaEntry& entry, const TensorDefinition& definition) const;
  // What to say of a log that no correct coordinator writes.
  Status Violation(const std::string& what) const;
  // REQUIRES: Find(id) != nullptr. The entry stays.
  void Forget(TensorId id);
  // Drops the entry if nothing is in flight under it and it has no id. Names that come once must
  // not pile up.
  void Tidy(const std::string& name);

  // Keeps a definition without an id as long as the definitions with one.
  const TensorDefinition& Keep(const TensorDefinition& definition);
  // Definitions live until here even if they were replaced or forgotten in between: responses that
  // were made before point to them.
  void DropReplaced() { replaced_.clear(); }

  // Tokens in flight, increasing.
  std::vector<std::uint64_t> Tokens() const;
  // Ends every flight and returns what was in the air, increasing.
  std::vector<std::uint64_t> LandAll();

 private:
  struct Slot {
    std::unique_ptr<const TensorDefinition> definition;
    ReplicaEntry* entry = nullptr;
    std::uint32_t fusion_class = kNeverFused;
  };

  const int rank_;
  std::unordered_map<std::string, ReplicaEntry> entries_;
  std::vector<Slot> slots_;
  FusionClasses classes_;
  std::vector<std::unique_ptr<const TensorDefinition>> replaced_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_PROTOCOL_REPLICA_TABLE_H_
