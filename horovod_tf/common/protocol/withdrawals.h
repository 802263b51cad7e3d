// Withdrawals: which ranks have taken which tensors back and not come back to them, so that peers
// that wait for them are told instead of waiting for ever. Pure: time is an argument.
#ifndef HOROVOD_TF_COMMON_PROTOCOL_WITHDRAWALS_H_
#define HOROVOD_TF_COMMON_PROTOCOL_WITHDRAWALS_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/protocol/message.h"
#include "horovod_tf/common/protocol/round_table.h"
#include "horovod_tf/common/protocol/stall_monitor.h"
#include "horovod_tf/common/protocol/tensor_table.h"

namespace horovod_tf {

// What the rank itself is told of a tensor that it has withdrawn.
Status WithdrawnStatus(const std::string& reason);

// A rank that has withdrawn a tensor is waited for during the grace time: when all ranks run out of
// data together, each withdraws what it has asked for, and nobody must be told of an error. After
// that, whoever waits for the tensor gets one. A round that begins more than the grace time after
// the withdrawal is another step's.
//
// Thread rule: one thread at a time.
class Withdrawals {
 public:
  explicit Withdrawals(Duration grace) : grace_(grace) {}

  void Note(int rank, Withdrawal withdrawal, TimePoint now);
  // `rank` asks for the tensor again.
  void ComeBack(int rank, const std::string& name);
  // The rank will not ask for anything again, and nobody waits for it.
  void Drop(int rank);
  bool empty() const { return pending_.empty(); }

  // When to call Overdue; kNever if nothing is noted.
  TimePoint NextCheck() const;

  struct Failure {
    PendingTensor round;
    Status status;  // names the rank that has withdrawn it, and why it did
  };
  // The rounds that must be given up now; the caller does.
  std::vector<Failure> Overdue(TimePoint now, const RoundTable& rounds, const TensorTable& table);

  void Clear() { pending_.clear(); }

 private:
  struct Pending {
    std::string reason;
    TimePoint since;
    TimePoint due;  // to look at it
  };
  Status Describe(const std::string& name, int rank, const Pending& pending) const;

  const Duration grace_;
  std::map<std::pair<std::string, int>, Pending> pending_;  // by tensor and rank
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_PROTOCOL_WITHDRAWALS_H_
