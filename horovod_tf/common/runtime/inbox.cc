#include "horovod_tf/common/runtime/inbox.h"

#include <string>

namespace horovod_tf {

Status TakeMessage(Transport& transport, Received* received, bool* got) {
  Incoming incoming;
  HVD_RETURN_IF_ERROR(transport.Receive(&incoming, got));
  if (!*got) return Status::Ok();
  received->from = incoming.from;
  std::uint32_t process_set = kGlobalProcessSet;
  Status status = DecodeMessage(incoming.bytes, DecodeLimits{transport.size()}, &received->message,
                                &process_set);
  if (status.ok() && process_set != kGlobalProcessSet) {
    status = Status::InvalidArgument("it is for process set " + std::to_string(process_set) +
                                     ", which does not exist here");
  }
  return status.WithContext("rank " + std::to_string(transport.rank()) +
                            " cannot read a message from rank " + std::to_string(incoming.from));
}

Status UnexpectedMessage(const Received& received, int rank) {
  return Status::Internal("rank " + std::to_string(rank) + " did not expect a message of type " +
                          std::string(MessageTypeName(received.message)) + " from rank " +
                          std::to_string(received.from) + " now");
}

}  // namespace horovod_tf
