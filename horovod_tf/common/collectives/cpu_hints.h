// What a processor can be told beyond the language: that a loop waits, that bytes are not needed
// soon.
#ifndef HOROVOD_TF_COMMON_COLLECTIVES_CPU_HINTS_H_
#define HOROVOD_TF_COMMON_COLLECTIVES_CPU_HINTS_H_

#include <cstddef>

namespace horovod_tf {

// Once per turn of a loop that waits for memory to change: leaves the core's resources to its other
// thread for some ten nanoseconds.
void PauseSpinning();

// As memcpy, past the caches where the processor can: for what nobody reads before the caches would
// have lost it anyhow.
void CopyPastCaches(void* to, const void* from, std::size_t bytes);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_COLLECTIVES_CPU_HINTS_H_
