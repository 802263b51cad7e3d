#include "horovod_tf/common/base/config_table.h"

namespace horovod_tf {
namespace {

// Bounds that no sensible value reaches: beyond them is a typing error or another unit.
constexpr std::int64_t kMaxFusionBytes = std::int64_t{1} << 40;
constexpr std::int64_t kMaxCacheCapacity = std::int64_t{1} << 20;
constexpr std::int64_t kMinShmChunkBytes = 4096;  // a page
constexpr std::int64_t kMaxShmChunkBytes = 16 << 20;
constexpr double kMaxCycleMilliseconds = 60000;
constexpr double kMaxSeconds = 31536000;  // a year
// Where zero would mean "at once" and could only do harm.
constexpr double kMinSeconds = 0.001;

constexpr double kMilliseconds = 1e-3;
constexpr double kSeconds = 1;

constexpr ConfigVariable kVariables[] = {
    {"HOROVOD_TIMELINE", PathField{&Config::timeline_path}, "", "",
     "File for a Chrome trace of what every tensor is doing, written by rank 0. Open it in "
     "chrome://tracing or Perfetto. DYNAMIC: none; hvd.start_timeline may start one in any case."},
    {"HOROVOD_FUSION_THRESHOLD", IntegerField{&Config::fusion_threshold_bytes, 0, kMaxFusionBytes},
     "67108864", "bytes",
     "Small tensors that are ready together are combined into one operation of up to this size. "
     "0 turns it off."},
    {"HOROVOD_CYCLE_TIME",
     DurationField{&Config::cycle_time, kMilliseconds, 0, kMaxCycleMilliseconds}, "0",
     "milliseconds",
     "Longest wait for more tensors to combine. With 0, what gathers while an operation runs is "
     "combined, and nothing waits."},
    {"HOROVOD_CACHE_CAPACITY", IntegerField{&Config::cache_capacity, 0, kMaxCacheCapacity}, "65536",
     "tensors",
     "How many tensors keep a short number once they have been negotiated, so that later steps "
     "send a few bytes for them. 0 turns it off."},
    {"HOROVOD_MPI_THREADS_DISABLE",
     BoolField{&Config::mpi_threads_disable, /*any_positive_integer=*/true}, "false", "",
     "Asks MPI for less than MPI_THREAD_MULTIPLE, for MPI libraries that do not do it well."},
    {"HOROVOD_HIERARCHICAL_ALLREDUCE", BoolField{&Config::hierarchical_allreduce}, "false", "",
     "Prefers the allreduce that first reduces inside each host, then between hosts."},
    {"HOROVOD_TF_SHM_DISABLE", BoolField{&Config::shm_disable}, "false", "",
     "Moves tensors by MPI even where all ranks are on one host and could share memory. One "
     "rank's "
     "is enough."},
    {"HOROVOD_TF_SHM_CHUNK_BYTES",
     IntegerField{&Config::shm_chunk_bytes, kMinShmChunkBytes, kMaxShmChunkBytes}, "262144",
     "bytes",
     "Ranks of one host pass tensors through shared memory in chunks of this size; a rank has "
     "three of them. Rank 0's counts; many ranks have shorter ones, so that all together take 32 "
     "MiB at most."},
    {"HOROVOD_THREAD_AFFINITY", ProcessorsField{&Config::thread_affinity}, "", "",
     "Processors that the background threads are bound to: one number for each rank of a host, in "
     "the order of local ranks, or one for all of them. Without it the system chooses. Worth "
     "trying "
     "where small tensors wait for each other."},
    {"HOROVOD_STALL_CHECK_DISABLE", BoolField{&Config::stall_check_disable}, "false", "",
     "Turns off the warning about, and the end of, tensors that only some ranks submit."},
    {"HOROVOD_STALL_CHECK_TIME_SECONDS",
     DurationField{&Config::stall_warning_time, kSeconds, kMinSeconds, kMaxSeconds}, "60",
     "seconds",
     "A tensor that only some ranks have submitted for this long gets a warning that names it, "
     "the ranks that are ready and the ranks that are missing."},
    {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
     DurationField{&Config::stall_shutdown_time, kSeconds, kMinSeconds, kMaxSeconds,
                   /*zero_is_special=*/true},
     "600", "seconds",
     "After this long the job is ended, with an error on every rank that names the tensor. "
     "0: never. Where it is not set, it is at least ten times the warning time."},
    {"HOROVOD_TF_WITHDRAWAL_GRACE_SECONDS",
     DurationField{&Config::withdrawal_grace, kSeconds, 0, kMaxSeconds}, "4", "seconds",
     "When a rank's step is cancelled, what it asked for is withdrawn. Ranks that wait for the "
     "same tensors get an error if it does not ask for them again within this time."},
    {"HOROVOD_TF_INTERRUPT_GRACE_SECONDS",
     DurationField{&Config::interrupt_grace, kSeconds, kMinSeconds, kMaxSeconds,
                   /*zero_is_special=*/true},
     "0.5", "seconds",
     "When the program handles SIGINT, SIGTERM or SIGHUP in Python and its main thread waits "
     "inside "
     "TensorFlow, the handler cannot run; what has waited for other ranks for this long is then "
     "withdrawn. 0: never."},
    {"HOROVOD_TF_AVERAGE_GRADIENTS", BoolField{&Config::average_gradients}, "false", "",
     "Makes the gradients of allgather and broadcast averages over all ranks, as Horovod 0.22 and "
     "later have them. Otherwise they are sums. The same on all ranks."},
    {"HOROVOD_LOG_LEVEL", LogLevelField{&Config::log_level}, "warning", "",
     "Least important messages that are still written to standard error."},
    {"HOROVOD_LOG_HIDE_TIME", BoolField{&Config::log_hide_time}, "false", "",
     "Leaves the time out of messages, so that the output of two runs can be compared."},
    {"HOROVOD_TF_INIT_TIMEOUT_SECONDS",
     DurationField{&Config::init_timeout, kSeconds, kMinSeconds, kMaxSeconds}, "300", "seconds",
     "How long init() waits for the other ranks before it fails and says which are missing."},
    {"HOROVOD_TF_SHUTDOWN_TIMEOUT_SECONDS",
     DurationField{&Config::shutdown_timeout, kSeconds, kMinSeconds, kMaxSeconds}, "30", "seconds",
     "How long shutdown() waits for the other ranks before it stops without them."},
};

}  // namespace

Table<ConfigVariable> ConfigVariables() { return Table(kVariables); }

Table<LauncherVariable> LauncherVariables() {
  // Only what a launcher sets in the processes it starts. SLURM_NTASKS, for example, is also there
  // in a batch script that starts one process.
  static constexpr LauncherVariable kRows[] = {
      {"OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun", "OMPI_COMM_WORLD_RANK",
       "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"},
      {"PMI_SIZE", "MPICH's and Intel MPI's mpiexec, srun with PMI", "PMI_RANK", "MPI_LOCALNRANKS",
       ""},
      {"MV2_COMM_WORLD_SIZE", "MVAPICH2's mpirun_rsh", "", "", ""},
      {"HOROVOD_SIZE", "horovodrun without MPI", "", "", ""},
  };
  return Table(kRows);
}

Table<IgnoredVariable> IgnoredVariables() {
  static constexpr std::string_view kAutotune = "there is no automatic tuning";
  static constexpr std::string_view kGloo = "there is no Gloo; processes are connected by MPI";
  static constexpr std::string_view kRank = "rank and size come from MPI";
  static constexpr std::string_view kBuild = "it is an option of the reference system's build";
  static constexpr std::string_view kLauncher = "it belongs to the reference system's launcher";
  static constexpr std::string_view kNoCcl = "there is no oneCCL backend";
  static constexpr std::string_view kBackend =
      "backends are chosen for each operation by what they support";
  static constexpr IgnoredVariable kRows[] = {
      {"HOROVOD_TIMELINE_MARK_CYCLES", "there are no cycles: work is started by messages"},
      {"HOROVOD_HIERARCHICAL_ALLGATHER", kBackend},
      {"HOROVOD_TORUS_ALLREDUCE", kBackend},
      {"HOROVOD_CPU_OPERATIONS", kBackend},
      {"HOROVOD_CONTROLLER", "ranks negotiate over the transport that their launcher provides"},
      {"HOROVOD_AUTOTUNE", kAutotune},
      {"HOROVOD_AUTOTUNE_*", kAutotune},
      {"HOROVOD_NUM_NCCL_STREAMS", "each device has one stream for collectives"},
      {"HOROVOD_BATCH_D2D_MEMCOPIES", "there is no switch for combined copies on the device"},
      {"HOROVOD_DISABLE_GROUP_FUSION", "there is no switch for the combination of groups"},
      {"HOROVOD_ENABLE_ASYNC_COMPLETION", "completion never blocks on the device"},
      {"HOROVOD_ENABLE_XLA_OPS", "there are no XLA operations"},
      {"HOROVOD_DISABLE_NVTX_RANGES", "there are no NVTX ranges"},
      {"HOROVOD_DYNAMIC_PROCESS_SETS", "process sets can always be added"},
      {"HOROVOD_ELASTIC", "the number of ranks is fixed for the life of a job"},
      {"HOROVOD_ELASTIC_*", "the number of ranks is fixed for the life of a job"},
      {"HOROVOD_ADASUM_MPI_CHUNK_SIZE", "there is no Adasum"},
      {"HOROVOD_CCL_*", kNoCcl},
      {"HOROVOD_MLSL_BGT_AFFINITY", kNoCcl},
      {"HOROVOD_GLOO_*", kGloo},
      {"HOROVOD_HOSTNAME", kRank},
      {"HOROVOD_RANK", kRank},
      {"HOROVOD_LOCAL_RANK", kRank},
      {"HOROVOD_LOCAL_SIZE", kRank},
      {"HOROVOD_CROSS_RANK", kRank},
      {"HOROVOD_CROSS_SIZE", kRank},
      {"HOROVOD_START_TIMEOUT", "HOROVOD_TF_INIT_TIMEOUT_SECONDS limits the start"},
      {"HOROVOD_SECRET_KEY", kLauncher},
      {"HOROVOD_SPARK_*", kLauncher},
      {"HOROVOD_WITH_*", kBuild},
      {"HOROVOD_WITHOUT_*", kBuild},
      {"HOROVOD_GPU", kBuild},
      {"HOROVOD_GPU_*", kBuild},
      {"HOROVOD_ALLOW_MIXED_GPU_IMPL", kBuild},
      {"HOROVOD_CUDA_*", kBuild},
      {"HOROVOD_ROCM_HOME", kBuild},
      {"HOROVOD_NCCL_*", kBuild},
      {"HOROVOD_DDL_*", kBuild},
      {"HOROVOD_NVTX_INCLUDE", kBuild},
      {"HOROVOD_BUILD_*", kBuild},
      {"HOROVOD_CMAKE", kBuild},
      {"HOROVOD_DEBUG", kBuild},
      {"HOROVOD_SKIP_COMPILE", kBuild},
      {"HOROVOD_LOCAL_VERSION", kBuild},
      {"HOROVOD_MPICXX_SHOW", kBuild},
      {"HOROVOD_MIXED_INSTALL", kBuild},
  };
  return Table(kRows);
}

}  // namespace horovod_tf
