#include "horovod_tf/common/shm/shm_futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <ctime>

namespace horovod_tf {

// Not FUTEX_PRIVATE: the other ranks are other processes.
void FutexWait(std::atomic<std::uint32_t>& word, std::uint32_t while_it_is, Duration limit) {
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(limit).count();
  const timespec timeout{static_cast<time_t>(nanoseconds / 1000000000),
                         static_cast<long>(nanoseconds % 1000000000)};
  syscall(SYS_futex, &word, FUTEX_WAIT, while_it_is, &timeout, nullptr, 0);
}

void FutexWakeAll(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace horovod_tf
