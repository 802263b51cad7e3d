// How a descriptor gets from one process to others: over a socket whose name is nowhere in the file
// system and dies with its owner.
#ifndef HOROVOD_TF_COMMON_SHM_SHM_SOCKET_H_
#define HOROVOD_TF_COMMON_SHM_SHM_SOCKET_H_

#include <string>

#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/shm/unique_fd.h"

namespace horovod_tf {

// Nothing here waits: whoever takes something knows from elsewhere that it has been sent. Peers of
// another user are refused. Errors have the system's reason.
//
// Thread rule: free functions, safe from any thread.

// A socket with a random name that others can connect to.
Status ListenForRanks(int most, UniqueFd* listener, std::string* name);
Status ConnectToRank(const std::string& name, UniqueFd* connection);
// To each of the `count` processes that have connected.
Status SendDescriptorToAll(const UniqueFd& listener, int count, const UniqueFd& descriptor);
Status ReceiveDescriptor(const UniqueFd& connection, UniqueFd* descriptor);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_SHM_SHM_SOCKET_H_
