// One runtime of two ranks against a peer that the test plays itself, message by message.
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "horovod_tf/common/protocol/message.h"
#include "horovod_tf/common/runtime/runtime.h"
#include "horovod_tf/common/transport/local_transport.h"
#include "test/cpp/support/hooked_transport.h"
#include "test/cpp/support/local_cluster.h"
#include "test/cpp/support/scripted_backend.h"

namespace horovod_tf {
namespace {

bool Has(const Status& status, const std::string& part) {
  return status.message().find(part) != std::string::npos;
}

Status Bye() { return Status::Unknown("Horovod has been shut down: bye"); }

// Rank `rank` of two is a runtime; the other is the endpoint `peer`, driven by the test.
struct Duet {
  explicit Duet(int rank, const std::function<void(RuntimeOptions*)>& customize = nullptr) {
    auto transports = MakeLocalTransports({"host-a", "host-b"});
    RuntimeOptions options;
    options.config = TestConfig();
    options.transport = std::move(transports[static_cast<std::size_t>(rank)]);
    peer = std::move(transports[static_cast<std::size_t>(1 - rank)]);
    options.backends.Add(std::make_unique<ScriptedBackend>(script));
    if (customize) customize(&options);
    runtime = std::make_unique<Runtime>(std::move(options));
    starter = std::thread([this] { started = runtime->Start(); });
  }
  ~Duet() {
    if (starter.joinable()) starter.join();
    runtime.reset();
  }

  // Waits until the start is over, and returns how it went.
  const Status& Started() {
    if (starter.joinable()) starter.join();
    return started;
  }
  // The next message for the peer, decoded.
  Message Next() {
    const TimePoint deadline = TestDeadline();
    Incoming incoming;
    bool got = false;
    while (!got && Clock::Real().Now() < deadline) {
      const Status status = peer->Receive(&incoming, &got);
      EXPECT_TRUE(status.ok()) << status.message();
      if (!status.ok()) break;
      if (!got) peer->Wait(deadline, Expectation::kAnswer);
    }
    Message message;
    std::uint32_t process_set = 0;
    EXPECT_TRUE(DecodeMessage(incoming.bytes, DecodeLimits{2}, &message, &process_set).ok());
    return message;
  }
  void Say(const Message& message) {
    EXPECT_TRUE(peer->Send(1 - peer->rank(), EncodeMessage(message)).ok());
  }
  // The runtime's first failure, once it has one.
  Status Failure() {
    const TimePoint deadline = TestDeadline();
    while (runtime->failure().ok() && Clock::Real().Now() < deadline) std::this_thread::yield();
    return runtime->failure();
  }
  // As rank 1 says it when all is well.
  Hello GoodHello() { return Hello{"0.1.0", "host-b", Agreements()}; }
  static std::vector<std::pair<std::string, std::string>> Agreements() {
    return {{"HOROVOD_HIERARCHICAL_ALLREDUCE", "0"}, {"HOROVOD_MPI_THREADS_DISABLE", "0"}};
  }

