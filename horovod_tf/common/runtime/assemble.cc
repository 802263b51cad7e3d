#include "horovod_tf/common/runtime/assemble.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "horovod_tf/common/base/host_name.h"
#include "horovod_tf/common/base/logging.h"
#include "horovod_tf/common/collectives/local_backend.h"
#include "horovod_tf/common/collectives/shm_backend.h"
#include "horovod_tf/common/runtime/mpi_leaf.h"
#include "horovod_tf/common/runtime/placement.h"
#include "horovod_tf/common/shm/shm_join.h"
#include "horovod_tf/common/transport/local_transport.h"
#include "horovod_tf/common/transport/shm_transport.h"

namespace horovod_tf {
namespace {

// MPIs with one binary interface.
struct MpiFamily {
  std::string_view name;
  const char* library;  // as the dynamic linker knows it
  std::string_view leaf;
  std::string_view launcher_variable;
  std::string_view job_variable;  // which its launcher sets too; empty: none
};

constexpr std::array<MpiFamily, 2> kFamilies = {{
    {"Open MPI", "libmpi.so.40", "libhorovod_mpi_openmpi.so", "OMPI_COMM_WORLD_SIZE",
     "PMIX_NAMESPACE"},
    {"MPICH", "libmpi.so.12", "libhorovod_mpi_mpich.so", "PMI_SIZE", ""},
}};

// The last leaf that was opened: the one to finalise.
std::atomic<const MpiLeaf*>& OpenedLeaf() {
  static std::atomic<const MpiLeaf*> leaf{nullptr};
  return leaf;
}

Status AssembleSingle(World* world) {
  std::string host;
  HVD_RETURN_IF_ERROR(ReadHostName(&host));
  world->backends = BackendRegistry();
  world->exchange.reset();
  world->transport = std::move(MakeLocalTransports({host}).front());
  world->backends.Add(MakeLocalBackend(0, MakeLocalMeeting(1)));
  return Status::Ok();
}

// Whether somebody (mpi4py, say) has initialised an MPI of this family in this process.
bool IsInitialized(const MpiFamily& family) {
  void* const library = dlopen(family.library, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  int initialized = 0;
  using Ask = int (*)(int*);
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): how dlsym works
  const auto ask = reinterpret_cast<Ask>(dlsym(library, "MPI_Initialized"));
  if (ask == nullptr || ask(&initialized) != 0) initialized = 0;
  dlclose(library);
  return initialized != 0;
}

const MpiFamily* InitializedFamily() {
  for (const MpiFamily& family : kFamilies) {
    if (IsInitialized(family)) return &family;
  }
  return nullptr;
}

const MpiFamily* FamilyOfLauncher(const Config& config) {
  for (const MpiFamily& family : kFamilies) {
    if (family.launcher_variable == config.launcher_variable) return &family;
  }
  return nullptr;
}

std::string LauncherSays(const Config& config) {
  return config.launcher_variable + " says that this is one of " +
         std::to_string(config.launcher_size) + " processes";
}

// The folder of the library that this code is in.
std::string OwnFolder() {
  Dl_info info{};
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): how dladdr works
  if (dladdr(reinterpret_cast<const void*>(&AssembleWorld), &info) == 0) return ".";
  const std::string path = info.dli_fname;
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

Status LoadLeaf(const MpiFamily& family, const std::string& why, const MpiLeaf** leaf) {
  const std::string path = OwnFolder() + "/" + std::string(family.leaf);
  const std::string build = ": build it with `make mpi MPICXX=...`, the mpicxx of that " +
                            std::string(family.name) + ", or install the package again with it";
  if (access(path.c_str(), F_OK) != 0) {
    return Status::FailedPrecondition(why + ", but this build has no " + path + " to use " +
                                      std::string(family.name) + build);
  }
  // Never closed: an MPI cannot be loaded twice.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): the system's C library keeps it for each thread
    const std::string reason = dlerror();
    return Status::FailedPrecondition(why + ", but " + std::string(family.name) +
                                      " cannot be used: " + reason + build);
  }
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): how dlsym works
  const auto get = reinterpret_cast<MpiLeafFunction>(dlsym(library, kMpiLeafFunction));
  const MpiLeaf* const found = get == nullptr ? nullptr : get();
  if (found == nullptr || found->interface != MpiLeafInterface()) {
    return Status::FailedPrecondition(
        why + ", but " + path + " (" + (found == nullptr ? "unknown" : found->interface) +
        ") does not fit libhorovod_common.so (" + MpiLeafInterface() + ")" + build);
  }
  *leaf = found;
  return Status::Ok();
}

