#include "horovod_tf/common/base/process_id.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

namespace horovod_tf {
namespace {

std::atomic<pid_t> g_id{0};

void NoteChild() { g_id.store(getpid(), std::memory_order_relaxed); }

bool WatchForks() {
  if (pthread_atfork(nullptr, nullptr, NoteChild) != 0) return false;  // no memory
  g_id.store(getpid(), std::memory_order_relaxed);
  return true;
}

}  // namespace

pid_t ProcessId() {
  static const bool watched = WatchForks();
  return watched ? g_id.load(std::memory_order_relaxed) : getpid();
}

}  // namespace horovod_tf
