// ExplainNumbers: what a stall may come from that only names show. TensorFlow makes names unique by
// numbers ("x", "x_1"), in the order in which a graph is built; ranks that build different things
// first then wait for each other under different names.
#ifndef HOROVOD_TF_COMMON_PROTOCOL_NUMBERED_NAMES_H_
#define HOROVOD_TF_COMMON_PROTOCOL_NUMBERED_NAMES_H_

#include <string>
#include <vector>

#include "horovod_tf/common/protocol/stall_monitor.h"

namespace horovod_tf {

// A line for each pair of tensors for which different ranks wait, which are equal in all that is
// compared, and whose names differ in such numbers only; but not for more than a few. Each begins
// with a newline. Pure.
std::string ExplainNumbers(const std::vector<const PendingTensor*>& pending);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_PROTOCOL_NUMBERED_NAMES_H_
