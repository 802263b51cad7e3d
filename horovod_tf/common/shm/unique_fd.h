// UniqueFd: a file descriptor that is closed with its owner.
#ifndef HOROVOD_TF_COMMON_SHM_UNIQUE_FD_H_
#define HOROVOD_TF_COMMON_SHM_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace horovod_tf {

// Thread rule: one thread at a time.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd() { Reset(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Reset() {
    if (valid()) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_SHM_UNIQUE_FD_H_
