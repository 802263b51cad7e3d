#include "horovod_tf/common/runtime/assembler.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "horovod_tf/common/base/mutex.h"

namespace horovod_tf {
namespace {

// Where a step can give up by itself it does so in time; else it is left this much later.
constexpr auto kGrace = std::chrono::milliseconds(500);
constexpr auto kBetweenLooks = std::chrono::milliseconds(250);

Status GuardedCall(Assembler::Assemble assemble, const Config& config, StartProgress& progress,
                   World* world) {
  try {
    return assemble(config, progress, world);
  } catch (const std::exception& e) {
    return Status::Internal(std::string("the start met an exception: ") + e.what());
  } catch (...) {
    return Status::Internal("the start met an exception of an unknown type");
  }
}

}  // namespace

// What the thread and the one who waits for it share; it lives as long as either.
struct Assembler::Attempt {
  Attempt(const Config& wanted, TimePoint deadline) : config(wanted), progress(deadline) {}

  void Run(Assemble assemble) {
    World made;
    Status result = GuardedCall(assemble, config, progress, &made);
    // Peers may have given up too: nothing may wait for them any more.
    if (!Deliver(std::move(result), &made) && made.abandon) made.abandon();
  }

  // Whether somebody still wants it.
  bool Deliver(Status result, World* made) {
    MutexLock lock(mutex);
    ended = true;
    if (abandoned) return false;
    status = std::move(result);
    world = std::move(*made);
    changed.NotifyAll();
    return true;
  }

  const Config config;
  StartProgress progress;
  Mutex mutex;
  CondVar changed;
  bool ended HVD_GUARDED_BY(mutex) = false;
  bool abandoned HVD_GUARDED_BY(mutex) = false;
  Status status HVD_GUARDED_BY(mutex);
  World world HVD_GUARDED_BY(mutex);
};

Status Assembler::Run(const Config& config, TimePoint deadline, World* world) {
  if (last_ != nullptr) {
    MutexLock lock(last_->mutex);
    if (!last_->ended) {
      return Status::FailedPrecondition("an earlier hvd.init() of this process is still in " +
                                        last_->progress.Describe() +
                                        " and cannot be interrupted: end the program");
    }
  }
  arrivals_.reset();  // before the name is taken again
  arrivals_ = std::make_unique<Arrivals>(config);
  last_ = std::make_shared<Attempt>(config, deadline);
  try {
    std::thread([attempt = last_, assemble = assemble_] { attempt->Run(assemble); }).detach();
  } catch (const std::system_error& e) {
    last_.reset();
    return Status::ResourceExhausted(std::string("cannot start a thread: ") + e.what());
  }
  Status status = Await(*last_, world);
  return status.code() == StatusCode::kDeadlineExceeded ? TooLate(*last_) : status;
}

Status Assembler::Await(Attempt& attempt, World* world) {
  const Clock& clock = Clock::Real();
  const TimePoint last_moment = AfterDelay(attempt.progress.deadline(), kGrace);
  while (true) {
    const TimePoint now = clock.Now();
    const TimePoint next_look = std::min(last_moment, AfterDelay(now, kBetweenLooks));
    {
      MutexLock lock(attempt.mutex);
      while (!attempt.ended && clock.Now() < next_look) {
        attempt.changed.WaitUntil(attempt.mutex, next_look);
      }
      if (attempt.ended) {
        *world = std::move(attempt.world);
        return attempt.status;
      }
      attempt.abandoned = next_look == last_moment;
      if (attempt.abandoned) return Status::DeadlineExceeded("");
    }
    arrivals_->Look();
  }
}

Status Assembler::TooLate(const Attempt& attempt) const {
  arrivals_->Look();
  const std::string arrived = arrivals_->Describe();
  return Status::DeadlineExceeded(
      "hvd.init() did not end within " + SecondsText(attempt.config.init_timeout) + ": " +
      (arrived.empty() ? "not all ranks came" : arrived) + ". This rank waits in " +
      attempt.progress.Describe() +
      ". Look at the output of the missing ranks; if they are only slow to start, raise "
      "HOROVOD_TF_INIT_TIMEOUT_SECONDS. If none is missing, hosts may not reach each other: see "
      "docs/mpi.md");
}

}  // namespace horovod_tf
