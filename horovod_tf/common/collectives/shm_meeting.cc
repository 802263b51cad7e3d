#include "horovod_tf/common/collectives/shm_meeting.h"

#include <sched.h>

#include <algorithm>
#include <string>
#include <utility>

#include "horovod_tf/common/collectives/cpu_hints.h"
#include "horovod_tf/common/shm/shm_futex.h"

namespace horovod_tf {
namespace {

constexpr int kPausesBetweenYields = 32;

// Words count for ever and wrap around; what is compared is never far apart.
bool Reached(std::uint32_t value, std::uint32_t goal) {
  return static_cast<std::int32_t>(value - goal) >= 0;
}

// Of all ranks, in the gates of the chunk's slot.
std::uint32_t ArrivalsAfter(std::uint64_t chunk, int ranks) {
  return static_cast<std::uint32_t>((chunk / kShmSlots + 1) * static_cast<std::uint64_t>(ranks));
}

std::uint32_t ProgressAfter(std::uint64_t chunk) { return static_cast<std::uint32_t>(chunk + 1); }

}  // namespace

// One wait.
struct ShmMeeting::Goal {
  ShmGate& gate;
  std::uint32_t arrivals;       // of all ranks, in this gate
  ShmWord ShmProgress::*stage;  // what each rank has to reach
  std::uint32_t progress;

  bool Reached() const {
    return horovod_tf::Reached(gate.arrived.load(std::memory_order_acquire), arrivals);
  }
};

ShmMeeting::ShmMeeting(ShmMembership membership) : member_(std::move(membership)) {}

// The progress after the arrival: a rank that dies between the two has arrived, and nobody waits
// for it. The other way round nobody would blame it.
void ShmMeeting::Publish(std::uint64_t chunk) {
  Arrive(segment().header().published[chunk % kShmSlots], chunk);
  segment().progress(rank()).published.store(ProgressAfter(chunk), std::memory_order_release);
}

void ShmMeeting::Release(std::uint64_t chunk) {
  Arrive(segment().header().released[chunk % kShmSlots], chunk);
  segment().progress(rank()).released.store(ProgressAfter(chunk), std::memory_order_release);
}

// Sequentially consistent on both sides: either the last to arrive sees the sleeper, or the sleeper
// sees that all have arrived.
void ShmMeeting::Arrive(ShmGate& gate, std::uint64_t chunk) const {
  const std::uint32_t arrived = gate.arrived.fetch_add(1, std::memory_order_seq_cst) + 1;
  if (arrived != ArrivalsAfter(chunk, size())) return;
  if (gate.sleepers.load(std::memory_order_seq_cst) != 0) FutexWakeAll(gate.arrived);
}

Status ShmMeeting::AwaitPublished(std::uint64_t chunk, RunContext& context) {
  return Await({segment().header().published[chunk % kShmSlots], ArrivalsAfter(chunk, size()),
                &ShmProgress::published, ProgressAfter(chunk)},
               context);
}

Status ShmMeeting::AwaitReleased(std::uint64_t chunk, RunContext& context) {
  return Await({segment().header().released[chunk % kShmSlots], ArrivalsAfter(chunk, size()),
                &ShmProgress::released, ProgressAfter(chunk)},
               context);
}

Status ShmMeeting::Await(const Goal& goal, RunContext& context) {
  if (goal.Reached() || Spin(goal)) return Status::Ok();
  for (int i = 0; i < member_.patience.yields; ++i) {
    sched_yield();
    if (goal.Reached()) return Status::Ok();
  }
  return Sleep(goal, context);
}

// Awake, but not alone: a peer that waits for this processor gets it.
bool ShmMeeting::Spin(const Goal& goal) const {
  if (member_.patience.spin == Duration::zero()) return false;
  const TimePoint end = Clock::Real().Now() + member_.patience.spin;
  do {
    for (int i = 0; i < kPausesBetweenYields; ++i) {
      PauseSpinning();
      if (goal.Reached()) return true;
    }
    sched_yield();
  } while (Clock::Real().Now() < end);
  return false;
}

Status ShmMeeting::Sleep(const Goal& goal, RunContext& context) {
  Duration sleep = member_.patience.first_sleep;
  while (true) {
    goal.gate.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const TimePoint end = Clock::Real().Now() + sleep;
    bool reached = false;
    Duration left = sleep;
    // Arrivals of some change the word without waking anybody; a sleep that is about to begin then
    // does not.
    while (left > Duration::zero() && failure().ok()) {
      const std::uint32_t arrived = goal.gate.arrived.load(std::memory_order_seq_cst);
      reached = Reached(arrived, goal.arrivals);
      if (reached) break;
      FutexWait(goal.gate.arrived, arrived, left);
      left = end - Clock::Real().Now();
    }
    goal.gate.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    if (reached || goal.Reached()) return Status::Ok();
    HVD_RETURN_IF_ERROR(LookAround(goal, context));
    sleep = std::min(sleep * 2, member_.patience.longest_sleep);
  }
}

// Whether there is still something to wait for.
Status ShmMeeting::LookAround(const Goal& goal, RunContext& context) {
  HVD_RETURN_IF_ERROR(failure());
  const Status interrupted = context.Interrupted();
  if (interrupted.code() == StatusCode::kDeadlineExceeded) {
    return Fail(Status::DeadlineExceeded(interrupted.message() + " (" + Late(goal) + ")"));
  }
  if (!interrupted.ok()) return Fail(interrupted);
  const Status dead = Dead(goal);
  return dead.ok() ? dead : Fail(dead);
}

bool ShmMeeting::IsThere(int rank, const Goal& goal) const {
  const ShmWord& progress = segment().progress(rank).*goal.stage;
  return Reached(progress.load(std::memory_order_acquire), goal.progress);
}

// "still to come: rank 2".
std::string ShmMeeting::Late(const Goal& goal) const {
  std::string text = "still to come:";
  for (int rank = 0; rank < size(); ++rank) {
    if (!IsThere(rank, goal)) text += " rank " + std::to_string(rank);
  }
  return text;
}

// Not OK if a process has ended that has not got there. One that has got there owes nothing: the
// first to finish a job's last operation may well be gone.
Status ShmMeeting::Dead(const Goal& goal) const {
  for (int rank = 0; rank < size(); ++rank) {
    if (!member_.processes->Ended(rank)) continue;
    // Only now: it may have arrived right before its end.
    if (IsThere(rank, goal)) continue;
    return Status::Unknown("rank " + std::to_string(rank) +
                           " ended in the middle of an operation over shared memory; its "
                           "output, or the launcher's, says why");
  }
  return Status::Ok();
}

// The first to fail tells all, and wakes them.
Status ShmMeeting::Fail(const Status& cause) {
  member_.failures->Tell(ShmFailureBoard::Subject::kTheJob, cause);
  const Status first = failure();
  return first.ok() ? cause : first;
}

}  // namespace horovod_tf
