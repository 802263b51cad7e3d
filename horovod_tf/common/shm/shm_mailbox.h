// One rank's mailbox: a ring of words in the shared memory, into which all other ranks put messages
// and from which its owner takes them. Nobody waits for anybody. See docs/shared_memory.md.
#ifndef HOROVOD_TF_COMMON_SHM_SHM_MAILBOX_H_
#define HOROVOD_TF_COMMON_SHM_SHM_MAILBOX_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "horovod_tf/common/shm/shm_segment.h"

namespace horovod_tf {

// What is put at once: a message, or a part of one that is longer.
struct Letter {
  static constexpr std::size_t kMostBytes = 2040;

  int from = 0;
  bool last = true;  // of its message
  std::string bytes;
};

// Puts it in, after all that `from` has put there before; false if there is no room: then the owner
// rings everybody when it has taken something. REQUIRES: bytes.size() <= Letter::kMostBytes. Any
// thread, but one at a time for each `from`.
bool PutLetter(ShmMailbox& mailbox, int from, bool last, std::string_view bytes);

// False if there is none. For the owner's driving thread. `*room_wanted`: somebody has found the
// mailbox full since the last time this said so.
bool TakeLetter(ShmMailbox& mailbox, Letter* letter, bool* room_wanted);
bool HasLetter(const ShmMailbox& mailbox);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_SHM_SHM_MAILBOX_H_