std::string DescribeShm(const ShmMembership& membership) {
  const ShmSegment& segment = *membership.segment;
  return "all " + std::to_string(segment.ranks()) + " ranks share " +
         std::to_string(segment.bytes() >> 10) +
         " KiB of memory for tensors and messages, in chunks of " +
         std::to_string(segment.slot_bytes()) + " bytes";
}

// Where all ranks can share memory, tensors and messages travel through it, else as before; rank 0
// says which.
Status UseShm(const Config& config, RankExchange& exchange, const Logger& logger, World* world,
              bool* used) {
  ShmOptions options;
  options.disable = config.shm_disable;
  options.chunk_bytes = static_cast<std::size_t>(config.shm_chunk_bytes);
  options.host = world->transport->host();
  ShmMembership membership;
  Status reason;
  HVD_RETURN_IF_ERROR(JoinShm(exchange, options, &membership, &reason));
  *used = reason.ok();
  if (!*used) {
    // Several hosts, or the user's wish, are nothing to warn of.
    const bool expected = reason.code() == StatusCode::kUnimplemented;
    if (exchange.rank() == 0) {
      logger.Log(expected ? LogLevel::kInfo : LogLevel::kWarning,
                 "tensors travel by MPI and not through shared memory: " + reason.message());
    }
    return Status::Ok();
  }
  if (exchange.rank() == 0) logger.Log(LogLevel::kInfo, DescribeShm(membership));
  world->transport = MakeShmTransport(options.host, membership, std::move(world->abandon));
  world->backends.Add(MakeShmBackend(std::move(membership)));
  return Status::Ok();
}

Status AddShm(const Config& config, StartProgress& progress, World* world) {
  const std::unique_ptr<RankExchange> exchange = std::move(world->exchange);
  Logger logger(config.log_level, config.log_hide_time);
  logger.set_rank(exchange->rank());
  progress.Enter("the comparison of processors");
  HVD_RETURN_IF_ERROR(WarnOfPlacement(*exchange, world->transport->host(), logger));
  progress.Enter("the joining of shared memory");
  bool used = false;
  return UseShm(config, *exchange, logger, world, &used);
}

// Without its launcher Open MPI may end the process from inside MPI_Init_thread.
Status CheckLauncherIsThere(const Config& config, const MpiFamily& family) {
  if (family.job_variable.empty() || !config.launcher_job.empty()) return Status::Ok();
  return Status::FailedPrecondition(
      LauncherSays(config) + ", but nothing else that its launcher sets is here (" +
      std::string(family.job_variable) + "): start the program with mpirun, or unset the variable");
}

Status AssembleMpi(const Config& config, const MpiFamily& family, StartProgress& progress,
                   World* world) {
  const bool launched = config.launcher_size > 0;
  const std::string why =
      launched ? LauncherSays(config) : std::string(family.name) + " is initialised here";
  const MpiLeaf* leaf = nullptr;
  HVD_RETURN_IF_ERROR(LoadLeaf(family, why, &leaf));
  if (launched && !IsInitialized(family)) {
    HVD_RETURN_IF_ERROR(CheckLauncherIsThere(config, family));
  }
  OpenedLeaf() = leaf;
  HVD_RETURN_IF_ERROR(leaf->open(config, progress, world));
  if (world->transport->size() > 1) return AddShm(config, progress, world);
  if (!config.members.empty()) return AssembleSingle(world);
  if (config.launcher_size > 1) {
    const MpiFamily* const launcher = FamilyOfLauncher(config);
    return Status::FailedPrecondition(
        why + " of " + (launcher == nullptr ? "an unknown launcher" : launcher->name.data()) +
        ", but " + world->mpi_library +
        ", which is loaded here, knows of no other: it is not the MPI whose mpirun started them. "
        "Start them with the mpirun of the MPI that the library was built with, or build it with "
        "the other's mpicxx (`make mpi MPICXX=...`)");
  }
  return AssembleSingle(world);
}

