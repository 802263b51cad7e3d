// HVD_CHECK: invariants of our own code, checked in every build. What users, peers or the
// environment give us is never checked by it; that is validated into a Status.
#ifndef HOROVOD_TF_COMMON_BASE_CHECK_H_
#define HOROVOD_TF_COMMON_BASE_CHECK_H_

#include <string_view>

namespace horovod_tf {

// Prints where and what to stderr and aborts the process.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              std::string_view message);

}  // namespace horovod_tf

#define HVD_CHECK(condition, message)                                       \
  do {                                                                      \
    if (!(condition)) {                                                     \
      ::horovod_tf::CheckFailed(__FILE__, __LINE__, #condition, (message)); \
    }                                                                       \
  } while (false)

#endif  // HOROVOD_TF_COMMON_BASE_CHECK_H_
