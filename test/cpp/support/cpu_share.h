// What a wait costs.
#ifndef TEST_CPP_SUPPORT_CPU_SHARE_H_
#define TEST_CPP_SUPPORT_CPU_SHARE_H_

#include <time.h>

#include <chrono>

namespace horovod_tf {

// CPU time over time since construction: 1 is a core that is never idle. A share, and not seconds,
// since a loaded machine and a sanitizer lengthen both. Limits on it are generous: what they must
// tell from each other is a sleep and a spin.
class CpuShare {
 public:
  // CLOCK_THREAD_CPUTIME_ID (used on the thread that made it) or CLOCK_PROCESS_CPUTIME_ID.
  explicit CpuShare(clockid_t clock) : clock_(clock), cpu_(Cpu()) {}

  double Value() const {
    const std::chrono::duration<double> real = std::chrono::steady_clock::now() - start_;
    return (Cpu() - cpu_) / real.count();
  }

 private:
  double Cpu() const {
    timespec time{};
    clock_gettime(clock_, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  const clockid_t clock_;
  const double cpu_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace horovod_tf

#endif  // TEST_CPP_SUPPORT_CPU_SHARE_H_