// Nobody else has been started.
Status CheckLoneMember(const Config& config) {
  if (config.members.empty() || config.members == std::vector<int>{0}) return Status::Ok();
  return Status::InvalidArgument(
      "hvd.init() was given ranks of a job of several processes, and this is the only one that was "
      "started, rank 0");
}

// A job of one: what its launcher does to it is worth a look.
Status AssembleLone(const Config& config, World* world) {
  HVD_RETURN_IF_ERROR(AssembleSingle(world));
  const Logger logger(config.log_level, config.log_hide_time);
  WarnOfLonePlacement(world->transport->host(), logger);
  return Status::Ok();
}

// Meant so, or the launcher was forgotten: then each process trains a model of its own. Once.
void SayAlone(const Config& config) {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  Logger(config.log_level, config.log_hide_time)
      .Log(LogLevel::kWarning,
           "this is a job of one process, as no launcher has started it; N processes: mpirun -np N "
           "python SCRIPT");
}

Status Assemble(const Config& config, StartProgress& progress, World* world) {
  const MpiFamily* const initialized = InitializedFamily();
  if (initialized != nullptr) return AssembleMpi(config, *initialized, progress, world);
  if (config.launcher_size <= 1) HVD_RETURN_IF_ERROR(CheckLoneMember(config));
  if (config.launcher_size == 0) return AssembleSingle(world);
  if (config.launcher_size == 1) return AssembleLone(config, world);
  const MpiFamily* const launcher = FamilyOfLauncher(config);
  if (launcher != nullptr) return AssembleMpi(config, *launcher, progress, world);
  return Status::FailedPrecondition(
      LauncherSays(config) +
      ", but its launcher is none of an MPI that is supported here (Open MPI's mpirun, MPICH's "
      "mpiexec); each would train a model of its own");
}

}  // namespace

Status AssembleWorld(const Config& config, StartProgress& progress, World* world) {
  HVD_RETURN_IF_ERROR(Assemble(config, progress, world));
  if (config.launcher_size == 0 && world->transport->size() == 1) SayAlone(config);
  return Status::Ok();
}

Status AssembleGroup(const Config& config,
                     const std::function<Status(const RankGroup& group, World* made)>& split,
                     const RankGroup& group, RankExchange& exchange, World* made) {
  if (group.ranks.size() == 1) return AssembleSingle(made);
  HVD_RETURN_IF_ERROR(split(group, made));
  const bool mpi_may_be_used = made->mpi_threads_supported;
  if (!mpi_may_be_used) made->backends = BackendRegistry();
  Logger logger(config.log_level, config.log_hide_time);
  logger.set_part("process set " + std::to_string(group.id));
  bool used = false;
  HVD_RETURN_IF_ERROR(UseShm(config, exchange, logger, made, &used));
  if (used || mpi_may_be_used) return Status::Ok();
  return Status::FailedPrecondition(
      "its ranks do not share memory, and MPI does not allow several threads to call it, of which "
      "each process set has one: leave HOROVOD_MPI_THREADS_DISABLE unset, and with mpi4py set "
      "mpi4py.rc.thread_level = 'multiple' before importing mpi4py.MPI");
}

Status FinalizeWorlds() {
  const MpiLeaf* const leaf = OpenedLeaf().load();
  return leaf == nullptr ? Status::Ok() : leaf->finalize();
}

}  // namespace horovod_tf
