// TakeMessage: the next message of an endpoint, decoded. Shared by the opening and the control
// loop.
#ifndef HOROVOD_TF_COMMON_RUNTIME_INBOX_H_
#define HOROVOD_TF_COMMON_RUNTIME_INBOX_H_

#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/protocol/message.h"
#include "horovod_tf/common/transport/transport.h"

namespace horovod_tf {

struct Received {
  int from = 0;
  Message message;
};

// As Transport::Receive. An error also for bytes that are no message, or not for the process set of
// all ranks; the text names the sender. For the thread that drives the endpoint.
Status TakeMessage(Transport& transport, Received* received, bool* got);

// What to say of a message that has no place in the conversation now.
Status UnexpectedMessage(const Received& received, int rank);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_INBOX_H_
