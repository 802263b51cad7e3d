#include "horovod_tf/common/mpi/mpi_world.h"

#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/mutex.h"
#include "horovod_tf/common/mpi/mpi_error.h"

namespace horovod_tf {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(1);

constexpr int kGoodbyeTag = 9;  // after all that a job has sent

// The communicators of a job that ended well here. Freed only when all ranks have come to the next
// one: a message that nobody took (a second rank's wish to stop, say) would else turn up in the
// next communicator, which MPI may give the same number.
struct Left {
  int job = 0;
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

// Initialises MPI unless somebody has, and says what it allows threads to do.
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

Status EnsureInitialized(bool threads_disable, int* provided) {
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
    const int wanted = threads_disable ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE;
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

// Like MPI_Comm_dup, but a rank that never comes is no reason to wait forever.
Status Duplicate(const Config& config, MPI_Comm* copy) {
  MPI_Request request = MPI_REQUEST_NULL;
  HVD_MPI_RETURN_IF_ERROR(MPI_Comm_idup, MPI_COMM_WORLD, copy, &request);
  const TimePoint deadline = AfterDelay(Clock::Real().Now(), config.init_timeout);
  while (true) {
    int done = 0;
    HVD_MPI_RETURN_IF_ERROR(MPI_Test, &request, &done, MPI_STATUS_IGNORE);
    if (done != 0) break;
    if (Clock::Real().Now() >= deadline) {
      State().failed = true;
      *copy = MPI_COMM_NULL;
      return Status::DeadlineExceeded(
          "not all ranks called hvd.init() within " +
          std::to_string(static_cast<long long>(ToSeconds(config.init_timeout))) +
          " s. Every rank that did says this; look at the output of the others. If they are only "
          "slow to start, raise HOROVOD_TF_INIT_TIMEOUT_SECONDS.");
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
  HVD_MPI_RETURN_IF_ERROR(MPI_Comm_set_errhandler, *copy, MPI_ERRORS_RETURN);
  return Status::Ok();
}

// Takes what is still on its way in the job that was left, and frees it. All ranks do this
// together.
Status FreeLeft(Left* left, int rank, int size) {
  std::vector<MPI_Request> goodbyes(static_cast<std::size_t>(size), MPI_REQUEST_NULL);
  for (int to = 0; to < size; ++to) {
    if (to == rank) continue;
    HVD_MPI_RETURN_IF_ERROR(MPI_Isend, nullptr, 0, MPI_BYTE, to, kGoodbyeTag, left->control,
                            &goodbyes[static_cast<std::size_t>(to)]);
  }
  std::string bytes;
  for (int missing = size - 1; missing > 0;) {
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status envelope;
    HVD_MPI_RETURN_IF_ERROR(MPI_Mprobe, MPI_ANY_SOURCE, MPI_ANY_TAG, left->control, &handle,
                            &envelope);
    int length = 0;
    HVD_MPI_RETURN_IF_ERROR(MPI_Get_count, &envelope, MPI_BYTE, &length);
    bytes.resize(static_cast<std::size_t>(length));
    HVD_MPI_RETURN_IF_ERROR(MPI_Mrecv, bytes.data(), length, MPI_BYTE, &handle, MPI_STATUS_IGNORE);
    if (envelope.MPI_TAG == kGoodbyeTag) --missing;
  }
  HVD_MPI_RETURN_IF_ERROR(MPI_Waitall, size, goodbyes.data(), MPI_STATUSES_IGNORE);
  HVD_MPI_RETURN_IF_ERROR(MPI_Comm_free, &left->data);
  HVD_MPI_RETURN_IF_ERROR(MPI_Comm_free, &left->control);
  return Status::Ok();
}

}  // namespace

Status MpiWorld::Open(const Config& config, std::shared_ptr<MpiWorld>* world) {
  int provided = MPI_THREAD_SINGLE;
  HVD_RETURN_IF_ERROR(EnsureInitialized(config.mpi_threads_disable, &provided));
  const std::shared_ptr<MpiWorld> made(std::unique_ptr<MpiWorld>(new MpiWorld()));
  made->threads_supported_ = provided == MPI_THREAD_MULTIPLE;
  made->library_ = LibraryVersion();
  HVD_RETURN_IF_ERROR(Duplicate(config, &made->control_));
  HVD_RETURN_IF_ERROR(Duplicate(config, &made->data_));
  HVD_MPI_RETURN_IF_ERROR(MPI_Comm_rank, made->control_, &made->rank_);
  HVD_MPI_RETURN_IF_ERROR(MPI_Comm_size, made->control_, &made->size_);
  HVD_RETURN_IF_ERROR(made->FreeLastJob());
  HVD_RETURN_IF_ERROR(made->FindHost());
  *world = made;
  return Status::Ok();
}

// If all ranks left it well; the communicators of a job that failed anywhere stay to the end.
Status MpiWorld::FreeLastJob() {
  job_ = State().NextJob();
  Left left = State().TakeLeft();
  int job = left.job == job_ - 1 ? left.job : 0;
  HVD_MPI_RETURN_IF_ERROR(MPI_Allreduce, MPI_IN_PLACE, &job, 1, MPI_INT, MPI_MIN, control_);
  return job > 0 ? FreeLeft(&left, rank_, size_) : Status::Ok();
}

// A host's name is not enough: containers share names and not memory. The lowest rank that shares
// memory with this one makes it unique.
Status MpiWorld::FindHost() {
  MPI_Comm local = MPI_COMM_NULL;
  HVD_MPI_RETURN_IF_ERROR(MPI_Comm_split_type, control_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL,
                          &local);
  int lowest = rank_;
  const Status status = FromMpi(MPI_Bcast(&lowest, 1, MPI_INT, 0, local), "MPI_Bcast");
  MPI_Comm_free(&local);
  HVD_RETURN_IF_ERROR(status);
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  HVD_MPI_RETURN_IF_ERROR(MPI_Get_processor_name, name.data(), &length);
  host_ = std::string(name.data(), static_cast<std::size_t>(length)) + "#" + std::to_string(lowest);
  return Status::Ok();
}

void MpiWorld::MarkFailed() {
  failed_ = true;
  State().failed = true;
}

MpiWorld::~MpiWorld() {
  if (!failed_ && job_ > 0) State().Leave({job_, control_, data_});
}

Status FinalizeMpi() {
  if (State().used_in != getpid()) return Status::Ok();
  int finalized = 0;
  HVD_MPI_RETURN_IF_ERROR(MPI_Finalized, &finalized);
  if (finalized != 0 || !State().initialized_here || State().failed) return Status::Ok();
  return FromMpi(MPI_Finalize(), "MPI_Finalize");
}

}  // namespace horovod_tf
