// Exchange: point-to-point transfers of tensors' bytes that are started together and waited for
// together, without blocking on a peer that has failed.
#ifndef HOROVOD_TF_COMMON_MPI_P2P_H_
#define HOROVOD_TF_COMMON_MPI_P2P_H_

#include <mpi.h>

#include <cstddef>
#include <vector>

#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/collectives/collective_backend.h"
#include "horovod_tf/common/mpi/mpi_group.h"

namespace horovod_tf {

// MPI counts in int: longer transfers go in pieces.
inline constexpr std::size_t kLongestTransfer = std::size_t{1} << 30;

// Transfers between two ranks match in the order in which both start them; one of no bytes is none.
//
// Thread rule: background thread.
class Exchange {
 public:
  // Ranks are the channel's. `longest` is the longest piece in bytes, the same on all ranks. The
  // context outlives the exchange.
  Exchange(const MpiChannel& channel, RunContext& context, std::size_t longest)
      : channel_(channel), context_(context), longest_(longest) {}
  // REQUIRES: Finish() has returned OK, or the job has failed.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // The buffers must stay until Finish has returned.
  Status Send(int to, const void* data, std::size_t bytes);
  Status Receive(int from, void* data, std::size_t bytes);
  // Returns when everything started is done, or with why the job has failed.
  Status Finish();

 private:
  const MpiChannel channel_;
  RunContext& context_;
  const std::size_t longest_;
  std::vector<MPI_Request> requests_;
  std::vector<std::size_t> receives_;  // which of them receive
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_MPI_P2P_H_
