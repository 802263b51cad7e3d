#include "test/cpp/support/fault_transport.h"

#include <string>
#include <thread>
#include <utility>

namespace horovod_tf {
namespace {

// Thread rule: as Transport.
class FaultTransport final : public Transport {
 public:
  FaultTransport(std::unique_ptr<Transport> inner, FaultPlan plan,
                 std::shared_ptr<FaultCounters> counters)
      : inner_(std::move(inner)), plan_(plan), counters_(std::move(counters)) {
    if (counters_ == nullptr) counters_ = std::make_shared<FaultCounters>();
  }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& host() const override { return inner_->host(); }

  Status Send(int to, std::string bytes) override {
    const bool fault = Count(FaultCall::kSend, &counters_->sends);
    if (fault && Loses()) return Lost("Send");
    if (fault) Damage(&bytes);
    return inner_->Send(to, std::move(bytes));
  }

  Status Broadcast(const std::string& bytes) override {
    if (!Count(FaultCall::kBroadcast, &counters_->broadcasts)) return inner_->Broadcast(bytes);
    if (Loses()) return Lost("Broadcast");
    std::string damaged = bytes;
    Damage(&damaged);
    return inner_->Broadcast(damaged);
  }

  Status Receive(Incoming* message, bool* got) override {
    HVD_RETURN_IF_ERROR(inner_->Receive(message, got));
    if (!*got || !Count(FaultCall::kReceive, &counters_->receives)) return Status::Ok();
    if (Loses()) {
      *got = false;
      message->bytes.clear();
      return Lost("Receive");
    }
    Damage(&message->bytes);
    return Status::Ok();
  }

  void Wait(TimePoint deadline, Expectation expectation) override {
    inner_->Wait(deadline, expectation);
  }
  void Wake() override { inner_->Wake(); }
  void Abort(const Status& cause) override { inner_->Abort(cause); }
  Status health() const override { return inner_->health(); }
  Status Poll() override { return inner_->Poll(); }

 private:
  // Whether this call is the planned one.
  bool Count(FaultCall call, std::atomic<int>* counter) {
    const int number = ++*counter;
    const int all = ++calls_;
    const bool fault =
        plan_.call == FaultCall::kAny ? all == plan_.k : plan_.call == call && number == plan_.k;
    if (fault) ++counters_->faults;
    return fault;
  }

  bool Loses() const {
    return plan_.action == FaultAction::kFail || plan_.action == FaultAction::kDrop;
  }

  Status Lost(const char* method) const {
    if (plan_.action == FaultAction::kDrop) return Status::Ok();
    return Status::Unavailable("planned fault: " + std::string(method) + " on rank " +
                               std::to_string(rank()) + ", call " + std::to_string(plan_.k));
  }

  void Damage(std::string* bytes) const {
    if (plan_.action == FaultAction::kDelay) std::this_thread::sleep_for(plan_.delay);
    if (plan_.action == FaultAction::kTruncate) bytes->resize(bytes->size() / 2);
    if (plan_.action == FaultAction::kCorrupt && !bytes->empty()) {
      char& victim = (*bytes)[bytes->size() / 2];
      victim = static_cast<char>(victim ^ 0x10);
    }
  }

  const std::unique_ptr<Transport> inner_;
  const FaultPlan plan_;
  std::shared_ptr<FaultCounters> counters_;
  int calls_ = 0;  // of all counted kinds
};

}  // namespace

std::unique_ptr<Transport> MakeFaultTransport(std::unique_ptr<Transport> inner, FaultPlan plan,
                                              std::shared_ptr<FaultCounters> counters) {
  return std::make_unique<FaultTransport>(std::move(inner), plan, std::move(counters));
}

}  // namespace horovod_tf
