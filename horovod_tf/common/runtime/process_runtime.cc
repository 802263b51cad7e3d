#include "horovod_tf/common/runtime/process_runtime.h"

#include <sys/types.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "horovod_tf/common/base/config.h"
#include "horovod_tf/common/base/mutex.h"
#include "horovod_tf/common/base/process_id.h"
#include "horovod_tf/common/base/signal_watch.h"
#include "horovod_tf/common/runtime/assemble.h"
#include "horovod_tf/common/runtime/assembler.h"
#include "horovod_tf/common/runtime/guest.h"
#include "horovod_tf/common/runtime/in_flight.h"
#include "horovod_tf/common/runtime/runtime.h"

namespace horovod_tf {
namespace {

void PrintStatus() {
  const std::string text = "[horovod_tf] " + ProcessStatus() + "\n";
  (void)std::fputs(text.c_str(), stderr);
}

// A runtime with what the process wants to know of it.
struct Job {
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<ProcessSets> sets;  // goes first: it uses the runtime
  std::vector<int> members;           // what init was given
  bool mpi_threads_supported = false;
  const pid_t process = ProcessId();

  Status Stop(std::string_view reason) const {
    // Its end asks the sets to end, too.
    Status status = runtime->Stop(reason);
    const Status of_sets = sets->Stop(reason);
    return status.ok() ? of_sets : status;
  }
};

// The process's job. Callers copy the pointer under the lock and use it without: no call out, and
// no wait for a peer, happens while the lock is held.
//
// A forked child has a copy of all this without the threads, perhaps with locks that nobody will
// ever open. So every entry looks at `started_in_` first, and in a child touches nothing else.
//
// Thread rule: any thread.
class ProcessRuntime {
 public:
  Status Init(const std::vector<int>& members) {
    HVD_RETURN_IF_ERROR(Forked());
    {
      MutexLock lock(mutex_);
      // A guest must not wait: what it would wait for may wait for its thread.
      while (changing_ && !OnGuestThread()) changed_.Wait(mutex_);
      if (job_ != nullptr && initialized_ && job_->runtime->Refusal().ok()) {
        if (members.empty() || members == job_->members) return Status::Ok();
        return Status::FailedPrecondition(
            "hvd.init() has been called before, for other ranks: call hvd.shutdown() first");
      }
      if (OnGuestThread()) {
        return Status::FailedPrecondition(
            "hvd.init() cannot be called from a completion's callback");
      }
      changing_ = true;
      given_up_.reset();
      started_in_.store(ProcessId(), std::memory_order_release);
    }
    std::shared_ptr<Job> old = Withdraw();
    // What became of the last job has been told to its tensors.
    if (old != nullptr) NoteEndOf(old->Stop(kReplaced));
    old.reset();  // its endpoint has left before the next one is there
    DestroyLeft();
    WatchStatusSignal();
    Status status = StartNew(members);
    {
      MutexLock lock(mutex_);
      initialized_ = status.ok();
      if (!status.ok()) {
        old = std::exchange(job_, nullptr);
        ended_ = status.WithContext("Horovod has not been initialized, because hvd.init() failed");
      }
      changing_ = false;
      NoteEnd();
      changed_.NotifyAll();
    }
    WatchStatusSignal();
    return status;
  }

  Status Shutdown(std::string_view reason) {
    if (!Forked().ok()) return Status::Ok();
    std::shared_ptr<Job> job;
    {
      MutexLock lock(mutex_);
      job = job_;
      initialized_ = false;
      // An init that has nothing to stop yet.
      if (job == nullptr && changing_) given_up_ = std::string(reason);
    }
    Status status = job == nullptr ? Status::Ok() : job->Stop(reason);
    // On a thread of the job, the job cannot end; the next init or shutdown takes it away.
    if (OnGuestThread()) return status;
    NoteEndOf(status);
    if (job != nullptr) {
      MutexLock lock(mutex_);
      if (job_ == job) {
        ended_ = job->runtime->Refusal();
        job_ = nullptr;
        NoteEnd();
      }
    }
    WatchStatusSignal();
    job.reset();
    DestroyLeft();
    return status;
  }

  void AgreeOn(std::string_view name, std::string_view value) {
    if (!Forked().ok()) return;
    MutexLock lock(mutex_);
    agreements_[std::string(name)] = value;
  }

  // Whether every job that has been stopped here had ended well.
  bool AllEndedWell() const { return all_ended_well_.load(std::memory_order_acquire); }

  // OK, or why nothing of the job may be used here: this process is a fork of the one that has it.
  Status Forked() const {
    const pid_t started_in = started_in_.load(std::memory_order_acquire);
    if (started_in == 0) return Status::Ok();
    const pid_t self = ProcessId();
    if (started_in == self) return Status::Ok();
    return Status::FailedPrecondition(
        "Horovod cannot be used here: process " + std::to_string(self) +
        " was forked after hvd.init() in process " + std::to_string(started_in) +
        ", whose threads it does not have. Fork before hvd.init(), or start processes afresh "
        "(multiprocessing's start method 'spawn' or 'forkserver').");
  }

