// Mutex, MutexLock and CondVar: std's, with the annotations that let clang prove who holds what.
#ifndef HOROVOD_TF_COMMON_BASE_MUTEX_H_
#define HOROVOD_TF_COMMON_BASE_MUTEX_H_

#include <condition_variable>
#include <mutex>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/thread_annotations.h"

namespace horovod_tf {

class HVD_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() HVD_ACQUIRE() { mutex_.lock(); }
  void Unlock() HVD_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class HVD_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) HVD_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() HVD_RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits may return spuriously: callers loop on their condition.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void Wait(Mutex& mutex) HVD_REQUIRES(mutex);
  // `deadline` is a time of the real steady clock; kNever waits without one. Code whose time may be
  // a test's waits through Clock::WaitUntil instead.
  void WaitUntil(Mutex& mutex, TimePoint deadline) HVD_REQUIRES(mutex);
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_BASE_MUTEX_H_
