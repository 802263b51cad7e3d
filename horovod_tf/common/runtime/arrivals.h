// Arrivals: which ranks of this host are on their way through init(), known without MPI, which can
// be asked for nothing before MPI_Init_thread has returned, and returns from it only when all ranks
// have come. For the text of a start that did not end in time.
#ifndef HOROVOD_TF_COMMON_RUNTIME_ARRIVALS_H_
#define HOROVOD_TF_COMMON_RUNTIME_ARRIVALS_H_

#include <string>
#include <vector>

#include "horovod_tf/common/base/config.h"
#include "horovod_tf/common/shm/unique_fd.h"

namespace horovod_tf {

// A rank that has arrived owns a socket whose name says user, job and rank. Nobody talks over it:
// it is there as long as its owner, and leaves no file behind.
//
// Thread rule: one thread at a time.
class Arrivals {
 public:
  // Leaves word that this rank has arrived, if its launcher says which rank of which job it is. A
  // failure to do so is none of the start: the text then says less.
  explicit Arrivals(const Config& config);

  // Looks who is here. Who was seen once and is not here later has ended.
  void Look();
  // As of the last Look: "1 of 2 ranks arrived: missing rank 1. Arrived on host a: rank 0". Of
  // other hosts' ranks nothing is known. Empty if the launcher does not say enough.
  std::string Describe() const;

 private:
  std::string NameOf(int rank) const;

  const int size_;
  const int local_size_;
  const int rank_;
  std::string job_;  // empty: unknown
  UniqueFd own_;
  UniqueFd probe_;
  std::vector<bool> here_;  // by rank
  std::vector<bool> seen_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_ARRIVALS_H_
