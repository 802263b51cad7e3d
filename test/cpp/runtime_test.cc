// One runtime in a scripted world: LocalTransport(1) and a backend that does what a test says.
#include "horovod_tf/common/runtime/runtime.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <future>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "horovod_tf/common/transport/local_transport.h"
#include "test/cpp/support/hooked_transport.h"
#include "test/cpp/support/local_cluster.h"
#include "test/cpp/support/scripted_backend.h"

namespace horovod_tf {
namespace {

bool Has(const Status& status, const std::string& part) {
  return status.message().find(part) != std::string::npos;
}

// One rank, alone, and the script of its backend.
struct Solo {
  explicit Solo(const std::function<void(RuntimeOptions*)>& customize = nullptr) {
    RuntimeOptions options;
    options.config = TestConfig();
    options.transport = std::move(MakeLocalTransports({"host-a"}).front());
    options.backends.Add(std::make_unique<ScriptedBackend>(script));
    if (customize) customize(&options);
    runtime = std::make_unique<Runtime>(std::move(options));
  }

  TestTensorPtr Add(const std::string& name, std::function<void(const Status&)> then = nullptr) {
    TestSpec spec;
    spec.name = name;
    auto tensor = std::make_shared<TestTensor>(spec, 0, 1);
    runtime->Enqueue(Group(tensor->Entry(std::move(then))));
    return tensor;
  }

