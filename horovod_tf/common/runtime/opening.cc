#include "horovod_tf/common/runtime/opening.h"

#include <utility>
#include <variant>

#include "horovod_tf/common/protocol/handshake.h"
#include "horovod_tf/common/runtime/inbox.h"
#include "horovod_tf/common/version.h"

namespace horovod_tf {
namespace {

// One rank's wait for the messages of the opening.
class Opening {
 public:
  Opening(Transport& transport, const Clock& clock, const StartLimit& limit,
          const std::function<bool()>& interrupted)
      : transport_(transport),
        clock_(clock),
        timeout_(limit.timeout),
        deadline_(limit.deadline),
        interrupted_(interrupted) {}

  Status RunAsRankZero(Hello hello, Welcome* welcome) {
    Handshake handshake(transport_.size());
    HVD_RETURN_IF_ERROR(handshake.OnHello(0, std::move(hello)));
    while (!handshake.complete()) {
      Received received;
      bool got = false;
      HVD_RETURN_IF_ERROR(Next(&received, &got));
      if (!got) {
        return Status::DeadlineExceeded(
            "not all ranks called hvd.init() within " + SecondsText(timeout_) + ": " +
            handshake.Progress() +
            ". Look at the output of the missing ranks; if they are only slow to start, raise "
            "HOROVOD_TF_INIT_TIMEOUT_SECONDS.");
      }
      Hello* other = std::get_if<Hello>(&received.message);
      if (other == nullptr) return UnexpectedMessage(received, 0);
      HVD_RETURN_IF_ERROR(handshake.OnHello(received.from, std::move(*other)));
    }
    *welcome = handshake.Conclude();
    if (transport_.size() == 1) return Status::Ok();
    return transport_.Broadcast(EncodeMessage(*welcome));
  }

  Status RunAsOther(Hello hello, Welcome* welcome) {
    HVD_RETURN_IF_ERROR(transport_.Send(0, EncodeMessage(std::move(hello))));
    Received received;
    bool got = false;
    HVD_RETURN_IF_ERROR(Next(&received, &got));
    if (!got) {
      return Status::DeadlineExceeded(
          "rank " + std::to_string(transport_.rank()) + " got no answer from rank 0 within " +
          SecondsText(timeout_) +
          ". Either rank 0 has not called hvd.init(), or it still waits for another rank; its "
          "output says which. If they are only slow to start, raise "
          "HOROVOD_TF_INIT_TIMEOUT_SECONDS.");
    }
    Welcome* answer = std::get_if<Welcome>(&received.message);
    if (answer == nullptr || received.from != 0) {
      return UnexpectedMessage(received, transport_.rank());
    }
    *welcome = std::move(*answer);
    return Status::Ok();
  }

 private:
  // Waits for the next message; `*got` is false when the time is over.
  Status Next(Received* received, bool* got) {
    while (true) {
      HVD_RETURN_IF_ERROR(TakeMessage(transport_, received, got));
      if (*got) return Status::Ok();
      if (interrupted_()) {
        return Status::Cancelled("hvd.init() was given up: shutdown was asked for while rank " +
                                 std::to_string(transport_.rank()) + " was waiting for the others");
      }
      if (clock_.Now() >= deadline_) return Status::Ok();
      transport_.Wait(deadline_, Expectation::kAnswer);
    }
  }

  Transport& transport_;
  const Clock& clock_;
  const Duration timeout_;
  const TimePoint deadline_;
  const std::function<bool()>& interrupted_;
};

}  // namespace

Hello MakeHello(const Transport& transport, const Config& config,
                const std::vector<std::pair<std::string, std::string>>& more) {
  const auto text = [](bool value) { return std::string(value ? "1" : "0"); };
  Hello hello;
  hello.library_version = kLibraryVersion;
  hello.host = transport.host();
  hello.agreements = {
      {"HOROVOD_HIERARCHICAL_ALLREDUCE", text(config.hierarchical_allreduce)},
      {"HOROVOD_MPI_THREADS_DISABLE", text(config.mpi_threads_disable)},
  };
  hello.agreements.insert(hello.agreements.end(), more.begin(), more.end());
  return hello;
}

Status OpenJob(Transport& transport, const Clock& clock, const StartLimit& limit, Hello hello,
               const std::function<bool()>& interrupted, std::vector<std::string>* hosts) {
  Opening opening(transport, clock, limit, interrupted);
  Welcome welcome;
  HVD_RETURN_IF_ERROR(transport.rank() == 0 ? opening.RunAsRankZero(std::move(hello), &welcome)
                                            : opening.RunAsOther(std::move(hello), &welcome));
  HVD_RETURN_IF_ERROR(welcome.status);
  if (welcome.hosts.size() != static_cast<std::size_t>(transport.size())) {
    return Status::Internal("rank 0 welcomed " + std::to_string(welcome.hosts.size()) +
                            " ranks to a job of " + std::to_string(transport.size()));
  }
  *hosts = std::move(welcome.hosts);
  return Status::Ok();
}

}  // namespace horovod_tf
