#include "horovod_tf/common/mpi/mpi_world.h"

#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <utility>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/mutex.h"
#include "horovod_tf/common/mpi/bounded.h"
#include "horovod_tf/common/mpi/mpi_error.h"
#include "horovod_tf/common/mpi/single_copy.h"

namespace horovod_tf {
namespace {

constexpr int kGoodbyeTag = 9;  // after all that a job has sent

// The communicators of a job that ended well here. Freed only when all ranks have come to the next
// one: a message that nobody took (a second rank's wish to stop, say) would else turn up in the
// next communicator, which MPI may give the same number.
struct Left {
  int job = 0;
  std::vector<int> members;
  MPI_Comm control = MPI_COMM_NULL;
  MPI_Comm data = MPI_COMM_NULL;
};

// What this process has done with MPI, over all its jobs. Thread rule: any thread.
class ProcessState {
 public:
  std::atomic<bool> initialized_here{false};
  std::atomic<pid_t> used_in{0};    // the process whose MPI this is; a fork has no MPI of its own
  std::atomic<bool> failed{false};  // a job's peers may be gone

  int NextJob() {
    MutexLock lock(mutex_);
    return ++jobs_;
  }
  void Leave(const Left& left) {
    MutexLock lock(mutex_);
    left_ = left;
  }
  // Job 0 if there is none.
  Left TakeLeft() {
    MutexLock lock(mutex_);
    return std::exchange(left_, Left());
  }

