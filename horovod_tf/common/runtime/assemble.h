// The one place that knows which transports and backends exist.
#ifndef HOROVOD_TF_COMMON_RUNTIME_ASSEMBLE_H_
#define HOROVOD_TF_COMMON_RUNTIME_ASSEMBLE_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "horovod_tf/common/base/config.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/collectives/registry.h"
#include "horovod_tf/common/runtime/start_progress.h"
#include "horovod_tf/common/shm/rank_exchange.h"
#include "horovod_tf/common/transport/transport.h"

namespace horovod_tf {

struct World {
  std::unique_ptr<Transport> transport;
  BackendRegistry backends;
  // For what ranks must tell each other before the job runs; null in a world of one. Used up by
  // AssembleWorld.
  std::unique_ptr<RankExchange> exchange;
  // To be called when the job has failed: nothing may wait for its ranks any more, not even at the
  // process's end. Empty in a world of one; `transport` does it by itself.
  std::function<void()> abandon;
  bool mpi_threads_supported = false;
  std::string mpi_library;  // "Open MPI v4.1.8"; empty if MPI is not used
  // What all ranks must have alike besides the configuration (name, value).
  std::vector<std::pair<std::string, std::string>> agreements;
};

// Joins the processes that a launcher started, by the MPI that is in this process already or that
// the launcher belongs to; without a launcher, and unless somebody has initialised MPI here, this
// process is a world of its own, and MPI is not touched.
//
// DeadlineExceeded, without a text worth reading, when `progress` says that the time is over. But
// MPI_Init_thread knows no time: see Assembler.
// FailedPrecondition if a launcher says that it started several processes and they cannot be
// joined: running as several worlds of one would train separate models without a word.
Status AssembleWorld(const Config& config, StartProgress& progress, World* world);

// Finalises MPI if AssembleWorld initialised it and every job ended well; else does nothing.
// REQUIRES: no world is left.
Status FinalizeWorlds();

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_ASSEMBLE_H_
