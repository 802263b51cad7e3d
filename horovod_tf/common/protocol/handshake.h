// The opening of a job: every rank says Hello to rank 0, which answers everybody with one Welcome
// that carries the hosts, or the reason why the job cannot start. Pure: no thread, clock or I/O.
#ifndef HOROVOD_TF_COMMON_PROTOCOL_HANDSHAKE_H_
#define HOROVOD_TF_COMMON_PROTOCOL_HANDSHAKE_H_

#include <optional>
#include <string>
#include <vector>

#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/protocol/message.h"

namespace horovod_tf {

// Rank 0's side. Thread rule: one thread at a time.
class Handshake {
 public:
  explicit Handshake(int size);

  // An error means that `rank` broke the protocol (said hello twice).
  Status OnHello(int rank, Hello hello);
  bool complete() const { return arrived_ == hellos_.size(); }
  // OK and all hosts if every rank agrees; else FailedPrecondition that names the first setting
  // that differs, two ranks with their hosts, and both values. REQUIRES: complete().
  Welcome Conclude() const;
  // "2 of 4 ranks arrived (rank 0 on a, rank 2 on b); missing: rank 1, rank 3".
  std::string Progress() const;

 private:
  std::vector<std::optional<Hello>> hellos_;
  std::size_t arrived_ = 0;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_PROTOCOL_HANDSHAKE_H_
