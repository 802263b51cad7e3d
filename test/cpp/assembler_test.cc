#include "horovod_tf/common/runtime/assembler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "horovod_tf/common/base/mutex.h"
#include "test/cpp/support/local_cluster.h"

namespace horovod_tf {
namespace {

// What stands for an MPI_Init_thread: it returns when the test lets it. All of it for any thread.
class Gate {
 public:
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  void Pass() {
    MutexLock lock(mutex_);
    while (!open_) changed_.Wait(mutex_);
    open_ = false;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ HVD_GUARDED_BY(mutex_) = false;
};
Gate& TheGate() {
  static Gate* const gate = std::make_unique<Gate>().release();
  return *gate;
}
std::atomic<int> abandoned{0};

Status Stuck(const Config&, StartProgress& progress, World* world) {
  progress.Use("Some MPI v1.2");
  progress.Enter("MPI_Init_thread");
  TheGate().Pass();
  world->abandon = [] { ++abandoned; };
  return Status::Ok();
}

Config TwoRanks() {
  Config config = Config::Defaults();
  config.init_timeout = FromSeconds(0.3);
  config.launcher_size = config.launcher_local_size = 2;
  config.launcher_rank = 0;
  config.launcher_job = "assembler_test";
  return config;
}

TimePoint In(double seconds) { return AfterDelay(Clock::Real().Now(), FromSeconds(seconds)); }

bool Has(const Status& status, const std::string& part) {
  return status.message().find(part) != std::string::npos;
}

// Until the thread that was left behind has come to its end.
Status RunWhenFree(Assembler& assembler, World* world) {
  Status status;
  const TimePoint deadline = TestDeadline();
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    TheGate().Open();
    status = assembler.Run(TwoRanks(), In(10), world);
  } while (Has(status, "an earlier hvd.init()") && Clock::Real().Now() < deadline);
  return status;
}

TEST(Assembler, CallThatDoesNotReturn_IsLeftInTimeAndNothingWaitsForItsRanks) {
  abandoned = 0;
  Assembler assembler(&Stuck);
  World world;
  const TimePoint begin = Clock::Real().Now();
  const Status status = assembler.Run(TwoRanks(), In(0.3), &world);
  EXPECT_LT(Clock::Real().Now() - begin, std::chrono::seconds(5));
  EXPECT_GE(Clock::Real().Now() - begin, std::chrono::milliseconds(300));
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  for (const char* part :
       {"hvd.init() did not end within 0.3 s", "1 of 2 ranks arrived: missing rank 1",
        "waits in MPI_Init_thread (Some MPI v1.2)", "HOROVOD_TF_INIT_TIMEOUT_SECONDS"}) {
    EXPECT_TRUE(Has(status, part)) << part << " is not in: " << status;
  }
  // The thread is still in there.
  const Status again = assembler.Run(TwoRanks(), In(10), &world);
  EXPECT_EQ(again.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Has(again, "an earlier hvd.init() of this process is still in MPI_Init_thread"))
      << again;
  // Once it has come out, the process may try again.
  const Status last = RunWhenFree(assembler, &world);
  EXPECT_TRUE(last.ok()) << last;
  EXPECT_EQ(abandoned, 1);
  EXPECT_TRUE(world.abandon != nullptr);
}

TEST(Assembler, StepThatGivesUpByItself_GetsTheSameText) {
  Assembler assembler([](const Config&, StartProgress& progress, World*) {
    progress.Enter("the exchange of hosts");
    return Status::DeadlineExceeded("given up");
  });
  World world;
  const Status status = assembler.Run(TwoRanks(), In(10), &world);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Has(status, "missing rank 1")) << status;
  EXPECT_TRUE(Has(status, "waits in the exchange of hosts")) << status;
}

TEST(Assembler, OtherErrors_AreHandedOn) {
  Assembler failing([](const Config&, StartProgress&, World*) {
    return Status::FailedPrecondition("no MPI here");
  });
  World world;
  EXPECT_EQ(failing.Run(TwoRanks(), In(10), &world).ToString(),
            Status::FailedPrecondition("no MPI here").ToString());
  Assembler throwing(
      [](const Config&, StartProgress&, World*) -> Status { throw std::runtime_error("thrown"); });
  EXPECT_TRUE(Has(throwing.Run(TwoRanks(), In(10), &world), "thrown"));
}

TEST(Assembler, Success_HandsTheWorldOver) {
  Assembler assembler([](const Config&, StartProgress&, World* world) {
    world->mpi_library = "Some MPI";
    return Status::Ok();
  });
  World world;
  ASSERT_TRUE(assembler.Run(TwoRanks(), In(10), &world).ok());
  EXPECT_EQ(world.mpi_library, "Some MPI");
  assembler.ForgetArrivals();
  ASSERT_TRUE(assembler.Run(TwoRanks(), In(10), &world).ok());
}

}  // namespace
}  // namespace horovod_tf
