// A process that forks after init: what the child may do, and that it ends.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "horovod_tf/common/c_api.h"
#include "horovod_tf/common/runtime/process_runtime.h"
#include "test/cpp/support/local_cluster.h"

namespace horovod_tf {
namespace {

constexpr unsigned kChildSeconds = 20;

// Runs `body` in a forked child, which then exits with what it returns; an alarm ends one that
// hangs.
int ExitOfChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kChildSeconds);
    _exit(body());
  }
  int status = -1;
  if (child < 0 || waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

bool SaysForked(const std::string& text) {
  return text.find("forked after hvd.init()") != std::string::npos;
}

TestTensorPtr Add(const std::string& name) {
  auto tensor = std::make_shared<TestTensor>(TestSpec{name}, 0, 1);
  ProcessEnqueue(Group(tensor->Entry()));
  return tensor;
}

class Fork : public ::testing::Test {
 protected:
  ~Fork() override { (void)ProcessShutdown("the test is over"); }
};

TEST_F(Fork, AfterInit_TheChildIsNotInitializedAndSaysWhy) {
  ASSERT_TRUE(ProcessInit().ok());
  EXPECT_EQ(ExitOfChild([] {
              if (horovod_is_initialized() != 0) return 1;
              if (horovod_rank() != -1 || !SaysForked(horovod_last_error())) return 2;
              if (horovod_mpi_threads_supported() != -1) return 3;
              if (horovod_init() != -1 || !SaysForked(horovod_last_error())) return 4;
              if (horovod_last_error_code() != 9) return 5;
              const TestTensorPtr tensor = Add("in the child");
              if (tensor->calls() != 1 || !SaysForked(tensor->status().message())) return 6;
              if (tensor->status().code() != StatusCode::kFailedPrecondition) return 7;
              return horovod_shutdown() == 0 && horovod_shutdown() == 0 ? 0 : 8;
            }),
            0);
  const TestTensorPtr tensor = Add("in the parent");
  ASSERT_TRUE(tensor->Wait());
  EXPECT_TRUE(tensor->Correct());
  EXPECT_TRUE(ProcessShutdown("the parent ends").ok());
}

TEST_F(Fork, AfterInit_TheChildExitsWithItsExitHandlers) {
  ASSERT_TRUE(ProcessInit().ok());
  EXPECT_EQ(ExitOfChild([] {
              atexit([] { (void)horovod_shutdown(); });
              exit(7);
              return 8;
            }),
            7);
}

TEST_F(Fork, BeforeInitOrAfterShutdown_TheChildHasAJobOfItsOwn) {
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(ExitOfChild([] {
                if (!ProcessInit().ok()) return 1;
                const TestTensorPtr tensor = Add("in the child");
                if (!tensor->Wait() || !tensor->Correct()) return 2;
                return ProcessShutdown("the child ends").ok() ? 0 : 3;
              }),
              0)
        << round;
    ASSERT_TRUE(ProcessInit().ok());
    ASSERT_TRUE(ProcessShutdown("next round").ok());
  }
}

TEST_F(Fork, AfterAnInitThatFailed_TheChildMayInit) {
  setenv("HOROVOD_CYCLE_TIME", "soon", 1);
  EXPECT_FALSE(ProcessInit().ok());
  unsetenv("HOROVOD_CYCLE_TIME");
  EXPECT_EQ(ExitOfChild([] {
              const bool started = ProcessInit().ok();
              return started && ProcessShutdown("the child ends").ok() ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace horovod_tf
