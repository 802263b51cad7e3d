#include "horovod_tf/common/runtime/process_runtime.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <future>
#include <thread>

#include "horovod_tf/common/runtime/assemble.h"
#include "test/cpp/support/local_cluster.h"

namespace horovod_tf {
namespace {

TestTensorPtr Add(const std::string& name, std::function<void(const Status&)> then = nullptr) {
  auto tensor = std::make_shared<TestTensor>(TestSpec{name}, 0, 1);
  ProcessEnqueue(Group(tensor->Entry(std::move(then))));
  return tensor;
}

// A variable of the environment for the life of one test.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~ScopedVariable() { unsetenv(name_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* const name_;
};

// Leaves the process without a job, whatever the test did.
class ProcessRuntimeTest : public ::testing::Test {
 protected:
  ~ProcessRuntimeTest() override { (void)ProcessShutdown("the test is over"); }
};

TEST_F(ProcessRuntimeTest, BeforeInit_EverythingSaysSo) {
  // In a process of its own: this one may have had a job already.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const bool nothing = !ProcessTopology() && !ProcessMpiThreadsSupported() &&
                             ProcessShutdown("nothing to stop").ok();
        const TestTensorPtr early = Add("early");
        const bool refused =
            early->FailedWith("Horovod has not been initialized; use hvd.init().") &&
            early->status().code() == StatusCode::kFailedPrecondition;
        _Exit(nothing && refused ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(ProcessRuntimeTest, Init_MakesAWorldOfOneThatWorks) {
  ASSERT_TRUE(ProcessInit().ok());
  ASSERT_TRUE(ProcessTopology().has_value());
  EXPECT_EQ(ProcessTopology()->rank, 0);
  EXPECT_EQ(ProcessTopology()->size, 1);
  EXPECT_EQ(ProcessMpiThreadsSupported(), std::optional<bool>(false));
  const TestTensorPtr tensor = Add("t");
  ASSERT_TRUE(tensor->Wait());
  EXPECT_TRUE(tensor->Correct());
}

TEST_F(ProcessRuntimeTest, InitTwice_IsHarmless) {
  ASSERT_TRUE(ProcessInit().ok());
  const TestTensorPtr first = Add("first");
  ASSERT_TRUE(ProcessInit().ok());
  ASSERT_TRUE(first->Wait());
  EXPECT_TRUE(first->Correct());
}

TEST_F(ProcessRuntimeTest, AfterShutdown_TensorsAreToldWhyAndInitWorksAgain) {
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(ProcessInit().ok());
    const TestTensorPtr tensor = Add("t");
    ASSERT_TRUE(tensor->Wait());
    EXPECT_TRUE(tensor->Correct());
    ASSERT_TRUE(ProcessShutdown("round " + std::to_string(round)).ok());
    ASSERT_TRUE(ProcessShutdown("again").ok());
    EXPECT_FALSE(ProcessTopology().has_value());
    const TestTensorPtr late = Add("late");
    EXPECT_TRUE(late->FailedWith("Horovod has been shut down"));
    EXPECT_TRUE(late->FailedWith("round " + std::to_string(round)));
    EXPECT_EQ(late->status().code(), StatusCode::kUnknown);
  }
}

TEST_F(ProcessRuntimeTest, LauncherWithSeveralProcesses_IsRefusedInsteadOfTrainingApart) {
  const ScopedVariable size("OMPI_COMM_WORLD_SIZE", "4");
  const Status status = ProcessInit();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("OMPI_COMM_WORLD_SIZE says that this is one of 4 processes"),
            std::string::npos)
      << status;
  EXPECT_FALSE(ProcessTopology().has_value());
  EXPECT_TRUE(Add("orphan")->FailedWith("one of 4 processes"));
}

TEST_F(ProcessRuntimeTest, LauncherWithOneProcess_Works) {
  const ScopedVariable size("OMPI_COMM_WORLD_SIZE", "1");
  EXPECT_TRUE(ProcessInit().ok());
}

TEST_F(ProcessRuntimeTest, BadEnvironment_FailsAndTheNextInitWorks) {
  {
    const ScopedVariable threshold("HOROVOD_FUSION_THRESHOLD", "99999999999999999999999");
    const Status status = ProcessInit();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("HOROVOD_FUSION_THRESHOLD"), std::string::npos) << status;
    EXPECT_TRUE(Add("t")->FailedWith("hvd.init() failed"));
  }
  ASSERT_TRUE(ProcessInit().ok());
  const TestTensorPtr tensor = Add("t");
  ASSERT_TRUE(tensor->Wait());
  EXPECT_TRUE(tensor->Correct());
}

TEST_F(ProcessRuntimeTest, InitFromManyThreads_AllSucceed) {
  for (int round = 0; round < 10; ++round) {
    OnEveryRank(4, [](int) {
      EXPECT_TRUE(ProcessInit().ok());
      EXPECT_TRUE(ProcessTopology().has_value());
    });
    EXPECT_TRUE(ProcessShutdown("next round").ok());
  }
}

