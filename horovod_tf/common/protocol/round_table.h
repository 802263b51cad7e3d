// Who has announced what: the coordinator's open rounds. A round of a tensor begins with the first
// rank that announces it and ends when its execution, or its error, is in the log.
#ifndef HOROVOD_TF_COMMON_PROTOCOL_ROUND_TABLE_H_
#define HOROVOD_TF_COMMON_PROTOCOL_ROUND_TABLE_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/protocol/message.h"
#include "horovod_tf/common/protocol/stall_monitor.h"
#include "horovod_tf/common/protocol/tensor_table.h"

namespace horovod_tf {

// Requests that differ from what the others are known to ask for, by rank.
using DifferingRequests = std::vector<std::pair<int, Request>>;

// The round of a tensor without an id. Ranks nearly always ask for the same, so one request is
// kept, and those that are not equal to it.
struct NamedRound {
  Request first;
  DifferingRequests differing;
  std::vector<bool> announced;
  int missing = 0;  // 0: complete, also where ranks that are absent have announced nothing
  TimePoint since;
  TensorDefinition definition;  // once it has been checked

  // Of all ranks, as if each had been kept. Those of ranks that have not announced are anybody's.
  std::vector<Request> Requests() const;
  std::vector<std::uint32_t> NotAnnounced() const;
};

// Thread rule: one thread at a time.
class RoundTable {
  struct Round;

 public:
  enum class Outcome {
    kCounted,
    kComplete,   // every rank has announced it now or is absent
    kTwice,      // this rank already had
    kUnknownId,  // no such id for this rank
  };

  explicit RoundTable(int size);

  // ---- tensors with an id: a few instructions each -------------------------------------------
  // `id` may be announced by ranks that have applied at least `usable_from` records of the log.
  void OpenId(TensorId id, std::uint64_t usable_from);
  // The same, for an id that is given to a tensor in the middle of its round: everybody has
  // announced it.
  void OpenCompleteId(TensorId id, std::uint64_t usable_from);
  void CloseId(TensorId id) { rounds_[id].usable_from = kUnusable; }
  // One message's announcements by id. Valid while no id is opened or closed. An object, so that
  // what is the same for a thousand ids stays in registers.
  class Announcer {
   public:
    Announcer(RoundTable* table, int rank, std::uint64_t applied, TimePoint now);
    Outcome operator()(TensorId id);

   private:
    RoundTable* const table_;
    const std::size_t ids_;
    Round* const rounds_;
    std::uint64_t* const words_;  // that of this rank in the row of id 0
    const std::size_t stride_;
    const std::uint64_t mask_;
    const int size_;
    const int absent_;
    const std::uint64_t applied_;
    const TimePoint now_;
  };
  // A rank announces in full a tensor that has an id. `differs`: not what its definition says.
  Outcome AnnounceIdInFull(TensorId id, int rank, std::uint64_t applied, const Request& request,
                           bool differs, TimePoint now);
  // Nobody has announced it.
  bool Idle(TensorId id) const { return rounds_[id].missing == size_; }
  bool Differs(TensorId id) const { return rounds_[id].differs; }
  // REQUIRES: Differs(id).
  const DifferingRequests& Differing(TensorId id) const { return differing_.at(id); }
  void EndIdRound(TensorId id);
  std::vector<std::uint32_t> NotAnnounced(TensorId id) const;

  // ---- tensors without an id -----------------------------------------------------------------
  // `round` is valid until EndNamedRound.
  Outcome AnnounceNamed(int rank, const Request& request, TimePoint now, NamedRound** round);
  void EndNamedRound(const std::string& name) { named_.erase(name); }

  // ---- absent ranks
  // ------------------------------------------------------------------------------ A round waits
  // for no rank that is absent. Nothing changes for rounds that are complete, nor for what the rank
  // has announced.
  struct CompleteRound {
    TensorId id = 0;
    NamedRound* named = nullptr;  // null: it has the id
    bool without_absent = false;  // ranks may be missing
  };
  // Returns the rounds that are complete without it, by name.
  std::vector<CompleteRound> SetAbsent(int rank, const TensorTable& table);
  void SetPresent(int rank);

