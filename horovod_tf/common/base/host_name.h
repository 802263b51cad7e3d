// This host's name.
#ifndef HOROVOD_TF_COMMON_BASE_HOST_NAME_H_
#define HOROVOD_TF_COMMON_BASE_HOST_NAME_H_

#include <string>

#include "horovod_tf/common/base/status.h"

namespace horovod_tf {

// Thread rule: safe from any thread.
Status ReadHostName(std::string* host);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_BASE_HOST_NAME_H_
