#include "horovod_tf/common/base/process_id.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace horovod_tf {
namespace {

int ExitCodeOf(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

TEST(ProcessId, IsTheSystems_AlsoInChildrenAndTheirs) {
  EXPECT_EQ(ProcessId(), getpid());
  const pid_t child = fork();
  if (child == 0) {
    if (ProcessId() != getpid()) _exit(1);
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(ProcessId() == getpid() ? 0 : 1);
    _exit(ExitCodeOf(grandchild) == 0 && ProcessId() == getpid() ? 0 : 2);
  }
  EXPECT_EQ(ExitCodeOf(child), 0);
  EXPECT_EQ(ProcessId(), getpid());
}

}  // namespace
}  // namespace horovod_tf
