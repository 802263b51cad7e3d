#include "horovod_tf/common/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace horovod_tf {

void CheckFailed(const char* file, int line, const char* condition, std::string_view message) {
  std::fprintf(stderr, "horovod_tf: %s:%d: invariant broken: %s (%.*s)\n", file, line, condition,
               static_cast<int>(message.size()), message.data());
  std::fflush(stderr);
  std::abort();
}

}  // namespace horovod_tf
