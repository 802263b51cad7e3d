#include "horovod_tf/common/base/host_name.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace horovod_tf {

Status ReadHostName(std::string* host) {
  char name[256] = {};
  // The last byte stays zero: a name that was cut off need not end with one.
  if (gethostname(name, sizeof(name) - 1) != 0) {
    return Status::Unknown("cannot learn this host's name: " +
                           std::generic_category().message(errno));
  }
  *host = name;
  return Status::Ok();
}

}  // namespace horovod_tf
