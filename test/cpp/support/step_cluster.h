// StepCluster: the negotiation of a whole job on one thread, stepped by hand. It owns the
// Negotiator of every rank and the Coordinator, moves bytes (never structs) between them, and keeps
// what each rank was told to do.
#ifndef HOROVOD_TF_TEST_CPP_SUPPORT_STEP_CLUSTER_H_
#define HOROVOD_TF_TEST_CPP_SUPPORT_STEP_CLUSTER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/protocol/coordinator.h"
#include "horovod_tf/common/protocol/message.h"
#include "horovod_tf/common/protocol/negotiator.h"

namespace horovod_tf {

// Thread rule: one thread at a time.
class StepCluster {
 public:
  // One response, as a rank saw it. Definitions are copies.
  struct Event {
    Response::Type type = Response::Type::kExecute;
    std::vector<std::string> names;
    std::vector<TensorDefinition> definitions;
    Status status;
    int last_rank = 0;  // of a join
  };

  explicit StepCluster(int size, CoordinatorOptions options = DefaultOptions(),
                       NegotiationObserver* observer = nullptr);
  // The product's, with stall warnings after 60 s.
  static CoordinatorOptions DefaultOptions();

  int size() const { return static_cast<int>(ranks_.size()); }
  TimePoint now = TimePoint{};  // what the coordinator is told; tests move it

  Token Submit(int rank, Request request);
  Token Join(int rank);
  void SubmitEverywhere(const Request& request);
  // What was not announced yet is answered at once, by an error event.
  void Withdraw(int rank, const std::string& name, const std::string& reason);
  void RequestShutdown(int rank, const std::string& reason);

  // The four steps. Each says whether there was something to do; what goes wrong is kept in
  // failure().
  bool Announce(int rank);  // the rank sends what is new
  bool Collect(int rank);   // the coordinator takes the oldest message of this rank
  bool Advance();           // the coordinator decides and sends the log to everybody
  bool Deliver(int rank);   // the rank takes the oldest part of the log

  // Every rank announces, everything is collected, decided and delivered.
  void Cycle();
  // Cycles until nothing moves; fails after very many.
  void Settle();

  // What this rank was told, in order.
  const std::vector<Event>& events(int rank) const { return At(rank).events; }
  std::vector<Event> errors(int rank) const;
  // The executed batches of a rank: "a+b c" for {a, b} and then {c}.
  std::string Executed(int rank) const;
  // How often each of a rank's submissions has been answered, by token.
  const std::vector<int>& answers(int rank) const { return At(rank).answers; }
  bool InFlight(int rank, const std::string& name) const;
  std::vector<Token> InFlight(int rank) const { return At(rank).negotiator->InFlight(); }
  // Messages that nobody has taken yet.
  bool Quiet() const;

  const Status& failure() const { return failure_; }  // the first
  Coordinator& coordinator() { return coordinator_; }
  // Every record the coordinator has written.
  const std::vector<LogRecord>& log() const { return log_; }
  std::size_t last_announce_bytes(int rank) const { return At(rank).last_announce_bytes; }

 private:
  struct Rank {
    std::unique_ptr<Negotiator> negotiator;
    std::deque<std::string> to_coordinator;
    std::deque<std::string> from_coordinator;
    std::vector<Event> events;
    std::vector<std::string> names;  // by token
    std::vector<int> answers;        // by token
    std::size_t last_announce_bytes = 0;
  };

  Rank& At(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const Rank& At(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  void Keep(Status status);
  template <typename T>
  bool Decode(std::deque<std::string>* queue, T* message);
  void Record(Rank* rank, const Response& response);

  Coordinator coordinator_;
  std::vector<Rank> ranks_;
  std::vector<LogRecord> log_;
  Status failure_;
};

// Requests that tests use.
Request AllreduceRequest(const std::string& name, TensorShape shape);
Request AllgatherRequest(const std::string& name, TensorShape shape);
Request BroadcastRequest(const std::string& name, TensorShape shape, int root_rank);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_TEST_CPP_SUPPORT_STEP_CLUSTER_H_