  // ---- tensors by name, with or without an id: slower ------------------------------------------
  // `rank` takes its announcement back. Nothing happens, and false, if the tensor is not waiting
  // for other ranks or this rank has not announced it.
  bool Withdraw(const std::string& name, int rank, const TensorTable& table);
  // The round that waits for ranks under this name, if there is one.
  std::optional<PendingTensor> WaitingRound(const std::string& name,
                                            const TensorTable& table) const;
  // Ends that round before it is complete. REQUIRES: WaitingRound has a value.
  void Abandon(const std::string& name, const TensorTable& table);

  // ---- what is waiting for ranks -------------------------------------------------------------
  bool AnyWaiting() const { return waiting_ > 0; }
  // Not later than the time since when the oldest one waits, which is not worth knowing exactly
  // after each announcement; nothing if none waits.
  std::optional<TimePoint> WaitingSince() const;
  // Looks at all of them. Oldest first.
  std::vector<PendingTensor> Waiting(const TensorTable& table) const;
  // What Waiting has found out.
  void RefineWaitingSince(TimePoint oldest) { waiting_since_ = oldest; }

  void Clear();

 private:
  static constexpr std::uint64_t kUnusable = std::numeric_limits<std::uint64_t>::max();
  // Together, because announcing an id touches all of it.
  struct Round {
    std::uint64_t usable_from = kUnusable;
    TimePoint since;
    int missing = 0;
    bool differs = false;
  };

  void Grow(TensorId id);
  void NoteOpened(TimePoint now) {
    if (waiting_++ == 0) waiting_since_ = now;
  }
  bool HasAnnounced(TensorId id, int rank) const;
  bool OnlyAbsentMissing(TensorId id) const;
  bool OnlyAbsentMissing(const NamedRound& round) const;
  bool Waits(TensorId id) const;
  void WithdrawId(TensorId id, int rank);
  void WithdrawNamed(NamedRound* round, int rank);
  PendingTensor DescribeId(TensorId id, const TensorTable& table) const;
  PendingTensor DescribeNamed(const NamedRound& round) const;

  const int size_;
  const std::size_t words_;  // per id in announced_
  std::vector<Round> rounds_;
  std::vector<std::uint64_t> announced_;  // a row of rank bits per id
  std::vector<bool> absent_;              // by rank
  int absent_count_ = 0;
  std::unordered_map<TensorId, DifferingRequests> differing_;
  std::unordered_map<std::string, NamedRound> named_;
  std::size_t waiting_ = 0;
  TimePoint waiting_since_;
};

inline RoundTable::Announcer::Announcer(RoundTable* table, int rank, std::uint64_t applied,
                                        TimePoint now)
    : table_(table),
      ids_(table->rounds_.size()),
      rounds_(table->rounds_.data()),
      words_(table->announced_.data() + static_cast<std::size_t>(rank) / 64),
      stride_(table->words_),
      mask_(std::uint64_t{1} << (static_cast<std::size_t>(rank) % 64)),
      size_(table->size_),
      absent_(table->absent_count_),
      applied_(applied),
      now_(now) {}

inline RoundTable::Outcome RoundTable::Announcer::operator()(TensorId id) {
  if (id >= ids_ || applied_ < rounds_[id].usable_from) return Outcome::kUnknownId;
  std::uint64_t& word = words_[id * stride_];
  if ((word & mask_) != 0) return Outcome::kTwice;
  word |= mask_;
  Round& round = rounds_[id];
  if (round.missing == size_) {
    round.since = now_;
    table_->NoteOpened(now_);
  }
  if (--round.missing > absent_) return Outcome::kCounted;
  if (round.missing > 0 && !table_->OnlyAbsentMissing(id)) return Outcome::kCounted;
  round.missing = 0;
  --table_->waiting_;
  return Outcome::kComplete;
}

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_PROTOCOL_ROUND_TABLE_H_