  std::shared_ptr<Job> Copy() const {
    if (!Forked().ok()) return nullptr;
    MutexLock lock(mutex_);
    return job_;
  }

  std::shared_ptr<Job> CopyInitialized() const {
    if (!Forked().ok()) return nullptr;
    MutexLock lock(mutex_);
    return initialized_ ? job_ : nullptr;
  }

  // Whether there is a job, or will be.
  bool Present() const {
    MutexLock lock(mutex_);
    return job_ != nullptr || changing_;
  }

  // Why there is no job.
  Status Ended() const {
    HVD_RETURN_IF_ERROR(Forked());
    MutexLock lock(mutex_);
    return ended_;
  }

 private:
  static constexpr std::string_view kReplaced = "hvd.init() was called again";

  Status StartNew(const std::vector<int>& members) {
    RuntimeOptions options;
    HVD_RETURN_IF_ERROR(ParseConfig(ReadProcessEnvironment(), &options.config));
    options.config.members = members;
    options.start_deadline = AfterDelay(Clock::Real().Now(), options.config.init_timeout);
    World world;
    Status assembled = assembler_.Run(options.config, options.start_deadline, &world);
    if (!assembled.ok()) {
      // What was begun with the others has no end that anybody may wait for.
      if (assembled.code() == StatusCode::kDeadlineExceeded) NoteEndOf(assembled);
      return assembled;
    }
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
    AddAgreements(&options.agreements);
    const std::shared_ptr<Job> job(std::make_unique<Job>().release(),
                                   [this](Job* it) { Destroy(std::unique_ptr<Job>(it)); });
    job->mpi_threads_supported = world.mpi_threads_supported;
    job->members = members;
    const auto end = std::make_shared<JobEnd>();
    options.on_end = [end](const Status& why, bool failed) { end->Ended(kWholeJob, why, failed); };
    const Config config = options.config;
    job->runtime = std::make_unique<Runtime>(std::move(options));
    end->Join(kWholeJob, job->runtime->Ender());
    job->sets = std::make_unique<ProcessSets>(
        *job->runtime,
        ProcessSetsOptions{config, end,
                           [config, split = std::move(world.split)](
                               const RankGroup& group, RankExchange& exchange, World* made) {
                             return AssembleGroup(config, split, group, exchange, made);
                           }});
    {
      MutexLock lock(mutex_);
      if (given_up_) {
        return Status::Cancelled("hvd.init() was given up: shutdown was asked for meanwhile (" +
                                 *given_up_ + ")");
      }
      // Known before it has started, so that a shutdown can interrupt the start.
      job_ = job;
    }
    HVD_RETURN_IF_ERROR(job->runtime->Start());
    assembler_.ForgetArrivals();
    return Status::Ok();
  }

  void AddAgreements(std::vector<std::pair<std::string, std::string>>* agreements) const {
    MutexLock lock(mutex_);
    agreements->insert(agreements->end(), agreements_.begin(), agreements_.end());
  }

  // `kill -USR1` prints what this rank does, unless the program does something else with that
  // signal. No thread is left without a job, when the process may fork.
  void WatchStatusSignal() {
    MutexLock lock(watch_mutex_);
    if (!Present()) return status_watch_.reset();
    if (status_watch_ == nullptr) {
      status_watch_ = std::make_unique<SignalWatch>(SIGUSR1, PrintStatus);
    }
  }

  void NoteEndOf(const Status& stopped) {
    if (!stopped.ok()) all_ended_well_.store(false, std::memory_order_release);
  }

  std::shared_ptr<Job> Withdraw() {
    MutexLock lock(mutex_);
    initialized_ = false;
    return std::exchange(job_, nullptr);
  }

  // A child of this process that is forked from now on may start a job of its own.
  void NoteEnd() HVD_REQUIRES(mutex_) {
    if (job_ == nullptr && !changing_) started_in_.store(0, std::memory_order_release);
  }

  // The last one to use a job may be a guest on one of the job's threads, for which the job would
  // wait; then the next init or shutdown does it.
  void Destroy(std::unique_ptr<Job> job) {
    if (!OnGuestThread()) return job.reset();
    MutexLock lock(left_mutex_);
    left_.push_back(std::move(job));
  }

  void DestroyLeft() {
    std::vector<std::unique_ptr<Job>> left;
    {
      MutexLock lock(left_mutex_);
      left.swap(left_);
    }
    for (std::unique_ptr<Job>& job : left) {
      // In a forked child it would wait for threads that are not there: let go of on purpose.
      if (job->process != ProcessId()) (void)job.release();
    }
  }