  std::shared_ptr<BackendScript> script = std::make_shared<BackendScript>();
  std::unique_ptr<Transport> peer;
  std::unique_ptr<Runtime> runtime;
  std::thread starter;
  Status started;
};

TEST(RuntimeAgainstPeer, GoodHello_StartsAndKnowsTheHosts) {
  Duet duet(0);
  duet.Say(duet.GoodHello());
  const Message welcome = duet.Next();
  ASSERT_TRUE(std::holds_alternative<Welcome>(welcome));
  EXPECT_EQ(std::get<Welcome>(welcome).hosts, (std::vector<std::string>{"host-a", "host-b"}));
  ASSERT_TRUE(duet.Started().ok()) << duet.Started();
  EXPECT_EQ(duet.runtime->topology().size, 2);
  EXPECT_EQ(duet.runtime->topology().local_size, 1);
  EXPECT_EQ(duet.runtime->topology().cross_size, 2);
  duet.peer->Abort(Status::Unknown("the test is over"));
}

TEST(RuntimeAgainstPeer, OtherVersion_FailsOnBothWithBothValues) {
  Duet duet(0);
  Hello hello = duet.GoodHello();
  hello.library_version = "9.9.9";
  duet.Say(hello);
  const Message welcome = duet.Next();
  ASSERT_TRUE(std::holds_alternative<Welcome>(welcome));
  EXPECT_FALSE(std::get<Welcome>(welcome).status.ok());
  EXPECT_EQ(duet.Started().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Has(duet.Started(), "9.9.9") && Has(duet.Started(), "0.1.0")) << duet.Started();
}

TEST(RuntimeAgainstPeer, BrokenBytes_FailTheStartAndTellThePeer) {
  Duet duet(0);
  EXPECT_TRUE(duet.peer->Send(0, "no message at all").ok());
  EXPECT_TRUE(Has(duet.Started(), "cannot read a message from rank 1")) << duet.Started();
  EXPECT_TRUE(Has(duet.peer->health(), "rank 0 failed")) << duet.peer->health();
  EXPECT_EQ(duet.runtime->state(), RuntimeState::kFailed);
}

TEST(RuntimeAgainstPeer, WrongMessageForTheOpening_FailsTheStart) {
  for (const int rank : {0, 1}) {
    Duet duet(rank);
    duet.Say(Announce{});
    EXPECT_TRUE(Has(duet.Started(), "did not expect")) << duet.Started();
    EXPECT_TRUE(Has(duet.Started(), "Announce")) << duet.Started();
  }
}

TEST(RuntimeAgainstPeer, UnknownProcessSet_FailsTheStart) {
  Duet duet(0);
  EXPECT_TRUE(duet.peer->Send(0, EncodeMessage(duet.GoodHello(), 7)).ok());
  EXPECT_TRUE(Has(duet.Started(), "process set 7")) << duet.Started();
}

TEST(RuntimeAgainstPeer, WelcomeWithAReason_FailsTheStartWithIt) {
  Duet duet(1);
  ASSERT_TRUE(std::holds_alternative<Hello>(duet.Next()));
  duet.Say(Welcome{Status::FailedPrecondition("two worlds"), {}});
  EXPECT_TRUE(Has(duet.Started(), "two worlds"));
  EXPECT_EQ(duet.Started().code(), StatusCode::kFailedPrecondition);
}

TEST(RuntimeAgainstPeer, WelcomeToAnotherNumberOfRanks_FailsTheStart) {
  Duet duet(1);
  duet.Say(Welcome{Status::Ok(), {"host-a"}});
  EXPECT_FALSE(duet.Started().ok());
}

TEST(RuntimeAgainstPeer, PeerThatAborts_FailsTheStartNamingIt) {
  Duet duet(0);
  duet.peer->Abort(Status::Internal("out of coffee"));
  EXPECT_TRUE(Has(duet.Started(), "rank 1 failed")) << duet.Started();
  EXPECT_TRUE(Has(duet.Started(), "out of coffee")) << duet.Started();
}

TEST(RuntimeAgainstPeer, NoAnswer_TimesOutSayingWhoIsMissing) {
  const auto hurry = [](RuntimeOptions* o) { o->config.init_timeout = FromSeconds(0.05); };
  Duet zero(0, hurry);
  EXPECT_EQ(zero.Started().code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Has(zero.Started(), "missing: rank 1")) << zero.Started();
  EXPECT_TRUE(Has(zero.Started(), "HOROVOD_TF_INIT_TIMEOUT_SECONDS")) << zero.Started();
  Duet one(1, hurry);
  EXPECT_EQ(one.Started().code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Has(one.Started(), "no answer from rank 0 within 0.05 s")) << one.Started();
}

TEST(RuntimeAgainstPeer, DeadlineOfTheWholeStart_CountsIfItComesFirst) {
  Duet zero(0, [](RuntimeOptions* o) {
    o->start_deadline = AfterDelay(Clock::Real().Now(), FromSeconds(0.05));
    o->config.init_timeout = FromSeconds(300);
  });
  EXPECT_EQ(zero.Started().code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Has(zero.Started(), "within 300 s")) << zero.Started();
}

TEST(RuntimeAgainstPeer, CallThatDoesNotReturn_IsLeftInTime) {
  auto gate = std::make_shared<std::promise<void>>();
  auto left = std::make_shared<std::promise<void>>();
  {
    Duet zero(0, [&](RuntimeOptions* o) {
      o->config.init_timeout = FromSeconds(0.05);
      o->transport = std::make_unique<HookedTransport>(
          std::move(o->transport), nullptr,
          [gate, left, opened = gate->get_future().share()]() mutable {
            opened.wait();
            if (left != nullptr) left->set_value();
            left = nullptr;
            return Status::Ok();
          });
    });
    const TimePoint begin = Clock::Real().Now();
    const Status& status = zero.Started();
    EXPECT_LT(ToSeconds(Clock::Real().Now() - begin), 20);
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_TRUE(Has(status, "hvd.init() did not end within 0.05 s")) << status;
    EXPECT_TRUE(Has(status, "was left behind")) << status;
  }
  gate->set_value();
  EXPECT_EQ(left->get_future().wait_until(TestDeadline()), std::future_status::ready);
}

TEST(RuntimeAgainstPeer, StopWhileStarting_GivesTheStartUp) {
  Duet duet(0);
  while (duet.runtime->state() != RuntimeState::kStarting) std::this_thread::yield();
  const TestTensorPtr early = Submit(*duet.runtime, TestSpec{"early"}, 0, 2);
  EXPECT_TRUE(early->FailedWith("has not been initialized"));
  EXPECT_EQ(duet.runtime->Stop("changed my mind").code(), StatusCode::kCancelled);
  EXPECT_EQ(duet.Started().code(), StatusCode::kCancelled);
  EXPECT_EQ(duet.runtime->state(), RuntimeState::kFailed);
}

// ---- who is there
// --------------------------------------------------------------------------------

// A runtime as rank 1 that has started; the test is rank 0.
void Welcome1(Duet* duet) {
  ASSERT_TRUE(std::holds_alternative<Hello>(duet->Next()));
  duet->Say(Welcome{Status::Ok(), {"host-a", "host-b"}});
  ASSERT_TRUE(duet->Started().ok()) << duet->Started();
}

TEST(RuntimeAgainstPeer, AnInquiry_IsAnsweredWithWhatTheRankDoes) {
  Duet duet(1);
  ASSERT_NO_FATAL_FAILURE(Welcome1(&duet));
  duet.Say(Inquiry());
  Message answer = duet.Next();
  ASSERT_TRUE(std::holds_alternative<Report>(answer));
  EXPECT_EQ(std::get<Report>(answer).executed, 0u);
  EXPECT_EQ(std::get<Report>(answer).last, "");
  EXPECT_TRUE(std::get<Report>(answer).waiting.empty());

  const TestTensorPtr done = Submit(*duet.runtime, TestSpec{"done"}, 1, 2);
  Message asked = duet.Next();
  ASSERT_TRUE(std::holds_alternative<Announce>(asked));
  duet.Say(
      Log{0, {ExecuteOnceRecord{TensorDefinition{std::get<Announce>(asked).requests[0], {}, {}}}}});
  ASSERT_TRUE(done->Wait());
  const TestTensorPtr open = Submit(*duet.runtime, TestSpec{"open"}, 1, 2);
  ASSERT_TRUE(std::holds_alternative<Announce>(duet.Next()));
  duet.Say(Inquiry());
  answer = duet.Next();
  ASSERT_TRUE(std::holds_alternative<Report>(answer));
  EXPECT_EQ(std::get<Report>(answer).executed, 1u);
  EXPECT_EQ(std::get<Report>(answer).last, "allreduce of 'done'");
  ASSERT_EQ(std::get<Report>(answer).waiting.size(), 1u);
  EXPECT_EQ(std::get<Report>(answer).waiting[0].name, "open");
  duet.peer->Abort(Status::Unknown("the test is over"));
  EXPECT_TRUE(open->Wait());
}

TEST(RuntimeAgainstPeer, ASilentRankZero_IsAskedAndThenEndsTheJob) {
  Duet duet(1, [](RuntimeOptions* o) {
    o->config.stall_warning_time = FromSeconds(0.02);
    o->config.stall_shutdown_time = FromSeconds(0.1);
  });
  ASSERT_NO_FATAL_FAILURE(Welcome1(&duet));
  const TestTensorPtr tensor = Submit(*duet.runtime, TestSpec{"lonely"}, 1, 2);
  ASSERT_TRUE(std::holds_alternative<Announce>(duet.Next()));
  // As long as rank 0 answers, its slowness is no failure.
  for (int answers = 0; answers < 10; ++answers) {
    ASSERT_TRUE(std::holds_alternative<Inquiry>(duet.Next()));
    duet.Say(Report());
    EXPECT_EQ(tensor->calls(), 0);
  }
  ASSERT_TRUE(tensor->Wait());
  EXPECT_TRUE(tensor->FailedWith("Rank 0 has not answered for 0.1"));
  EXPECT_TRUE(Has(duet.peer->health(), "Rank 0 has not answered")) << duet.peer->health();
}

// What a peer may say once the job runs, and what the runtime's failure then says.
struct Offence {
  int rank;  // of the runtime
  Message message;
  const char* text;
};

TEST(RuntimeAgainstPeer, BrokenProtocol_FailsTheJobAndWhatIsInFlight) {
  Announce never_defined;
  never_defined.known = {5};
  const std::vector<Offence> offences = {
      {0, Log{}, "did not expect a message of type Log"},
      {0, Hello{"0.1.0", "host-b", {}}, "did not expect a message of type Hello"},
      {0, never_defined, "5"},
      {1, Announce{}, "did not expect a message of type Announce"},
      {1, Log{17, {ExecuteRecord{{0}}}}, "17"},
      {1, Log{0, {ExecuteRecord{{3}}}}, "3"},
  };
  for (const Offence& offence : offences) {
    Duet duet(offence.rank);
    if (offence.rank == 0) {
      duet.Say(duet.GoodHello());
    } else {
      duet.Say(Welcome{Status::Ok(), {"host-a", "host-b"}});
    }
    ASSERT_TRUE(duet.Started().ok()) << duet.Started();
    const TestTensorPtr tensor = Submit(*duet.runtime, TestSpec{"t"}, offence.rank, 2);
    duet.Say(offence.message);
    EXPECT_TRUE(Has(duet.Failure(), offence.text)) << duet.Failure();
    ASSERT_TRUE(tensor->Wait());
    EXPECT_TRUE(tensor->FailedWith(duet.Failure().message()));
    EXPECT_TRUE(Has(duet.peer->health(), duet.Failure().message())) << duet.peer->health();
  }
}

TEST(RuntimeAgainstPeer, WelcomeOrLogFromAnotherThanRankZero_FailsTheJob) {
  for (const bool welcomed : {false, true}) {
    auto transports = MakeLocalTransports(OneHost(3));
    RuntimeOptions options;
    options.config = TestConfig();
    options.transport = std::move(transports[1]);
    Runtime runtime(std::move(options));
    const Message welcome = Welcome{Status::Ok(), OneHost(3)};
    EXPECT_TRUE(transports[welcomed ? 0 : 2]->Send(1, EncodeMessage(welcome)).ok());
    EXPECT_EQ(runtime.Start().ok(), welcomed);
    if (welcomed) {
      EXPECT_TRUE(transports[2]->Send(1, EncodeMessage(Log{0, {ShutdownRecord{2, Bye()}}})).ok());
    }
    const Status stopped = runtime.Stop("after the offence");
    EXPECT_TRUE(Has(stopped, "did not expect a message of type")) << stopped;
    EXPECT_TRUE(Has(stopped, "from rank 2")) << stopped;
  }
}

TEST(RuntimeAgainstPeer, PeerThatLeaves_FailsTheJob) {
  Duet duet(0);
  duet.Say(duet.GoodHello());
  ASSERT_TRUE(duet.Started().ok());
  const TestTensorPtr tensor = Submit(*duet.runtime, TestSpec{"t"}, 0, 2);
  duet.peer.reset();
  ASSERT_TRUE(tensor->Wait());
  EXPECT_TRUE(tensor->FailedWith("rank 1"));
  EXPECT_EQ(duet.runtime->Stop("after the loss").message(), duet.Failure().message());
}

TEST(RuntimeAgainstPeer, ShutdownRecordThenDeparture_IsNoFailure) {
  for (int round = 0; round < 50; ++round) {
    Duet duet(1);
    duet.Say(Welcome{Status::Ok(), {"host-a", "host-b"}});
    ASSERT_TRUE(duet.Started().ok());
    const TestTensorPtr tensor = Submit(*duet.runtime, TestSpec{"t"}, 1, 2);
    duet.Say(Log{0, {ShutdownRecord{0, Bye()}}});
    duet.peer.reset();
    ASSERT_TRUE(tensor->Wait());
    EXPECT_TRUE(tensor->FailedWith("bye"));
    EXPECT_TRUE(duet.runtime->Stop("so be it").ok()) << duet.runtime->failure();
    EXPECT_EQ(duet.runtime->state(), RuntimeState::kStopped);
  }
}

// Rank 1 of two, whose second message, the first after the opening, fails after `meanwhile`.
struct FailingSend {
  explicit FailingSend(std::function<void(Duet&)> meanwhile) {
    duet = std::make_unique<Duet>(1, [this, meanwhile](RuntimeOptions* options) {
      options->transport = std::make_unique<HookedTransport>(
          std::move(options->transport),
          [this, meanwhile] {
            if (++sends == 1) return Status::Ok();
            meanwhile(*duet);
            return Status::Unavailable("second cause");
          },
          nullptr);
    });
    duet->Say(Welcome{Status::Ok(), {"host-a", "host-b"}});
    EXPECT_TRUE(duet->Started().ok());
    tensor = Submit(*duet->runtime, TestSpec{"t"}, 1, 2);
    EXPECT_TRUE(tensor->Wait());
  }
  int sends = 0;
  std::unique_ptr<Duet> duet;
  TestTensorPtr tensor;
};

TEST(RuntimeAgainstPeer, SendThatFailsBecauseTheJobHasEnded_IsNoFailure) {
  FailingSend send([](Duet& duet) { duet.Say(Log{0, {ShutdownRecord{0, Bye()}}}); });
  EXPECT_TRUE(send.tensor->FailedWith("bye"));
  EXPECT_TRUE(send.duet->runtime->Stop("so be it").ok()) << send.duet->runtime->failure();
  EXPECT_EQ(send.duet->runtime->state(), RuntimeState::kStopped);
}

TEST(RuntimeAgainstPeer, SendThatFailsOtherwise_IsTheFailure) {
  FailingSend send([](Duet&) {});
  EXPECT_TRUE(send.tensor->FailedWith("second cause"));
  EXPECT_EQ(send.duet->runtime->Stop("after the failure").message(), "second cause");
  EXPECT_TRUE(Has(send.duet->peer->health(), "rank 1 failed: second cause"));
}

TEST(RuntimeAgainstPeer, FailureAfterAPeers_SpeaksOfThePeersFirst) {
  FailingSend send([](Duet& duet) { duet.peer->Abort(Status::Unknown("first cause")); });
  EXPECT_TRUE(send.tensor->FailedWith("rank 0 failed: first cause"));
  EXPECT_EQ(send.duet->runtime->Stop("after the failure").message(), "rank 0 failed: first cause");
}

}  // namespace
}  // namespace horovod_tf
