// StartProgress: until when a start may take, and where it is. For whoever waits for a start that
// may be stuck in a call that nothing interrupts.
#ifndef HOROVOD_TF_COMMON_RUNTIME_START_PROGRESS_H_
#define HOROVOD_TF_COMMON_RUNTIME_START_PROGRESS_H_

#include <string>
#include <string_view>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/mutex.h"

namespace horovod_tf {

// Thread rule: safe for use from any thread.
class StartProgress {
 public:
  explicit StartProgress(TimePoint deadline) : deadline_(deadline) {}

  // By the real clock. Whoever starts gives up then with DeadlineExceeded, wherever it can.
  TimePoint deadline() const { return deadline_; }

  // The start goes on to this: "MPI_Init_thread".
  void Enter(std::string_view step);
  // "Open MPI v4.1.8"
  void Use(std::string_view mpi_library);
  // "MPI_Init_thread (Open MPI v4.1.8)"
  std::string Describe() const;

 private:
  const TimePoint deadline_;
  mutable Mutex mutex_;
  std::string step_ HVD_GUARDED_BY(mutex_) = "its first steps";
  std::string library_ HVD_GUARDED_BY(mutex_);
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_START_PROGRESS_H_