 private:
  Mutex mutex_;
  int jobs_ HVD_GUARDED_BY(mutex_) = 0;
  Left left_ HVD_GUARDED_BY(mutex_);
};

ProcessState& State() {
  static ProcessState state;
  return state;
}

const char* ThreadLevelName(int level) {
  if (level == MPI_THREAD_SINGLE) return "MPI_THREAD_SINGLE";
  if (level == MPI_THREAD_FUNNELED) return "MPI_THREAD_FUNNELED";
  if (level == MPI_THREAD_SERIALIZED) return "MPI_THREAD_SERIALIZED";
  return "MPI_THREAD_MULTIPLE";
}

// "Open MPI v4.1.8", "MPICH Version: 5.0.2".
std::string LibraryVersion() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "unknown MPI";
  std::string line;
  for (const char c : std::string(text.data(), static_cast<std::size_t>(length))) {
    if (c == '\n' || c == ',' || c == '\0') break;
    const bool space = c == ' ' || c == '\t';
    if (!space) line += c;
    if (space && !line.empty() && line.back() != ' ') line += ' ';
  }
  return line;
}

// A forked child would talk over its parent's connections, as its parent's rank.
Status CheckNotForked() {
  pid_t first = 0;
  if (State().used_in.compare_exchange_strong(first, getpid()) || first == getpid()) {
    return Status::Ok();
  }
  return Status::FailedPrecondition(
      "MPI belongs to process " + std::to_string(first) + ", of which process " +
      std::to_string(getpid()) +
      " is a fork. Fork before hvd.init(), or start processes afresh (multiprocessing's start "
      "method 'spawn' or 'forkserver').");
}

// Initialises MPI unless somebody has, and says what it allows threads to do.
Status EnsureInitialized(const Config& config, StartProgress& progress, int* provided) {
  HVD_RETURN_IF_ERROR(CheckNotForked());
  int finalized = 0;
  HVD_MPI_RETURN_IF_ERROR(MPI_Finalized, &finalized);
  if (finalized != 0) {
    return Status::FailedPrecondition(
        "MPI has already been finalised in this process and cannot be started again: call "
        "hvd.init() before MPI_Finalize");
  }
  int initialized = 0;
  HVD_MPI_RETURN_IF_ERROR(MPI_Initialized, &initialized);
  if (initialized == 0) {
    AvoidForbiddenCopies(LibraryVersion(), config);
    const int wanted = config.mpi_threads_disable ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE;
    progress.Enter("MPI_Init_thread");
    HVD_MPI_RETURN_IF_ERROR(MPI_Init_thread, nullptr, nullptr, wanted, provided);
    State().initialized_here = true;
  } else {
    HVD_MPI_RETURN_IF_ERROR(MPI_Query_thread, provided);
  }
  if (*provided >= MPI_THREAD_SERIALIZED) return Status::Ok();
  return Status::FailedPrecondition(
      std::string("MPI allows only ") + ThreadLevelName(*provided) +
      (initialized != 0 ? ", as whoever initialised it asked" : "") +
      "; the library's background thread needs at least MPI_THREAD_SERIALIZED. With mpi4py: set "
      "mpi4py.rc.thread_level = 'multiple' before importing mpi4py.MPI, or call hvd.init() first");
}

// Like MPI_Comm_dup, but a rank that never comes is no reason to wait forever.
Status Duplicate(TimePoint deadline, MPI_Comm of, MPI_Comm* copy) {
  MPI_Request request = MPI_REQUEST_NULL;
  // In case that it is given up: MPI may still write it.
  auto made = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  HVD_MPI_RETURN_IF_ERROR(MPI_Comm_idup, of, made.get(), &request);
  const Status status = AwaitBefore(deadline, &request);
  if (!status.ok()) {
    static_cast<void>(made.release());
    return status;
  }
  *copy = *made;
  return FromMpi(MPI_Comm_set_errhandler(*copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

std::string ListText(const std::vector<int>& ranks) {
  std::string text = "[";
  for (const int rank : ranks) text += (text.size() == 1 ? "" : ", ") + std::to_string(rank);
  return text + "]";
}

// Whether these can be the job, and this rank one of it.
Status CheckMembers(const std::vector<int>& members) {
  int rank = 0;
  int size = 1;
  HVD_MPI_RETURN_IF_ERROR(MPI_Comm_rank, MPI_COMM_WORLD, &rank);
  HVD_MPI_RETURN_IF_ERROR(MPI_Comm_size, MPI_COMM_WORLD, &size);
  std::vector<bool> there(static_cast<std::size_t>(size), false);
  for (const int member : members) {
    if (member < 0 || member >= size) {
      return Status::InvalidArgument("hvd.init() was given the ranks " + ListText(members) +
                                     ", and there is no rank " + std::to_string(member) + ": " +
                                     std::to_string(size) + " processes were started, from rank 0");
    }
    if (there[static_cast<std::size_t>(member)]) {
      return Status::InvalidArgument("hvd.init() was given the ranks " + ListText(members) +
                                     ", where " + std::to_string(member) + " is twice");
    }
    there[static_cast<std::size_t>(member)] = true;
  }
  if (there[static_cast<std::size_t>(rank)]) return Status::Ok();
  return Status::InvalidArgument(
      "this process, rank " + std::to_string(rank) + " of the " + std::to_string(size) +
      " that were started, is not among the ranks " + ListText(members) +
      " that hvd.init() was given: it is no part of the job and cannot use Horovod");
}

// A communicator of these ranks of the world. Waits for them, and for nobody else.
Status CreateOf(const std::vector<int>& members, MPI_Comm* made) {
  constexpr int kTag = 11;
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  HVD_MPI_RETURN_IF_ERROR(MPI_Comm_group, MPI_COMM_WORLD, &world);
  HVD_MPI_RETURN_IF_ERROR(MPI_Group_incl, world, static_cast<int>(members.size()), members.data(),
                          &group);
  HVD_MPI_RETURN_IF_ERROR(MPI_Comm_create_group, MPI_COMM_WORLD, group, kTag, made);
  HVD_MPI_RETURN_IF_ERROR(MPI_Group_free, &group);
  HVD_MPI_RETURN_IF_ERROR(MPI_Group_free, &world);
  return FromMpi(MPI_Comm_set_errhandler(*made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

// Takes one message, if there is one, and says whether it was a goodbye.
Status TakeLate(MPI_Comm comm, bool* goodbye) {
  *goodbye = false;
  int arrived = 0;
  MPI_Message handle = MPI_MESSAGE_NULL;
  MPI_Status envelope;
  HVD_MPI_RETURN_IF_ERROR(MPI_Improbe, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &arrived, &handle,
                          &envelope);
  if (arrived == 0) return Status::Ok();
  int length = 0;
  HVD_MPI_RETURN_IF_ERROR(MPI_Get_count, &envelope, MPI_BYTE, &length);
  std::string bytes(static_cast<std::size_t>(length), '\0');
  HVD_MPI_RETURN_IF_ERROR(MPI_Mrecv, bytes.data(), length, MPI_BYTE, &handle, MPI_STATUS_IGNORE);
  *goodbye = envelope.MPI_TAG == kGoodbyeTag;
  return Status::Ok();
}

// Takes what is still on its way in the job that was left, and frees it. All ranks do this
// together. Freeing waits for nobody: nothing is under way in the communicators any more.
Status FreeLeft(TimePoint deadline, Left* left, int rank, int size) {
  std::vector<MPI_Request> goodbyes(static_cast<std::size_t>(size), MPI_REQUEST_NULL);
  for (int to = 0; to < size; ++to) {
    if (to == rank) continue;
    HVD_MPI_RETURN_IF_ERROR(MPI_Isend, nullptr, 0, MPI_BYTE, to, kGoodbyeTag, left->control,
                            &goodbyes[static_cast<std::size_t>(to)]);
  }
  int missing = size - 1;
  const Status taken = AwaitBefore(deadline, [&](bool* done) {
    bool goodbye = false;
    Status status = TakeLate(left->control, &goodbye);
    if (goodbye) --missing;
    *done = missing == 0;
    return status;
  });
  HVD_RETURN_IF_ERROR(taken);
  for (MPI_Request& request : goodbyes) HVD_RETURN_IF_ERROR(AwaitBefore(deadline, &request));
  HVD_MPI_RETURN_IF_ERROR(MPI_Comm_free, &left->data);
  HVD_MPI_RETURN_IF_ERROR(MPI_Comm_free, &left->control);
  return Status::Ok();
}

// What tells a host's ranks from those of others, and what it is called. The same name is not
// enough: containers may share it. Within one system, and one space of sockets in it, ranks can
// hand each other memory.
std::string OwnHost() {
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  if (MPI_Get_processor_name(name.data(), &length) != MPI_SUCCESS) length = 0;
  std::string host(name.data(), static_cast<std::size_t>(length));
  std::string system;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), system);
  struct stat space {};
  if (stat("/proc/self/ns/net", &space) != 0) space.st_ino = 0;
  return host + '\n' + system + '\n' + std::to_string(space.st_ino);
}

}  // namespace

Status MpiWorld::Open(const Config& config, StartProgress& progress,
                      std::shared_ptr<MpiWorld>* world) {
  progress.Use(LibraryVersion());
  int provided = MPI_THREAD_SINGLE;
  HVD_RETURN_IF_ERROR(EnsureInitialized(config, progress, &provided));
  // Nothing has been begun with the others.
  if (!config.members.empty()) HVD_RETURN_IF_ERROR(CheckMembers(config.members));
  const std::shared_ptr<MpiWorld> made(std::unique_ptr<MpiWorld>(new MpiWorld()));
  made->threads_supported_ = provided == MPI_THREAD_MULTIPLE;
  made->library_ = LibraryVersion();
  Status status = made->Join(config.members, progress);
  if (!status.ok()) {
    made->MarkFailed();
    return status;
  }
  *world = made;
  return Status::Ok();
}

// No call here waits for a rank without the deadline, but for MPI_Comm_create_group.
Status MpiWorld::Join(const std::vector<int>& members, StartProgress& progress) {
  const TimePoint deadline = progress.deadline();
  if (members.empty()) {
    progress.Enter("MPI_Comm_idup");
    HVD_RETURN_IF_ERROR(Duplicate(deadline, MPI_COMM_WORLD, &control_));
  } else {
    members_ = members;
    progress.Enter("MPI_Comm_create_group");
    HVD_RETURN_IF_ERROR(CreateOf(members, &control_));
    progress.Enter("MPI_Comm_idup");
  }
  HVD_RETURN_IF_ERROR(Duplicate(deadline, control_, &data_));
  HVD_MPI_RETURN_IF_ERROR(MPI_Comm_rank, control_, &rank_);
  HVD_MPI_RETURN_IF_ERROR(MPI_Comm_size, control_, &size_);
  HVD_RETURN_IF_ERROR(FindHighestTag());
  progress.Enter("the end of the job before");
  HVD_RETURN_IF_ERROR(FreeLastJob(deadline));
  progress.Enter("the exchange of hosts");
  return FindHost(deadline);
}

// If all ranks left it well; the communicators of a job that failed anywhere stay to the end.
Status MpiWorld::FreeLastJob(TimePoint deadline) {
  job_ = State().NextJob();
  Left left = State().TakeLeft();
  // Freeing is for the same ranks as making.
  int job = left.job == job_ - 1 && left.members == members_ ? left.job : 0;
  HVD_RETURN_IF_ERROR(LeastBefore(deadline, control_, job, &job));
  return job > 0 ? FreeLeft(deadline, &left, rank_, size_) : Status::Ok();
}

// The host's name, made unique by the first rank on it. MPI_Comm_split_type could tell, but waits.
Status MpiWorld::FindHost(TimePoint deadline) {
  const std::string own = OwnHost();
  std::vector<std::string> hosts;
  HVD_RETURN_IF_ERROR(GatherBefore(deadline, data_, own, &hosts));
  const auto first = std::find(hosts.begin(), hosts.end(), own) - hosts.begin();
  host_ = own.substr(0, own.find('\n')) + "#" + std::to_string(first);
  return Status::Ok();
}

// Now, as process sets may be made where MPI allows only one thread at a time to call it.
Status MpiWorld::FindHighestTag() {
  const int* limit = nullptr;
  int found = 0;
  HVD_MPI_RETURN_IF_ERROR(MPI_Comm_get_attr, control_, MPI_TAG_UB, &limit, &found);
  if (found != 0) highest_tag_ = *limit;
  return Status::Ok();
}

void MpiWorld::MarkFailed() {
  failed_ = true;
  State().failed = true;
}

MpiWorld::~MpiWorld() {
  if (!failed_ && job_ > 0) State().Leave({job_, members_, control_, data_});
}

Status FinalizeMpi() {
  if (State().used_in != getpid()) return Status::Ok();
  int finalized = 0;
  HVD_MPI_RETURN_IF_ERROR(MPI_Finalized, &finalized);
  if (finalized != 0 || !State().initialized_here || State().failed) return Status::Ok();
  return FromMpi(MPI_Finalize(), "MPI_Finalize");
}

}  // namespace horovod_tf