TEST_F(ProcessRuntimeTest, ShutdownFromACallback_OnlyAsksAndInitWorksAgain) {
  for (int round = 0; round < 10; ++round) {
    ASSERT_TRUE(ProcessInit().ok());
    std::atomic<bool> refused{false};
    const TestTensorPtr tensor = Add("t", [&](const Status&) {
      EXPECT_TRUE(ProcessShutdown("the callback wants it").ok());
      EXPECT_FALSE(ProcessTopology().has_value());
      refused = ProcessInit().code() == StatusCode::kFailedPrecondition;
    });
    ASSERT_TRUE(tensor->Wait());
    EXPECT_TRUE(Add("late")->FailedWith("the callback wants it"));
    if (round % 2 == 0) {
      EXPECT_TRUE(ProcessShutdown("the main thread too").ok());
      EXPECT_TRUE(Add("later")->FailedWith("the callback wants it"));
      EXPECT_TRUE(refused);
    }
  }
}

TEST_F(ProcessRuntimeTest, InitFromACallbackWhileAnotherInitWaitsForIt_IsRefusedAtOnce) {
  ASSERT_TRUE(ProcessInit().ok());
  std::promise<void> asked;
  std::promise<void> go;
  Status from_callback;
  const TestTensorPtr tensor = Add("t", [&](const Status&) {
    (void)ProcessShutdown("the callback asks first");
    asked.set_value();
    go.get_future().wait();
    from_callback = ProcessInit();
  });
  ASSERT_EQ(asked.get_future().wait_until(TestDeadline()), std::future_status::ready);
  // Takes the old job away, for which it waits until the callback has returned.
  std::thread init([] { EXPECT_TRUE(ProcessInit().ok()); });
  const TimePoint soon = AfterDelay(Clock::Real().Now(), FromSeconds(5));
  while (Add("probe")->FailedWith("the callback asks first") && Clock::Real().Now() < soon) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  go.set_value();
  init.join();
  ASSERT_TRUE(tensor->Wait());
  EXPECT_EQ(from_callback.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(from_callback.message().find("completion's callback"), std::string::npos);
}

TEST_F(ProcessRuntimeTest, CallbacksOnThreadsOfTheProgram_AreGuestsToo) {
  const TestTensorPtr refused = Add("early", [](const Status&) {
    EXPECT_EQ(ProcessInit().code(), StatusCode::kFailedPrecondition);
  });
  EXPECT_EQ(refused->calls(), 1);
  EXPECT_TRUE(ProcessInit().ok());
}

TEST_F(ProcessRuntimeTest, ShutdownBesideShutdownAndInit_NeverHidesAJobThatRuns) {
  for (int round = 0; round < 200; ++round) {
    ASSERT_TRUE(ProcessInit().ok());
    std::thread other([] { EXPECT_TRUE(ProcessShutdown("from the side").ok()); });
    EXPECT_TRUE(ProcessShutdown("from the front").ok());
    (void)ProcessInit();
    other.join();
    // Whoever came last: a process either has a job and says so, or has none.
    const bool known = ProcessTopology().has_value();
    const TestTensorPtr tensor = Add("t");
    ASSERT_TRUE(tensor->Wait());
    EXPECT_EQ(tensor->status().ok(), known) << tensor->status();
  }
}

TEST_F(ProcessRuntimeTest, ThreadsThatEnqueueThroughInitAndShutdown_EveryTensorEndsOnce) {
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  std::atomic<int> correct{0};
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; !over; ++i) {
        const TestTensorPtr tensor = Add("t" + std::to_string(t) + "/" + std::to_string(i % 3));
        if (!tensor->Wait()) ADD_FAILURE() << "a tensor hangs";
        EXPECT_EQ(tensor->calls(), 1);
        if (tensor->status().ok()) ++correct;
      }
    });
  }
  for (int round = 0; round < 50; ++round) {
    EXPECT_TRUE(ProcessInit().ok());
    const TestTensorPtr tensor = Add("main");
    ASSERT_TRUE(tensor->Wait());
    EXPECT_TRUE(tensor->Correct());
    // Once at least, the other threads get through while there is a job.
    const TimePoint deadline = TestDeadline();
    while (correct == 0 && Clock::Real().Now() < deadline) std::this_thread::yield();
    EXPECT_TRUE(ProcessShutdown("next round").ok());
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(correct, 0);
}

TEST_F(ProcessRuntimeTest, ShutdownDuringInit_LeavesOneOfTheTwoStates) {
  for (int round = 0; round < 50; ++round) {
    std::thread init([] { (void)ProcessInit(); });
    (void)ProcessShutdown("at the same time");
    init.join();
    if (ProcessTopology()) {
      const TestTensorPtr tensor = Add("t");
      ASSERT_TRUE(tensor->Wait());
      EXPECT_TRUE(tensor->Correct());
    }
    (void)ProcessShutdown("round over");
    EXPECT_FALSE(ProcessTopology().has_value());
  }
}

TEST(AssembleWorld, NoLauncher_IsOneRankNamedAfterTheHost) {
  World world;
  StartProgress progress(kNever);
  ASSERT_TRUE(AssembleWorld(Config::Defaults(), progress, &world).ok());
  EXPECT_EQ(world.transport->size(), 1);
  EXPECT_FALSE(world.transport->host().empty());
  EXPECT_FALSE(world.mpi_threads_supported);
}

}  // namespace
}  // namespace horovod_tf
