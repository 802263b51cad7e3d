// Coordinator: the side of the protocol that rank 0 plays for one process set. A pure state
// machine: it is fed (rank, announce, now) in any order and answers with one ordered log that every
// rank receives and executes first-in-first-out. No thread, lock, clock or I/O.
#ifndef HOROVOD_TF_COMMON_PROTOCOL_COORDINATOR_H_
#define HOROVOD_TF_COMMON_PROTOCOL_COORDINATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/protocol/message.h"
#include "horovod_tf/common/protocol/stall_monitor.h"

namespace horovod_tf {

struct CoordinatorOptions {
  int size = 1;
  std::int64_t fusion_threshold = 64 << 20;  // bytes; <= 0: no fusion
  std::int64_t capacity = 65536;             // tensors with an id; 0: none
  Duration cycle_time{0};                    // longest wait for more to fuse
  StallOptions stall;
  Duration withdrawal_grace{0};  // how long a rank that has withdrawn a tensor is waited for
};

// Told what the negotiation of each tensor is doing (the timeline). Called in the middle of
// Coordinator's functions: must not call back.
class NegotiationObserver {
 public:
  virtual ~NegotiationObserver() = default;
  virtual void OnRankReady(const std::string& name, CollectiveKind kind, int rank) = 0;
  // All ranks were ready (or the round failed).
  virtual void OnNegotiated(const std::string& name) = 0;
};

class Coordinator {
 public:
  // `observer` may be null; it outlives the coordinator.
  explicit Coordinator(const CoordinatorOptions& options, NegotiationObserver* observer = nullptr);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Takes what `rank` announces. An error means that `rank` broke the protocol; the job must end.
  Status OnAnnounce(int rank, const Announce& announce, TimePoint now);

  // Decides what can be decided now: fills `log` with the next records, none if there is nothing to
  // say. Everything that is complete is planned together: fusion comes from what has gathered since
  // the last call. With a cycle time, waits up to that long for tensors that only some ranks have
  // announced.
  void Advance(TimePoint now, Log* log);

  // When Advance must be called again if nothing arrives; kNever if only a message can change
  // anything.
  TimePoint NextDeadline() const;

  // The stall monitor's warnings since the last call, for rank 0 to log.
  std::vector<std::string> TakeWarnings();
  // Ranks (0 may be among them) to be asked what they do, since the last call; and the answer.
  std::vector<int> TakeInquiries();
  void OnReport(int rank, Report report, TimePoint now);

  // Tensors that some ranks have announced and others have not; for diagnosis.
  std::vector<PendingTensor> Pending() const;

  // After the shutdown record nothing more is decided.
  bool stopped() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_PROTOCOL_COORDINATOR_H_
