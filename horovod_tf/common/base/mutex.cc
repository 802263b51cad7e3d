#include "horovod_tf/common/base/mutex.h"

namespace horovod_tf {

void CondVar::Wait(Mutex& mutex) {
  std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
  condition_.wait(lock);
  lock.release();  // the caller's MutexLock still owns it
}

void CondVar::WaitUntil(Mutex& mutex, TimePoint deadline) {
  if (deadline == kNever) {
    Wait(mutex);
    return;
  }
  std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
  condition_.wait_until(lock, deadline);
  lock.release();
}

}  // namespace horovod_tf
