#include "horovod_tf/common/runtime/assemble.h"

#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "horovod_tf/common/collectives/local_backend.h"
#include "horovod_tf/common/transport/local_transport.h"

namespace horovod_tf {
namespace {

Status HostName(std::string* host) {
  char name[256] = {};
  // The last byte stays zero: a name that was cut off need not end with one.
  if (gethostname(name, sizeof(name) - 1) != 0) {
    return Status::Unknown("cannot learn this host's name: " +
                           std::generic_category().message(errno));
  }
  *host = name;
  return Status::Ok();
}

}  // namespace

Status AssembleWorld(const Config& config, World* world) {
  if (config.launcher_size > 1) {
    return Status::FailedPrecondition(
        config.launcher_variable + " says that this is one of " +
        std::to_string(config.launcher_size) +
        " processes, but this build has no transport between processes; each would train a model "
        "of its own. Start a single process, or install a build with MPI.");
  }
  std::string host;
  HVD_RETURN_IF_ERROR(HostName(&host));
  world->transport = std::move(MakeLocalTransports({host}).front());
  world->backends.Add(MakeLocalBackend(0, MakeLocalMeeting(1)));
  world->mpi_threads_supported = false;
  return Status::Ok();
}

}  // namespace horovod_tf
