// MpiGroup: all ranks of an MpiWorld, or some of them (a process set), which then share its
// communicators with the world and tell their messages apart by tags of their own.
//
// Why not communicators of their own: MPI makes one with a call that waits for the others without
// an end, and a few thousand of them are all there can be.
#ifndef HOROVOD_TF_COMMON_MPI_MPI_GROUP_H_
#define HOROVOD_TF_COMMON_MPI_MPI_GROUP_H_

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/mpi/mpi_world.h"
#include "horovod_tf/common/runtime/assemble.h"

namespace horovod_tf {

// Where messages between the ranks of a group travel.
struct MpiChannel {
  MPI_Comm comm = MPI_COMM_NULL;
  int tag = 0;
  const std::vector<int>* ranks = nullptr;  // in `comm`, by rank in the group; outlives the channel

  int InComm(int rank) const { return (*ranks)[static_cast<std::size_t>(rank)]; }
};

// Thread rule: constant after construction; MarkFailed is for any thread.
class MpiGroup {
 public:
  // All of them.
  explicit MpiGroup(std::shared_ptr<MpiWorld> world);
  // Some. ResourceExhausted if this MPI has no tag for it. Does not call MPI.
  static Status Make(std::shared_ptr<MpiWorld> world, const RankGroup& some,
                     std::shared_ptr<MpiGroup>* group);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::string& host() const { return world_->host(); }
  MpiChannel control() const { return {world_->control(), control_tag_, &ranks_}; }  // messages
  MpiChannel data() const { return {world_->data(), data_tag_, &ranks_}; }  // tensors' bytes
  // In the group, of a rank in the communicators.
  int RankOf(int in_comm) const { return places_[static_cast<std::size_t>(in_comm)]; }
  void MarkFailed() { world_->MarkFailed(); }

 private:
  MpiGroup(std::shared_ptr<MpiWorld> world, std::vector<int> ranks, int rank, int control_tag,
           int data_tag);

  const std::shared_ptr<MpiWorld> world_;
  const std::vector<int> ranks_;
  std::vector<int> places_;
  const int rank_;
  const int control_tag_;
  const int data_tag_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_MPI_MPI_GROUP_H_
