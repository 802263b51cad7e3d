#include "horovod_tf/common/runtime/start_progress.h"

namespace horovod_tf {

void StartProgress::Enter(std::string_view step) {
  MutexLock lock(mutex_);
  step_ = step;
}

void StartProgress::Use(std::string_view mpi_library) {
  MutexLock lock(mutex_);
  library_ = mpi_library;
}

std::string StartProgress::Describe() const {
  MutexLock lock(mutex_);
  return library_.empty() ? step_ : step_ + " (" + library_ + ")";
}

}  // namespace horovod_tf
