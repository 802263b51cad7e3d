#include "horovod_tf/common/shm/shm_socket.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <utility>

#include "horovod_tf/common/shm/abstract_address.h"

namespace horovod_tf {
namespace {

// Others may connect too, by chance or not: they must not take a rank's place in the queue.
constexpr int kStrangers = 16;

Status FromErrno(const std::string& call, int error) {
  return Status::Unavailable(call + ": " + std::generic_category().message(error));
}

Status RandomName(std::string* name) {
  std::array<std::uint8_t, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return FromErrno("getrandom", errno);
  }
  *name = "horovod_tf-";
  for (std::uint8_t byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    *name += kDigits[byte >> 4];
    *name += kDigits[byte & 15];
  }
  return Status::Ok();
}

Status OpenSocket(UniqueFd* made) {
  *made = UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return made->valid() ? Status::Ok() : FromErrno("socket(AF_UNIX)", errno);
}

Status CheckPeer(const UniqueFd& connection) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return FromErrno("getsockopt(SO_PEERCRED)", errno);
  }
  if (peer.uid == geteuid()) return Status::Ok();
  return Status::FailedPrecondition("the peer is of user " + std::to_string(peer.uid) +
                                    ", and this process of " + std::to_string(geteuid()));
}

// One byte, since a descriptor does not travel alone.
struct Parcel {
  Parcel() {
    part.iov_base = &byte;
    part.iov_len = 1;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  Parcel(const Parcel&) = delete;
  Parcel& operator=(const Parcel&) = delete;

  char byte = 'm';
  iovec part{};
  msghdr message{};
  alignas(cmsghdr) unsigned char control[CMSG_SPACE(sizeof(int))] = {};
};

Status SendDescriptor(const UniqueFd& connection, const UniqueFd& descriptor) {
  Parcel parcel;
  cmsghdr* const header = CMSG_FIRSTHDR(&parcel.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = descriptor.get();
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  if (sendmsg(connection.get(), &parcel.message, MSG_NOSIGNAL) < 0) {
    return FromErrno("sendmsg(SCM_RIGHTS)", errno);
  }
  return Status::Ok();
}

}  // namespace

Status ListenForRanks(int most, UniqueFd* listener, std::string* name) {
  UniqueFd made;
  std::string random;
  HVD_RETURN_IF_ERROR(RandomName(&random));
  HVD_RETURN_IF_ERROR(OpenSocket(&made));
  const AbstractAddress address(random);
  if (bind(made.get(), address.get(), address.length) != 0) return FromErrno("bind", errno);
  if (listen(made.get(), most + kStrangers) != 0) return FromErrno("listen", errno);
  *listener = std::move(made);
  *name = std::move(random);
  return Status::Ok();
}

Status ConnectToRank(const std::string& name, UniqueFd* connection) {
  UniqueFd made;
  HVD_RETURN_IF_ERROR(OpenSocket(&made));
  const AbstractAddress address(name);
  if (connect(made.get(), address.get(), address.length) != 0) {
    return FromErrno("connecting to rank 0's socket", errno);
  }
  HVD_RETURN_IF_ERROR(CheckPeer(made));
  *connection = std::move(made);
  return Status::Ok();
}

Status SendDescriptorToAll(const UniqueFd& listener, int count, const UniqueFd& descriptor) {
  for (int sent = 0; sent < count;) {
    const UniqueFd connection(
        accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.valid()) return FromErrno("accept", errno);
    if (!CheckPeer(connection).ok()) continue;
    HVD_RETURN_IF_ERROR(SendDescriptor(connection, descriptor));
    ++sent;
  }
  return Status::Ok();
}

Status ReceiveDescriptor(const UniqueFd& connection, UniqueFd* descriptor) {
  Parcel parcel;
  if (recvmsg(connection.get(), &parcel.message, MSG_CMSG_CLOEXEC) <= 0) {
    return FromErrno("recvmsg(SCM_RIGHTS)", errno);
  }
  const cmsghdr* const header = CMSG_FIRSTHDR(&parcel.message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int))) {
    return Status::Unavailable("rank 0 sent no descriptor; the limit of open files may be reached");
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  *descriptor = UniqueFd(fd);
  return Status::Ok();
}

}  // namespace horovod_tf
