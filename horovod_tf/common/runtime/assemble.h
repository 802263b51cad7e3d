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

// Some ranks of a world, which are to be a world of their own beside it: a process set.
struct RankGroup {
  int id = 0;              // unique in the world, as long as it lasts; above 0
  std::vector<int> ranks;  // in the world, by rank in the group
  int rank = 0;            // of this process, in the group
};

struct World {
  std::unique_ptr<Transport> transport;
  BackendRegistry backends;
  // For what ranks must tell each other before the job runs; null in a world of one. Used up by
  // AssembleWorld.
  std::unique_ptr<RankExchange> exchange;
  // To be called when the job has failed: nothing may wait for its ranks any more, not even at the
  // process's end. Empty in a world of one; `transport` does it by itself.
  std::function<void()> abandon;
  // Makes transport and backends of a group on the same connections; waits for nobody. The world's
  // threads and the group's use them at the same time: REQUIRES: mpi_threads_supported, unless only
  // the group's shared memory is used. Empty in a world of one.
  std::function<Status(const RankGroup& group, World* made)> split;
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

// What a group's runtime works with, from what its `world` has: shared memory if all of the group's
// ranks can join it, else MPI. Its members call it together. FailedPrecondition if only MPI is left
// and it does not allow several threads.
Status AssembleGroup(const Config& config,
                     const std::function<Status(const RankGroup& group, World* made)>& split,
                     const RankGroup& group, RankExchange& exchange, World* made);

// Finalises MPI if AssembleWorld initialised it and every job ended well; else does nothing.
// REQUIRES: no world is left.
Status FinalizeWorlds();

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_ASSEMBLE_H_