  mutable Mutex mutex_;
  CondVar changed_;
  std::atomic<pid_t> started_in_{0};              // the process that has, or makes, a job; or 0
  bool changing_ HVD_GUARDED_BY(mutex_) = false;  // an Init is at work
  std::optional<std::string> given_up_ HVD_GUARDED_BY(mutex_);  // why that Init is to give up
  bool initialized_ HVD_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Job> job_ HVD_GUARDED_BY(mutex_);
  Status ended_ HVD_GUARDED_BY(mutex_) = NotInitializedStatus();
  // In the same order on all ranks.
  std::map<std::string, std::string> agreements_ HVD_GUARDED_BY(mutex_);
  Assembler assembler_;  // for the Init that is at work
  std::atomic<bool> all_ended_well_{true};
  Mutex watch_mutex_;  // held while the watch's thread, which takes the others, is waited for
  std::unique_ptr<SignalWatch> status_watch_ HVD_GUARDED_BY(watch_mutex_);
  Mutex left_mutex_;
  std::vector<std::unique_ptr<Job>> left_ HVD_GUARDED_BY(left_mutex_);
};

// Never destroyed: threads of the framework may still come when the process ends.
ProcessRuntime& Process() {
  static ProcessRuntime* const process = std::make_unique<ProcessRuntime>().release();
  return *process;
}

}  // namespace

Status ProcessInit(const std::vector<int>& members) { return Process().Init(members); }

Status ProcessShutdown(std::string_view reason) { return Process().Shutdown(reason); }

void ProcessAgreeOn(std::string_view name, std::string_view value) {
  Process().AgreeOn(name, value);
}

Status ProcessFinalize() {
  // What a forked child inherited is not its own to finalise.
  if (!Process().Forked().ok()) return Status::Ok();
  // A job that could not be stopped still uses what would be finalised; the ranks of one that has
  // failed do not come.
  const bool may = Process().Copy() == nullptr && Process().AllEndedWell();
  return may ? FinalizeWorlds() : Status::Ok();
}

std::optional<Topology> ProcessTopology() {
  const std::shared_ptr<Job> job = Process().CopyInitialized();
  if (job == nullptr) return std::nullopt;
  return job->runtime->topology();
}

Status ProcessNotInitialized() {
  const Status forked = Process().Forked();
  return forked.ok() ? NotInitializedStatus() : forked;
}

std::optional<bool> ProcessMpiThreadsSupported() {
  const std::shared_ptr<Job> job = Process().CopyInitialized();
  if (job == nullptr) return std::nullopt;
  return job->mpi_threads_supported;
}

std::string ProcessStatus() {
  const std::shared_ptr<Job> job = Process().CopyInitialized();
  if (job != nullptr) return job->runtime->Describe() + job->sets->Describe();
  const Status forked = Process().Forked();
  if (forked.ok() && Process().Present()) return "hvd.init() has not come to its end";
  return ProcessNotInitialized().message();
}

Status ProcessAddSet(const std::vector<int>& ranks, int* id) {
  const std::shared_ptr<Job> job = Process().CopyInitialized();
  return job == nullptr ? ProcessNotInitialized() : job->sets->Add(ranks, id);
}

Status ProcessRemoveSet(int id) {
  const std::shared_ptr<Job> job = Process().CopyInitialized();
  return job == nullptr ? ProcessNotInitialized() : job->sets->Remove(id);
}

std::optional<std::vector<ProcessSetView>> ProcessSetList() {
  const std::shared_ptr<Job> job = Process().CopyInitialized();
  if (job == nullptr) return std::nullopt;
  return job->sets->List();
}

Status ProcessStartTimeline(const std::string& path) {
  const std::shared_ptr<Job> job = Process().CopyInitialized();
  return job == nullptr ? ProcessNotInitialized() : job->runtime->StartTimeline(path);
}

Status ProcessStopTimeline() {
  const std::shared_ptr<Job> job = Process().CopyInitialized();
  if (job == nullptr) return ProcessNotInitialized();
  job->runtime->StopTimeline();
  return Status::Ok();
}

void ProcessEnqueue(std::vector<TensorEntry> group, int process_set) {
  const std::shared_ptr<Job> job = Process().Copy();
  if (job != nullptr && process_set == kWholeJob) {
    job->runtime->Enqueue(std::move(group));
  } else if (job != nullptr) {
    job->sets->Enqueue(process_set, std::move(group));
  } else {
    FinishAll(std::move(group), Process().Ended());
  }
}

void ProcessWithdraw(std::uint64_t ticket, std::string_view reason) {
  const std::shared_ptr<Job> job = Process().Copy();
  if (job == nullptr) return;
  job->runtime->Withdraw(ticket, reason);
  job->sets->Withdraw(ticket, reason);
}

void ProcessInterrupt(std::string_view reason) {
  const std::shared_ptr<Job> job = Process().Copy();
  if (job == nullptr) return;
  job->runtime->Interrupt(reason);
  job->sets->Interrupt(reason);
}

}  // namespace horovod_tf
