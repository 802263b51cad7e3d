#include "horovod_tf/common/transport/transport.h"

namespace horovod_tf {

Status Transport::Broadcast(const std::string& bytes) {
  HVD_RETURN_IF_ERROR(health());  // also where there is nobody to send to
  for (int to = 0; to < size(); ++to) {
    if (to != rank()) HVD_RETURN_IF_ERROR(Send(to, bytes));
  }
  return Status::Ok();
}

}  // namespace horovod_tf
