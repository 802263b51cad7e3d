#include "horovod_tf/common/mpi/single_copy.h"

#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "horovod_tf/common/base/logging.h"

namespace horovod_tf {
namespace {

// How an MPI is told to copy through shared memory only.
struct Switch {
  std::string_view library;  // what its name begins with
  const char* variable;
  const char* value;
};

constexpr std::array<Switch, 2> kSwitches = {{
    {"Open MPI v4", "OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
    {"MPICH", "MPIR_CVAR_CH4_CMA_ENABLE", "0"},
}};

const Switch* SwitchOf(std::string_view library) {
  for (const Switch& it : kSwitches) {
    if (library.substr(0, it.library.size()) == it.library) return &it;
  }
  return nullptr;
}

// A child of which no signal tells.
bool WaitedFor(pid_t child, int* status) {
  pid_t ended = 0;
  do {
    ended = waitpid(child, status, static_cast<int>(__WCLONE));
  } while (ended < 0 && errno == EINTR);
  return ended == child;
}

}  // namespace

// Asked by a child, as other ranks would ask: a process may always read itself, where the call
// exists at all. Without fork's handlers, as nothing of the program may run in it.
bool MayReadProcesses() {
  char from = 1;
  char to = 0;
  const iovec local{&to, 1};
  const iovec remote{&from, 1};
  const pid_t parent = getpid();
  // As an MPI allows it to its ranks, where only descendants may be read otherwise.
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  // No signal tells of its end: the program may ignore SIGCHLD, and would lose the answer, or wait
  // for children of its own.
  const auto child = static_cast<pid_t>(syscall(SYS_clone, 0, 0, 0, 0, 0));
  if (child == 0) _exit(process_vm_readv(parent, &local, 1, &remote, 1, 0) == 1 ? 0 : 1);
  int status = 0;
  const bool asked = child > 0 && WaitedFor(child, &status) && WIFEXITED(status);
  prctl(PR_SET_PTRACER, 0, 0, 0, 0);
  return !asked || WEXITSTATUS(status) == 0;
}

// An MPI reads its parameters from the environment, in MPI_Init_thread: there is no other way to
// set one before.
void AvoidForbiddenCopies(std::string_view mpi_library, const Config& config) {
  const Switch* const off = SwitchOf(mpi_library);
  // NOLINTNEXTLINE(concurrency-mt-unsafe): as below
  if (off == nullptr || MayReadProcesses() || getenv(off->variable) != nullptr) return;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): once, and only where MPI would else fail at each message
  setenv(off->variable, off->value, /*overwrite=*/0);
  const Logger logger(config.log_level, config.log_hide_time);
  logger.Log(LogLevel::kInfo, std::string("this container forbids process_vm_readv, so ") +
                                  off->variable + "=" + off->value +
                                  " is set: MPI copies large messages twice. To allow it: "
                                  "docker run --cap-add=SYS_PTRACE");
}

}  // namespace horovod_tf
