// What is asked of the system before MPI starts.
#include "horovod_tf/common/mpi/single_copy.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>

namespace horovod_tf {
namespace {

// As the filters of containers do.
bool ForbidReading() {
  std::array<sock_filter, 4> filter = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

enum Answer : int { kMay = 1, kMayNot = 2, kCouldNotForbid = 3 };

// The answer of a process in which SIGCHLD is handled so, and reading is forbidden or not.
int AnswerOf(void (*on_sigchld)(int), bool forbidden) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGCHLD, on_sigchld);
    if (forbidden && !ForbidReading()) _exit(kCouldNotForbid);
    _exit(MayReadProcesses() ? kMay : kMayNot);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

TEST(SingleCopy, ReadingIsForbidden_SaysSoHoweverChildrenAreWaitedFor) {
  if (AnswerOf(SIG_DFL, false) != kMay) GTEST_SKIP() << "it is forbidden here anyway";
  for (const auto handler : {SIG_DFL, SIG_IGN}) {
    EXPECT_EQ(AnswerOf(handler, false), kMay);
    EXPECT_EQ(AnswerOf(handler, true), kMayNot);
  }
}

}  // namespace
}  // namespace horovod_tf
