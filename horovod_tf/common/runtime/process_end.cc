#include "horovod_tf/common/runtime/process_end.h"

#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): on_exit is no part of C++
#include <sys/types.h>

#include <cstdio>
#include <string>
#include <thread>

#include "horovod_tf/common/base/process_id.h"
#include "horovod_tf/common/runtime/process_runtime.h"

namespace horovod_tf {
namespace {

// Of this process; a forked child inherits the handler, and has nothing to end.
struct End {
  pid_t process = 0;
  Duration last_word{};
};

End& TheEnd() {
  static End end;
  return end;
}

void AtExit(int exit_status, void* /*unused*/) {
  const End& end = TheEnd();
  if (end.process != ProcessId()) return;
  if (exit_status != 0) {
    std::this_thread::sleep_for(end.last_word);
    return;
  }
  const Status status = ProcessFinalize();
  if (!status.ok()) {
    std::fprintf(stderr, "[horovod_tf] at the end of the process: %s\n", status.message().c_str());
  }
}

}  // namespace

Status FinalizeWhenProcessEnds(Duration last_word) {
  TheEnd() = {ProcessId(), last_word};
  return on_exit(&AtExit, nullptr) == 0
             ? Status::Ok()
             : Status::ResourceExhausted("no memory for what is to be done at exit");
}

}  // namespace horovod_tf
