// The inside of the coordinator, for its own files: coordinator.cc and coordinator_joins.cc.
#ifndef HOROVOD_TF_COMMON_PROTOCOL_COORDINATOR_IMPL_H_
#define HOROVOD_TF_COMMON_PROTOCOL_COORDINATOR_IMPL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "horovod_tf/common/protocol/coordinator.h"
#include "horovod_tf/common/protocol/fusion.h"
#include "horovod_tf/common/protocol/inquiries.h"
#include "horovod_tf/common/protocol/joins.h"
#include "horovod_tf/common/protocol/round_table.h"
#include "horovod_tf/common/protocol/tensor_table.h"
#include "horovod_tf/common/protocol/withdrawals.h"

namespace horovod_tf {

// What to say of a rank that does what no correct one does.
Status Violation(int rank, const std::string& what);

// Thread rule: one thread at a time.
class Coordinator::Impl {
 public:
  Impl(const CoordinatorOptions& options, NegotiationObserver* observer)
      : options_(options),
        observer_(observer),
        table_(options.capacity),
        rounds_(options.size),
        stall_monitor_(options.stall),
        inquiries_(InquiryLead(options.stall)),
        withdrawals_(options.withdrawal_grace),
        joins_(options.size),
        applied_(static_cast<std::size_t>(options.size), 0) {}

  Status OnAnnounce(int rank, const Announce& announce, TimePoint now);
  void Advance(TimePoint now, Log* log);
  TimePoint NextDeadline() const;
  std::vector<std::string> TakeWarnings() { return std::exchange(warnings_, {}); }
  std::vector<int> TakeInquiries() { return std::exchange(to_ask_, {}); }
  void OnReport(int rank, Report report, TimePoint now) {
    inquiries_.OnReport(rank, std::move(report), now);
  }
  std::vector<PendingTensor> Pending() const;
  bool stopped() const { return stopped_; }

 private:
  // A tensor that every rank has announced or need not announce.
  using Complete = RoundTable::CompleteRound;
  struct ShutdownRequest {
    int rank;
    std::string reason;
    TimePoint when;
  };

  Status OnKnown(int rank, const Announce& announce, TimePoint now);
  Status OnUnknownId(int rank, TensorId id, std::uint64_t applied) const;
  Status OnRequest(int rank, const Request& request, std::uint64_t applied, TimePoint now);
  void OnWithdrawal(int rank, const Withdrawal& withdrawal, TimePoint now);
  void AnswerWithdrawal(int rank, const Withdrawal& withdrawal, TimePoint now);
  Status OnJoin(int rank, const Announce& announce, TimePoint now);
  void EndJoins(Log* log);
  void NoteReady(int rank, const std::string& name, CollectiveKind kind);
  void NoteComplete(Complete complete, TimePoint now);
  void NoteNegotiated(const std::string& name);

  void Resolve(Log* log);
  bool ResolveNamed(Complete* complete, Log* log);
  bool ResolveDiffering(TensorId id, Log* log);
  bool ResolveWithoutAbsent(const Complete& complete, Log* log);
  std::vector<Request> RequestsById(TensorId id) const;
  const std::string& NameOf(const Complete& complete) const;
  void Fail(const std::string& name, Status status, Log* log);
  void AnswerWithdrawals(TimePoint now, Log* log);
  bool ShouldExecute(TimePoint now) const;
  void Execute(Log* log);
  void MakeRoom(Log* log);
  void CheckStalls(TimePoint now, Log* log);
  TimePoint NextStallCheck() const;
  void AskMissingRanks(const std::vector<PendingTensor>& waiting, TimePoint now);
  void Stop(int rank, Status status, Log* log);
  // The number that the next record of `log` gets.
  std::uint64_t Next(const Log& log) const { return log.first_sequence + log.records.size(); }

  const CoordinatorOptions options_;
  NegotiationObserver* const observer_;  // may be null

  TensorTable table_;
  RoundTable rounds_;
  StallMonitor stall_monitor_;
  Inquiries inquiries_;  // about those of whom the stall monitor will complain
  Withdrawals withdrawals_;
  Joins joins_;
  std::vector<ErrorRecord> withdrawn_;  // answers to withdrawals, to be written
  TimePoint first_withdrawn_;           // of withdrawn_
  std::vector<std::uint64_t> applied_;  // by rank, as last announced
  std::uint64_t sequence_ = 0;          // of the next record
  std::uint64_t executed_ = 0;          // tensors

  std::vector<Complete> complete_;           // not looked at yet
  std::vector<Complete> ready_;              // checked, to be executed
  std::vector<FusionCandidate> candidates_;  // parallel to ready_
  std::int64_t ready_bytes_ = 0;
  TimePoint first_complete_;    // of complete_ and ready_
  std::size_t ids_wanted_ = 0;  // by tensors that had to be executed without one

  std::optional<ShutdownRequest> shutdown_;
  std::vector<std::string> warnings_;
  std::vector<int> to_ask_;
  bool stopped_ = false;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_PROTOCOL_COORDINATOR_IMPL_H_
