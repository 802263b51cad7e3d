// AbstractAddress: a socket's name that is nowhere in the file system and dies with its owner.
#ifndef HOROVOD_TF_COMMON_SHM_ABSTRACT_ADDRESS_H_
#define HOROVOD_TF_COMMON_SHM_ABSTRACT_ADDRESS_H_

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

namespace horovod_tf {

// A name that is longer than the system takes (107 bytes) is cut off.
//
// Thread rule: constant after construction.
struct AbstractAddress {
  explicit AbstractAddress(const std::string& name) {
    unix.sun_family = AF_UNIX;
    const std::size_t bytes = std::min(name.size(), sizeof(unix.sun_path) - 1);
    // A zero before it makes it abstract.
    std::memcpy(unix.sun_path + 1, name.data(), bytes);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  }
  const sockaddr* get() const {
    return static_cast<const sockaddr*>(static_cast<const void*>(&unix));
  }

  sockaddr_un unix{};
  socklen_t length = 0;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_SHM_ABSTRACT_ADDRESS_H_
