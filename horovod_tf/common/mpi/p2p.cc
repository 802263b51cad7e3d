#include "horovod_tf/common/mpi/p2p.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/mpi/mpi_error.h"

namespace horovod_tf {
namespace {

// A transfer that is under way ends within the spin; a peer that is late must not cost a core that
// training needs.
constexpr auto kSpin = std::chrono::microseconds(200);
constexpr auto kFirstPause = std::chrono::microseconds(20);
constexpr auto kLongestPause = std::chrono::microseconds(500);
constexpr auto kBetweenLooks = std::chrono::milliseconds(20);  // at the job's health
// After a failure: for receives that have begun to come to their end.
constexpr auto kLastBytes = std::chrono::milliseconds(100);

}  // namespace

// After a failure the buffers go away, so that nothing may arrive in them any more. Sends cannot be
// cancelled everywhere, and whatever they still read is not used.
Exchange::~Exchange() {
  if (requests_.empty()) return;
  const TimePoint deadline = AfterDelay(Clock::Real().Now(), kLastBytes);
  for (std::size_t index : receives_) {
    if (requests_[index] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[index]);
  }
  for (std::size_t index : receives_) {
    int done = requests_[index] == MPI_REQUEST_NULL ? 1 : 0;
    while (done == 0) {
      if (MPI_Test(&requests_[index], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
      if (Clock::Real().Now() >= deadline) break;
    }
  }
  for (MPI_Request& request : requests_) {
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }
}

Status Exchange::Send(int to, const void* data, std::size_t bytes) {
  const char* from = static_cast<const char*>(data);
  for (std::size_t done = 0; done < bytes; done += longest_) {
    const int piece = static_cast<int>(std::min(longest_, bytes - done));
    requests_.push_back(MPI_REQUEST_NULL);
    HVD_MPI_RETURN_IF_ERROR(MPI_Isend, from + done, piece, MPI_BYTE, channel_.InComm(to),
                            channel_.tag, channel_.comm, &requests_.back());
  }
  return Status::Ok();
}

Status Exchange::Receive(int from, void* data, std::size_t bytes) {
  char* to = static_cast<char*>(data);
  for (std::size_t done = 0; done < bytes; done += longest_) {
    const int piece = static_cast<int>(std::min(longest_, bytes - done));
    receives_.push_back(requests_.size());
    requests_.push_back(MPI_REQUEST_NULL);
    HVD_MPI_RETURN_IF_ERROR(MPI_Irecv, to + done, piece, MPI_BYTE, channel_.InComm(from),
                            channel_.tag, channel_.comm, &requests_.back());
  }
  return Status::Ok();
}

Status Exchange::Finish() {
  const Clock& clock = Clock::Real();
  const TimePoint start = clock.Now();
  TimePoint next_look = start + kBetweenLooks;
  Duration pause = kFirstPause;
  while (true) {
    int done = 0;
    HVD_MPI_RETURN_IF_ERROR(MPI_Testall, static_cast<int>(requests_.size()), requests_.data(),
                            &done, MPI_STATUSES_IGNORE);
    if (done != 0) break;
    const TimePoint now = clock.Now();
    if (now >= next_look) {
      HVD_RETURN_IF_ERROR(context_.Interrupted());
      next_look = now + kBetweenLooks;
    }
    if (now - start < kSpin) {
      sched_yield();
      continue;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min<Duration>(pause * 2, kLongestPause);
  }
  requests_.clear();
  receives_.clear();
  return Status::Ok();
}

}  // namespace horovod_tf
