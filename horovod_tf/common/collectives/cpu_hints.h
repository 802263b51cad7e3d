// What a processor can be told beyond the language: that a loop waits.
#ifndef HOROVOD_TF_COMMON_COLLECTIVES_CPU_HINTS_H_
#define HOROVOD_TF_COMMON_COLLECTIVES_CPU_HINTS_H_

namespace horovod_tf {

// Once per turn of a loop that waits for memory to change: leaves the core's resources to its other
// thread for some ten nanoseconds.
void PauseSpinning();

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_COLLECTIVES_CPU_HINTS_H_
