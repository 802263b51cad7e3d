// HookedTransport: a transport that lets a test act, fail or throw in the middle of a call.
#ifndef HOROVOD_TF_TEST_CPP_SUPPORT_HOOKED_TRANSPORT_H_
#define HOROVOD_TF_TEST_CPP_SUPPORT_HOOKED_TRANSPORT_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "horovod_tf/common/transport/transport.h"

namespace horovod_tf {

// Thread rule: as Transport.
class HookedTransport final : public Transport {
 public:
  using Hook = std::function<Status()>;  // a status that is not OK is the call's

  HookedTransport(std::unique_ptr<Transport> inner, Hook before_send, Hook before_receive)
      : inner_(std::move(inner)),
        before_send_(std::move(before_send)),
        before_receive_(std::move(before_receive)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& host() const override { return inner_->host(); }
  Status Send(int to, std::string bytes) override {
    if (before_send_) HVD_RETURN_IF_ERROR(before_send_());
    return inner_->Send(to, std::move(bytes));
  }
  Status Receive(Incoming* message, bool* got) override {
    if (before_receive_) HVD_RETURN_IF_ERROR(before_receive_());
    return inner_->Receive(message, got);
  }
  void Wait(TimePoint deadline, Expectation expectation) override {
    inner_->Wait(deadline, expectation);
  }
  void Wake() override { inner_->Wake(); }
  void Abort(const Status& cause) override { inner_->Abort(cause); }
  Status health() const override { return inner_->health(); }
  Status Poll() override { return inner_->Poll(); }

 private:
  const std::unique_ptr<Transport> inner_;
  const Hook before_send_;
  const Hook before_receive_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_TEST_CPP_SUPPORT_HOOKED_TRANSPORT_H_