  std::shared_ptr<BackendScript> script = std::make_shared<BackendScript>();
  std::unique_ptr<Runtime> runtime;
};

void ShortShutdown(RuntimeOptions* options) {
  options->config.shutdown_timeout = FromSeconds(0.05);
}

TEST(Runtime, StartAndStop_200Times_EachWorks) {
  for (int i = 0; i < 200; ++i) {
    Solo solo;
    ASSERT_TRUE(solo.runtime->Start().ok());
    ASSERT_EQ(solo.runtime->state(), RuntimeState::kRunning);
    const TestTensorPtr tensor = solo.Add("grad/" + std::to_string(i));
    ASSERT_TRUE(tensor->Wait());
    ASSERT_TRUE(tensor->Correct());
    ASSERT_TRUE(solo.runtime->Stop("round over").ok());
    ASSERT_EQ(solo.runtime->state(), RuntimeState::kStopped);
  }
}

TEST(Runtime, StopRightAfterStart_200Times_NeverHangs) {
  for (int i = 0; i < 200; ++i) {
    Solo solo;
    ASSERT_TRUE(solo.runtime->Start().ok());
    const TestTensorPtr tensor = solo.Add("t");
    ASSERT_TRUE(solo.runtime->Stop("at once").ok());
    // Submitted before the stop: it is still run, and has ended when Stop returns.
    ASSERT_TRUE(tensor->Correct());
  }
}

TEST(Runtime, EnqueueBeforeStart_IsToldToInitialize) {
  Solo solo;
  const TestTensorPtr tensor = solo.Add("early");
  EXPECT_TRUE(tensor->FailedWith("Horovod has not been initialized; use hvd.init()."));
  EXPECT_EQ(tensor->status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(solo.runtime->state(), RuntimeState::kIdle);
  ASSERT_TRUE(solo.runtime->Start().ok());
  const TestTensorPtr again = solo.Add("early");
  ASSERT_TRUE(again->Wait());
  EXPECT_TRUE(again->Correct());
}

TEST(Runtime, StopBeforeStart_DoesNothing) {
  Solo solo;
  EXPECT_TRUE(solo.runtime->Stop("nothing to stop").ok());
  EXPECT_EQ(solo.runtime->state(), RuntimeState::kIdle);
  EXPECT_TRUE(solo.runtime->Start().ok());
}

TEST(Runtime, EnqueueWhileDraining_IsRefusedAndWhatRanFinishes) {
  Solo solo;
  ASSERT_TRUE(solo.runtime->Start().ok());
  solo.script->Push(ScriptAction::kBlock);
  const TestTensorPtr running = solo.Add("running");
  ASSERT_TRUE(solo.script->WaitForRuns(1, TestDeadline()));
  const TestTensorPtr waiting = solo.Add("waiting");
  std::thread stopper([&] { EXPECT_TRUE(solo.runtime->Stop("end of training").ok()); });
  while (solo.runtime->state() != RuntimeState::kDraining) std::this_thread::yield();
  const TestTensorPtr late = solo.Add("late");
  EXPECT_TRUE(late->FailedWith("Horovod has been shut down"));
  EXPECT_TRUE(late->FailedWith("end of training"));
  EXPECT_EQ(late->status().code(), StatusCode::kUnknown);
  EXPECT_EQ(running->calls(), 0);
  solo.script->Release();
  stopper.join();
  EXPECT_TRUE(running->Correct());
  EXPECT_TRUE(waiting->Correct());
  EXPECT_EQ(solo.runtime->state(), RuntimeState::kStopped);
}

TEST(Runtime, EnqueueAfterStop_IsToldWhy) {
  Solo solo;
  ASSERT_TRUE(solo.runtime->Start().ok());
  ASSERT_TRUE(solo.runtime->Stop("evaluation finished").ok());
  const TestTensorPtr late = solo.Add("late");
  EXPECT_TRUE(late->FailedWith("Horovod has been shut down"));
  EXPECT_TRUE(late->FailedWith("evaluation finished"));
  EXPECT_EQ(late->status().code(), StatusCode::kUnknown);
  EXPECT_TRUE(solo.runtime->failure().ok());
}

TEST(Runtime, BackendFails_FirstFailureIsKeptForAllLaterTensors) {
  Solo solo;
  ASSERT_TRUE(solo.runtime->Start().ok());
  solo.script->Push(ScriptAction::kError, Status::Unknown("cable 7 is cut"));
  const TestTensorPtr victim = solo.Add("victim");
  ASSERT_TRUE(victim->Wait());
  EXPECT_TRUE(victim->FailedWith("cable 7 is cut"));
  EXPECT_FALSE(solo.runtime->Stop("after the failure").ok());
  EXPECT_EQ(solo.runtime->state(), RuntimeState::kFailed);
  EXPECT_TRUE(Has(solo.runtime->failure(), "cable 7 is cut"));
  const TestTensorPtr later = solo.Add("later");
  EXPECT_TRUE(later->FailedWith("cable 7 is cut"));
  EXPECT_EQ(later->status().code(), StatusCode::kUnknown);
}

TEST(Runtime, BackendThrows_FailsWithTheExceptionsText) {
  for (const ScriptAction action : {ScriptAction::kThrow, ScriptAction::kThrowOther}) {
    Solo solo;
    ASSERT_TRUE(solo.runtime->Start().ok());
    solo.script->Push(action, Status::Unknown("bad cast in a library"));
    const TestTensorPtr victim = solo.Add("victim");
    ASSERT_TRUE(victim->Wait());
    EXPECT_TRUE(
        victim->FailedWith(action == ScriptAction::kThrow ? "bad cast in a library" : "exception"));
    EXPECT_FALSE(solo.runtime->Stop("after the failure").ok());
    EXPECT_EQ(victim->calls(), 1);
    EXPECT_EQ(solo.runtime->state(), RuntimeState::kFailed);
  }
}

TEST(Runtime, BackendFails_WaitingTensorsGetTheSameText) {
  Solo solo;
  ASSERT_TRUE(solo.runtime->Start().ok());
  solo.script->Push(ScriptAction::kBlock);
  solo.script->Push(ScriptAction::kError, Status::Unknown("cable 8 is cut"));
  const TestTensorPtr first = solo.Add("first");
  ASSERT_TRUE(solo.script->WaitForRuns(1, TestDeadline()));
  std::vector<TestTensorPtr> waiting;
  TestSpec gather;
  gather.kind = CollectiveKind::kAllgather;  // never fused: one of these runs, the others wait
  for (int i = 0; i < 5; ++i) {
    gather.name = "rows/" + std::to_string(i);
    waiting.push_back(Submit(*solo.runtime, gather, 0, 1));
  }
  solo.script->Release();
  for (const TestTensorPtr& tensor : waiting) {
    ASSERT_TRUE(tensor->Wait());
    EXPECT_TRUE(tensor->FailedWith("cable 8 is cut"));
  }
  EXPECT_TRUE(first->Correct());
}

TEST(Runtime, NoBackendSupportsIt_OnlyThatTensorFails) {
  Solo solo;
  ASSERT_TRUE(solo.runtime->Start().ok());
  solo.script->SetSupports(Status::Unimplemented("not on a Sunday"));
  const TestTensorPtr refused = solo.Add("refused");
  ASSERT_TRUE(refused->Wait());
  EXPECT_TRUE(refused->FailedWith("not on a Sunday"));
  solo.script->SetSupports(Status::Ok());
  const TestTensorPtr next = solo.Add("refused");
  ASSERT_TRUE(next->Wait());
  EXPECT_TRUE(next->Correct());
  EXPECT_EQ(solo.runtime->state(), RuntimeState::kRunning);
}

TEST(Runtime, BackendFinishesLater_TheThreadGoesOnMeanwhile) {
  Solo solo;
  ASSERT_TRUE(solo.runtime->Start().ok());
  solo.script->Push(ScriptAction::kLater);
  const TestTensorPtr slow = solo.Add("slow");
  const auto finish = solo.script->TakeLater(TestDeadline());
  ASSERT_TRUE(finish);
  const TestTensorPtr quick = solo.Add("quick");
  ASSERT_TRUE(quick->Wait());
  EXPECT_TRUE(quick->Correct());
  EXPECT_EQ(slow->calls(), 0);
  EXPECT_TRUE(solo.Add("slow")->FailedWith("same name"));
  finish(Status::Ok());
  EXPECT_TRUE(slow->Correct());
  const TestTensorPtr again = solo.Add("slow");
  ASSERT_TRUE(again->Wait());
  EXPECT_TRUE(again->Correct());
}

TEST(Runtime, BackendFinishesAfterStop_TheTensorEndsOnce) {
  Solo solo;
  ASSERT_TRUE(solo.runtime->Start().ok());
  solo.script->Push(ScriptAction::kLater);
  const TestTensorPtr slow = solo.Add("slow");
  const auto finish = solo.script->TakeLater(TestDeadline());
  ASSERT_TRUE(finish);
  EXPECT_TRUE(solo.runtime->Stop("device still busy").ok());
  EXPECT_EQ(slow->calls(), 0);
  finish(Status::Ok());
  solo.runtime.reset();
  EXPECT_TRUE(slow->Correct());
}

TEST(Runtime, DuplicateName_IsRefusedAndTheFirstGoesOn) {
  Solo solo;
  ASSERT_TRUE(solo.runtime->Start().ok());
  solo.script->Push(ScriptAction::kBlock);
  const TestTensorPtr first = solo.Add("twin");
  ASSERT_TRUE(solo.script->WaitForRuns(1, TestDeadline()));
  const TestTensorPtr second = solo.Add("twin");
  EXPECT_TRUE(second->FailedWith("twin"));
  EXPECT_EQ(second->status().code(), StatusCode::kInvalidArgument);
  solo.script->Release();
  ASSERT_TRUE(first->Wait());
  EXPECT_TRUE(first->Correct());
}

TEST(Runtime, GroupWithOneDuplicate_InsertsNothing) {
  Solo solo;
  ASSERT_TRUE(solo.runtime->Start().ok());
  solo.script->Push(ScriptAction::kBlock);
  const TestTensorPtr running = solo.Add("b");
  ASSERT_TRUE(solo.script->WaitForRuns(1, TestDeadline()));
  std::vector<TestTensorPtr> tensors;
  std::vector<TensorEntry> group;
  for (const char* name : {"a", "b", "c"}) {
    TestSpec spec;
    spec.name = name;
    tensors.push_back(std::make_shared<TestTensor>(spec, 0, 1));
    group.push_back(tensors.back()->Entry());
  }
  solo.runtime->Enqueue(std::move(group));
  for (const TestTensorPtr& tensor : tensors) EXPECT_TRUE(tensor->FailedWith("'b'"));
  solo.script->Release();
  ASSERT_TRUE(running->Wait());
  // "a" and "c" are free again, and only "b" has ever run.
  for (const char* name : {"a", "c"}) {
    const TestTensorPtr again = solo.Add(name);
    ASSERT_TRUE(again->Wait());
    EXPECT_TRUE(again->Correct());
  }
  EXPECT_EQ(solo.script->batches().size(), 3u);
}

TEST(Runtime, CallbackThatEnqueues_ChainRunsToItsEnd) {
  Solo solo;
  ASSERT_TRUE(solo.runtime->Start().ok());
  std::vector<TestTensorPtr> links(100);
  std::function<void(std::size_t)> add = [&](std::size_t i) {
    TestSpec spec;
    spec.name = "chain";  // the same name again: it is free when the callback runs
    links[i] = std::make_shared<TestTensor>(spec, 0, 1);
    TensorEntry entry = links[i]->Entry([&, i](const Status& status) {
      if (status.ok() && i + 1 < links.size()) add(i + 1);
    });
    solo.runtime->Enqueue(Group(std::move(entry)));
  };
  add(0);
  const TimePoint deadline = TestDeadline();
  while (solo.script->batches().size() < links.size() && Clock::Real().Now() < deadline) {
    std::this_thread::yield();
  }
  ASSERT_TRUE(solo.runtime->Stop("the chain is long enough").ok());
  for (const TestTensorPtr& link : links) EXPECT_TRUE(link->Correct());
}

TEST(Runtime, CallbackThatStops_OnlyAsks) {
  Solo solo;
  ASSERT_TRUE(solo.runtime->Start().ok());
  std::atomic<bool> asked{false};
  const TestTensorPtr tensor = solo.Add("last", [&](const Status&) {
    EXPECT_TRUE(solo.runtime->OnBackgroundThread());
    EXPECT_TRUE(solo.runtime->Stop("the callback has seen enough").ok());
    EXPECT_EQ(solo.runtime->state(), RuntimeState::kDraining);
    asked = true;
  });
  ASSERT_TRUE(tensor->Wait());
  EXPECT_TRUE(solo.runtime->Stop("too late to matter").ok());
  EXPECT_TRUE(asked);
  EXPECT_FALSE(solo.runtime->OnBackgroundThread());
  EXPECT_EQ(solo.runtime->state(), RuntimeState::kStopped);
  EXPECT_TRUE(solo.Add("x")->FailedWith("the callback has seen enough"));
}

TEST(Runtime, CallbackOfAShutdownThatEnqueues_IsRefusedAtOnce) {
  LocalCluster cluster(2);
  ASSERT_TRUE(cluster.Started());
  TestSpec spec;
  spec.name = "alone";
  auto tensor = std::make_shared<TestTensor>(spec, 0, 2);
  TestTensorPtr second;
  cluster.rank(0).Enqueue(Group(tensor->Entry([&](const Status&) {
    second = Submit(cluster.rank(0), TestSpec{"after", CollectiveKind::kBroadcast}, 0, 2);
  })));
  for (const Status& status : cluster.Stop("over")) EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(tensor->FailedWith("Horovod has been shut down"));
  ASSERT_NE(second, nullptr);
  EXPECT_TRUE(second->FailedWith("Horovod has been shut down"));
}

TEST(Runtime, StopFromManyThreads_AllReturnWhenItHasStopped) {
  for (int round = 0; round < 20; ++round) {
    Solo solo;
    ASSERT_TRUE(solo.runtime->Start().ok());
    OnEveryRank(4, [&](int) {
      EXPECT_TRUE(solo.runtime->Stop("all at once").ok());
      EXPECT_EQ(solo.runtime->state(), RuntimeState::kStopped);
    });
  }
}

TEST(Runtime, StopThatTakesTooLong_FailsAndInterruptsTheBackend) {
  Solo solo(ShortShutdown);
  ASSERT_TRUE(solo.runtime->Start().ok());
  solo.script->Push(ScriptAction::kBlock);
  const TestTensorPtr stuck = solo.Add("stuck");
  ASSERT_TRUE(solo.script->WaitForRuns(1, TestDeadline()));
  const Status status = solo.runtime->Stop("cannot wait");
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Has(status, "0.05 s")) << status;
  EXPECT_EQ(solo.runtime->state(), RuntimeState::kFailed);
  EXPECT_TRUE(stuck->FailedWith("could not shut down"));
}

TEST(Runtime, StopWhileACallbackNeverReturns_LeavesTheThreadBehindAndSaysSo) {
  auto gate = std::make_shared<std::promise<void>>();
  TestTensorPtr stuck;
  TestTensorPtr waiting;
  {
    Solo solo(ShortShutdown);
    ASSERT_TRUE(solo.runtime->Start().ok());
    std::promise<void> entered;
    stuck = solo.Add("stuck", [gate, &entered](const Status&) {
      entered.set_value();
      gate->get_future().wait();
    });
    ASSERT_EQ(entered.get_future().wait_until(TestDeadline()), std::future_status::ready);
    waiting = solo.Add("waiting");
    for (int i = 0; i < 2; ++i) {
      const TimePoint before = Clock::Real().Now();
      const Status status = solo.runtime->Stop("cannot wait");
      EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
      EXPECT_TRUE(Has(status, "does not return from a tensor's completion callback")) << status;
      // Only once is there any waiting for it.
      EXPECT_LT(ToSeconds(Clock::Real().Now() - before), i == 0 ? kTestSeconds : 1);
    }
    EXPECT_EQ(solo.runtime->state(), RuntimeState::kFailed);
    EXPECT_TRUE(solo.Add("late")->FailedWith("completion callback has not returned"));
  }
  // It comes back when the runtime is long gone: what it uses has stayed, and all ends well.
  EXPECT_EQ(waiting->calls(), 0);
  gate->set_value();
  ASSERT_TRUE(waiting->Wait());
  EXPECT_TRUE(waiting->FailedWith("could not shut down"));
  ASSERT_TRUE(stuck->Wait());
  EXPECT_TRUE(stuck->Correct());
}

TEST(Runtime, CallbackThatAlwaysSubmitsAgain_NeedsNoStack) {
  constexpr int kRounds = 300000;  // far more than there is stack for
  Solo solo;
  float value = 1;
  std::atomic<int> calls{0};
  std::function<void()> submit = [&] {
    TensorEntry entry;
    entry.request.name = "again";
    entry.input = {DataType::kFloat32, TensorShape({}), &value};
    entry.output = entry.input;
    entry.done = Completion([&](const Status& status) {
      EXPECT_FALSE(status.ok());
      if (++calls < kRounds) submit();
    });
    solo.runtime->Enqueue(Group(std::move(entry)));
  };
  submit();  // refused, as nothing has been started
  EXPECT_EQ(calls, kRounds);
}

TEST(Runtime, DestroyedWithWorkInFlight_EverythingEndsOnce) {
  TestTensorPtr stuck;
  TestTensorPtr waiting;
  {
    Solo solo(ShortShutdown);
    ASSERT_TRUE(solo.runtime->Start().ok());
    solo.script->Push(ScriptAction::kBlock);
    stuck = solo.Add("stuck");
    ASSERT_TRUE(solo.script->WaitForRuns(1, TestDeadline()));
    waiting = solo.Add("waiting");
  }
  EXPECT_TRUE(stuck->FailedWith("could not shut down"));
  EXPECT_TRUE(waiting->FailedWith("could not shut down"));
}

TEST(Runtime, UnwritableTimeline_IsAWarningAndTrainingGoesOn) {
  Mutex mutex;
  std::string lines;
  Solo solo([&](RuntimeOptions* options) {
    options->config.timeline_path = "/nonexistent/folder/timeline.json";
    options->logger =
        std::make_shared<Logger>(LogLevel::kWarning, true, [&](std::string_view line) {
          MutexLock lock(mutex);
          lines += line;
        });
  });
  ASSERT_TRUE(solo.runtime->Start().ok());
  const TestTensorPtr tensor = solo.Add("t");
  ASSERT_TRUE(tensor->Wait());
  EXPECT_TRUE(tensor->Correct());
  ASSERT_TRUE(solo.runtime->Stop("over").ok());
  MutexLock lock(mutex);
  EXPECT_NE(lines.find("/nonexistent/folder/timeline.json"), std::string::npos) << lines;
  EXPECT_NE(lines.find("rank 0"), std::string::npos) << lines;
}

TEST(Runtime, Timeline_HasNegotiationAndOperation) {
  const std::string path = ::testing::TempDir() + "/runtime_test_timeline.json";
  {
    Solo solo([&](RuntimeOptions* options) { options->config.timeline_path = path; });
    ASSERT_TRUE(solo.runtime->Start().ok());
    ASSERT_TRUE(solo.Add("layer/weights")->Wait());
    for (const CollectiveKindInfo& kind : CollectiveKinds()) {
      const TestSpec spec{"kind/" + std::string(kind.name), kind.kind};
      ASSERT_TRUE(Submit(*solo.runtime, spec, 0, 1)->Wait());
    }
  }
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  for (const char* part :
       {"layer/weights", "NEGOTIATE_ALLREDUCE", "\"ALLREDUCE\"", "NEGOTIATE_ALLTOALL",
        "\"ALLTOALL\"", "NEGOTIATE_REDUCESCATTER", "\"REDUCESCATTER\""}) {
    EXPECT_NE(text.str().find(part), std::string::npos) << part << " in " << text.str();
  }
}

TEST(Runtime, TimelineWhileItRuns_HasWhatIsBetweenStartAndStop) {
  const std::string path = ::testing::TempDir() + "/runtime_test_timeline_later.json";
  Solo solo;
  ASSERT_TRUE(solo.runtime->Start().ok());
  ASSERT_TRUE(solo.Add("before")->Wait());
  EXPECT_FALSE(solo.runtime->StartTimeline("/nonexistent/folder/timeline.json").ok());
  ASSERT_TRUE(solo.runtime->StartTimeline(path).ok());
  ASSERT_TRUE(solo.Add("between")->Wait());
  solo.runtime->StopTimeline();
  ASSERT_TRUE(solo.Add("after")->Wait());
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find("between"), std::string::npos) << text.str();
  EXPECT_EQ(text.str().find("before"), std::string::npos) << text.str();
  EXPECT_EQ(text.str().find("after"), std::string::npos) << text.str();
}

// ---- foreign code that throws ------------------------------------------------------------------

TEST(Runtime, ExceptionOnTheBackgroundThread_IsAFailureThatSaysSo) {
  for (const bool standard : {true, false}) {
    for (int calls = 0; calls < 4; ++calls) {
      Solo solo([&](RuntimeOptions* options) {
        options->transport = std::make_unique<HookedTransport>(
            std::move(options->transport), nullptr, [standard, left = calls]() mutable {
              if (left-- > 0) return Status::Ok();
              if (standard) throw std::runtime_error("the driver threw up");
              throw 42;
            });
      });
      (void)solo.runtime->Start();  // one rank receives nothing while starting
      std::vector<TestTensorPtr> tensors;
      for (int i = 0; i < 5; ++i) {  // one after the other: at least one look for messages each
        tensors.push_back(solo.Add("t" + std::to_string(i)));
        ASSERT_TRUE(tensors.back()->Wait());
      }
      EXPECT_FALSE(solo.runtime->Stop("over").ok());
      for (const TestTensorPtr& tensor : tensors) EXPECT_EQ(tensor->calls(), 1);
      EXPECT_TRUE(Has(solo.runtime->failure(), standard ? "the driver threw up" : "unknown type"))
          << solo.runtime->failure();
      EXPECT_EQ(solo.runtime->state(), RuntimeState::kFailed);
    }
  }
}

}  // namespace
}  // namespace horovod_tf
