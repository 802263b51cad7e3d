// Config: everything the library reads from the environment, parsed once and strictly. config.cc is
// the one place that looks at it, and config_table.cc is also the source of docs/environment.md.
#ifndef HOROVOD_TF_COMMON_BASE_CONFIG_H_
#define HOROVOD_TF_COMMON_BASE_CONFIG_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/logging.h"
#include "horovod_tf/common/base/status.h"

namespace horovod_tf {

// Made by Defaults() or ParseConfig: the values in force are in the table, and a plain Config has
// none of them.
struct Config {
  std::string timeline_path;                // HOROVOD_TIMELINE; empty: none
  std::int64_t fusion_threshold_bytes = 0;  // HOROVOD_FUSION_THRESHOLD; 0: no fusion
  Duration cycle_time{};                    // HOROVOD_CYCLE_TIME, milliseconds
  std::int64_t cache_capacity = 0;          // HOROVOD_CACHE_CAPACITY; 0: none
  bool mpi_threads_disable = false;         // HOROVOD_MPI_THREADS_DISABLE
  bool shm_disable = false;                 // HOROVOD_TF_SHM_DISABLE
  std::int64_t shm_chunk_bytes = 0;         // HOROVOD_TF_SHM_CHUNK_BYTES
  bool hierarchical_allreduce = false;      // HOROVOD_HIERARCHICAL_ALLREDUCE
  bool stall_check_disable = false;         // HOROVOD_STALL_CHECK_DISABLE
  Duration stall_warning_time{};            // HOROVOD_STALL_CHECK_TIME_SECONDS
  Duration stall_shutdown_time{};           // HOROVOD_STALL_SHUTDOWN_TIME_SECONDS; 0: never
  Duration withdrawal_grace{};              // HOROVOD_TF_WITHDRAWAL_GRACE_SECONDS
  Duration interrupt_grace{};               // HOROVOD_TF_INTERRUPT_GRACE_SECONDS; 0: never
  // HOROVOD_THREAD_AFFINITY: processors of the background threads, one for all ranks of a host or
  // one for each local rank; empty: the system chooses.
  std::vector<int> thread_affinity;
  bool average_gradients = false;  // HOROVOD_TF_AVERAGE_GRADIENTS; Python's gradients ask for it
  LogLevel log_level{};            // HOROVOD_LOG_LEVEL
  bool log_hide_time = false;      // HOROVOD_LOG_HIDE_TIME
  Duration init_timeout{};         // HOROVOD_TF_INIT_TIMEOUT_SECONDS
  Duration shutdown_timeout{};     // HOROVOD_TF_SHUTDOWN_TIMEOUT_SECONDS

  // Not of the environment: which of the processes that were started together are the job, by rank
  // in it; what hvd.init(comm=...) was given. Empty: all of them.
  std::vector<int> members;

  // Number of processes that a launcher says it started, from its own variables
  // (OMPI_COMM_WORLD_SIZE, PMI_SIZE, ...); 0 if there is no launcher. `launcher_variable` names
  // the variable it came from.
  int launcher_size = 0;
  std::string launcher_variable;
  // What the same launcher says besides; -1, 0 or empty where it does not.
  int launcher_rank = -1;
  int launcher_local_size = 0;  // processes on this host
  std::string launcher_job;     // the job's name, the same in all its processes

  // Things worth a warning that are no errors: variables of the reference system that have no
  // effect here, unknown HOROVOD_ names (with the nearest known one). One line each.
  std::vector<std::string> notices;

  // The documented defaults, whatever the environment says.
  static Config Defaults();
};

using Environment = std::vector<std::pair<std::string, std::string>>;

// The process's environment.
Environment ReadProcessEnvironment();

// Parses. InvalidArgument names variable, value and what is understood; several errors are all
// named in one text. A HOROVOD_TF_ variable that is not in the table is an error too.
Status ParseConfig(const Environment& environment, Config* config);

// The value of every variable in force, "NAME=value" a line, in the table's order.
std::string DescribeConfig(const Config& config);

// docs/environment.md, whole, from the table.
std::string EnvironmentMarkdown();

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_BASE_CONFIG_H_
