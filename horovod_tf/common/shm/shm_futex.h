// Sleeping on a word that several processes share.
#ifndef HOROVOD_TF_COMMON_SHM_SHM_FUTEX_H_
#define HOROVOD_TF_COMMON_SHM_SHM_FUTEX_H_

#include <atomic>
#include <cstdint>

#include "horovod_tf/common/base/clock.h"

namespace horovod_tf {

// Until somebody calls FutexWakeAll, or `limit` is over; returns at once if the word is not
// `while_it_is`. May return early: the caller looks at the word again. Any thread.
void FutexWait(std::atomic<std::uint32_t>& word, std::uint32_t while_it_is, Duration limit);
void FutexWakeAll(std::atomic<std::uint32_t>& word);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_SHM_SHM_FUTEX_H_
