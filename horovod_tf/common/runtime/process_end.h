// What is left to do when the process ends.
#ifndef HOROVOD_TF_COMMON_RUNTIME_PROCESS_END_H_
#define HOROVOD_TF_COMMON_RUNTIME_PROCESS_END_H_

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/export.h"

namespace horovod_tf {

// To be called once, after ProcessShutdown. When the process calls exit(), by which time its status
// is known, whatever it ended by: with status 0 it calls ProcessFinalize, which waits for the other
// ranks. With another it does not, so that the launcher ends the job; `last_word` long the others
// have time to say what they have been told.
HVD_EXPORT Status FinalizeWhenProcessEnds(Duration last_word);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_PROCESS_END_H_
