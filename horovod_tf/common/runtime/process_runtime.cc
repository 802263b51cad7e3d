#include "horovod_tf/common/runtime/process_runtime.h"

#include <memory>
#include <utility>

#include "horovod_tf/common/base/config.h"
#include "horovod_tf/common/base/mutex.h"
#include "horovod_tf/common/runtime/assemble.h"
#include "horovod_tf/common/runtime/in_flight.h"
#include "horovod_tf/common/runtime/runtime.h"

namespace horovod_tf {
namespace {

// A runtime with what the process wants to know of it.
struct Job {
  std::unique_ptr<Runtime> runtime;
  bool mpi_threads_supported = false;
};

// The process's job. Callers copy the pointer under the lock and use it without: no call out, and
// no wait for a peer, happens while the lock is held.
//
// Thread rule: any thread.
class ProcessRuntime {
 public:
  Status Init() {
    {
      MutexLock lock(mutex_);
      while (changing_) changed_.Wait(mutex_);
      if (job_ != nullptr && initialized_ && job_->runtime->Refusal().ok()) return Status::Ok();
      if (job_ != nullptr && job_->runtime->OnBackgroundThread()) {
        return Status::FailedPrecondition(
            "hvd.init() cannot be called from a completion's callback");
      }
      changing_ = true;
    }
    std::shared_ptr<Job> old = Exchange(nullptr);
    // What became of the last job has been told to its tensors.
    if (old != nullptr) (void)old->runtime->Stop(kReplaced);
    old.reset();  // its endpoint has left before the next one is there
    Status status = StartNew();
    MutexLock lock(mutex_);
    initialized_ = status.ok();
    if (!status.ok()) {
      job_ = nullptr;
      ended_ = status.WithContext("Horovod has not been initialized, because hvd.init() failed");
    }
    changing_ = false;
    changed_.NotifyAll();
    return status;
  }

  Status Shutdown(std::string_view reason) {
    const std::shared_ptr<Job> job = Copy();
    if (job == nullptr) return Status::Ok();
    {
      MutexLock lock(mutex_);
      initialized_ = false;
    }
    Status status = job->runtime->Stop(reason);
    // On its own thread the runtime cannot end; the next init or shutdown takes it away.
    if (job->runtime->OnBackgroundThread()) return status;
    MutexLock lock(mutex_);
    if (job_ != job) return status;
    ended_ = job->runtime->Refusal();
    job_ = nullptr;
    return status;
  }

  std::shared_ptr<Job> Copy() const {
    MutexLock lock(mutex_);
    return job_;
  }

  std::shared_ptr<Job> CopyInitialized() const {
    MutexLock lock(mutex_);
    return initialized_ ? job_ : nullptr;
  }

  // Why there is no job.
  Status Ended() const {
    MutexLock lock(mutex_);
    return ended_;
  }

 private:
  static constexpr std::string_view kReplaced = "hvd.init() was called again";

  Status StartNew() {
    RuntimeOptions options;
    HVD_RETURN_IF_ERROR(ParseConfig(ReadProcessEnvironment(), &options.config));
    World world;
    HVD_RETURN_IF_ERROR(AssembleWorld(options.config, &world));
    options.logger =
        std::make_shared<Logger>(options.config.log_level, options.config.log_hide_time);
    options.logger->set_rank(world.transport->rank());
    for (const std::string& notice : options.config.notices) {
      options.logger->Log(LogLevel::kWarning, notice);
    }
    if (options.logger->Enabled(LogLevel::kInfo)) {
      options.logger->Log(LogLevel::kInfo, "configuration:\n" + DescribeConfig(options.config));
    }
    options.transport = std::move(world.transport);
    options.backends = std::move(world.backends);
    options.agreements = std::move(world.agreements);
    const auto job = std::make_shared<Job>();
    job->mpi_threads_supported = world.mpi_threads_supported;
    job->runtime = std::make_unique<Runtime>(std::move(options));
    // Known before it has started, so that a shutdown can interrupt the start.
    (void)Exchange(job);
    return job->runtime->Start();
  }

  std::shared_ptr<Job> Exchange(std::shared_ptr<Job> next) {
    MutexLock lock(mutex_);
    initialized_ = false;
    return std::exchange(job_, std::move(next));
  }

  mutable Mutex mutex_;
  CondVar changed_;
  bool changing_ HVD_GUARDED_BY(mutex_) = false;  // an Init is at work
  bool initialized_ HVD_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Job> job_ HVD_GUARDED_BY(mutex_);
  Status ended_ HVD_GUARDED_BY(mutex_) = NotInitializedStatus();
};

// Never destroyed: threads of the framework may still come when the process ends.
ProcessRuntime& Process() {
  static ProcessRuntime* const process = std::make_unique<ProcessRuntime>().release();
  return *process;
}

}  // namespace

Status ProcessInit() { return Process().Init(); }

Status ProcessShutdown(std::string_view reason) { return Process().Shutdown(reason); }

Status ProcessFinalize() {
  // A job that could not be stopped still uses what would be finalised.
  return Process().Copy() == nullptr ? FinalizeWorlds() : Status::Ok();
}

std::optional<Topology> ProcessTopology() {
  const std::shared_ptr<Job> job = Process().CopyInitialized();
  if (job == nullptr) return std::nullopt;
  return job->runtime->topology();
}

std::optional<bool> ProcessMpiThreadsSupported() {
  const std::shared_ptr<Job> job = Process().CopyInitialized();
  if (job == nullptr) return std::nullopt;
  return job->mpi_threads_supported;
}

void ProcessEnqueue(std::vector<TensorEntry> group) {
  const std::shared_ptr<Job> job = Process().Copy();
  if (job != nullptr) {
    job->runtime->Enqueue(std::move(group));
  } else {
    FinishAll(std::move(group), Process().Ended());
  }
}

}  // namespace horovod_tf
