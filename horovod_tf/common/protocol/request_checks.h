// The cross-rank checks of one tensor's requests, as one table in the order in which they are made.
#ifndef HOROVOD_TF_COMMON_PROTOCOL_REQUEST_CHECKS_H_
#define HOROVOD_TF_COMMON_PROTOCOL_REQUEST_CHECKS_H_

#include <cstdint>
#include <vector>

#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/protocol/message.h"

namespace horovod_tf {

// `requests` has one request per rank, all with the same name. OK, or FailedPrecondition with the
// tensor, both ranks and both values of the first check that fails. Pure.
//
// Order: data type; kind of collective; allreduce, reducescatter and broadcast: shape; reductions:
// operation, then scale factors; allgather, alltoall and reducescatter: not a scalar; allgather and
// alltoall: number of dimensions, dimensions from 1 on; alltoall: number of splits; broadcast: root
// rank; CPU or GPU.
Status CheckRequests(const std::vector<Request>& requests);

// The same where some ranks are absent. `requests` has one per rank, of which those of the absent
// ones (increasing, not all) are looked at by nobody. On success `definition` is what the others
// amount to: the absent ranks bring no rows to it. A root that is absent is an error.
Status AgreeWithout(const std::vector<std::uint32_t>& absent, std::vector<Request> requests,
                    TensorDefinition* definition);

// "ALLREDUCE of float32, shape [2], Sum, ..., on CPU": everything but the name, for error texts.
// REQUIRES: `request` is valid.
std::string Describe(const Request& request);

// The definition that checked requests amount to. REQUIRES: CheckRequests(requests).ok().
TensorDefinition Define(const std::vector<Request>& requests);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_PROTOCOL_REQUEST_CHECKS_H_
