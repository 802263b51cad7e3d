// Negotiator: the side of the protocol that every rank plays (rank 0 too) for one process set.
// Pure: no thread, lock, clock or I/O. It turns what was submitted here into announcements, and the
// log into what to execute.
#ifndef HOROVOD_TF_COMMON_PROTOCOL_NEGOTIATOR_H_
#define HOROVOD_TF_COMMON_PROTOCOL_NEGOTIATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/protocol/message.h"

namespace horovod_tf {

// The caller's handle for one submission; comes back in the response.
using Token = std::uint64_t;

// What a rank has to do next, in the order of the log.
struct Response {
  enum class Type { kExecute, kError, kShutdown, kJoined };
  Type type = Type::kExecute;
  // The batch, in the batch's order; or the failed tensors; or the join that is over. Empty for a
  // batch that this rank takes part in without a tensor of its own, because it has joined.
  std::vector<Token> tokens;
  // kExecute: definitions of the batch's tensors, parallel to `tokens`; of the one tensor if there
  // is no token. Valid until the next OnLog.
  std::vector<const TensorDefinition*> definitions;
  Status status;      // kError and kShutdown
  int last_rank = 0;  // kJoined
};

class Negotiator {
 public:
  Negotiator(int rank, int size);
  ~Negotiator();
  Negotiator(const Negotiator&) = delete;
  Negotiator& operator=(const Negotiator&) = delete;

  // REQUIRES: ValidateRequest(request, size).ok(), and no submission of this name is in flight
  // here.
  void Submit(const Request& request, Token token);
  // This rank has no more data. What it submits from now on is not announced before the answer: a
  // kJoined response. Takes kJoinName as its name until then. REQUIRES: no submission of this name
  // is in flight here.
  void Join(Token token);
  // Takes a submission back. True: it has not been announced, the log will say nothing of it, and
  // the caller finishes it. False: the log says what becomes of it, an error if the others have not
  // asked for it too. Harmless when repeated. REQUIRES: a submission of this name is in flight
  // here.
  bool Withdraw(const std::string& name, std::string reason);
  // Asks all ranks to stop; the answer is a kShutdown response.
  void RequestShutdown(std::string reason);

  // Fills `announce` with everything not yet announced; false if there is nothing.
  bool TakeAnnounce(Announce* announce);

  // Applies the next part of the log and appends what to do. An error means that the coordinator
  // broke the protocol (a gap, an unknown id, an execution of something not submitted); the job
  // must end.
  Status OnLog(const Log& log, std::vector<Response>* responses);

  // Tokens of everything submitted and not yet answered; for the end of a failed runtime.
  std::vector<Token> InFlight() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_PROTOCOL_NEGOTIATOR_H_
