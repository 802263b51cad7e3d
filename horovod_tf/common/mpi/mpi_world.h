// MpiWorld: MPI itself, as this process uses it: initialised unless somebody has, never finalised
// if somebody else did, with private duplicates of the world communicator, or of one of some of its
// ranks, for our traffic.
#ifndef HOROVOD_TF_COMMON_MPI_MPI_WORLD_H_
#define HOROVOD_TF_COMMON_MPI_MPI_WORLD_H_

#include <mpi.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "horovod_tf/common/base/config.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/runtime/start_progress.h"

namespace horovod_tf {

// Thread rule: made on a thread of the start, which may be left behind, then for the background
// thread; freed on whichever thread ends the runtime, after the background thread has ended.
class MpiWorld {
 public:
  // FailedPrecondition if MPI was finalised before, or was initialised by somebody without letting
  // other threads call it; InvalidArgument if it is not among the configured members, or they are
  // no ranks of MPI's; DeadlineExceeded if not all ranks come until the progress's deadline.
  // Only MPI_Init_thread, if it has to be called, and MPI_Comm_create_group, if there are members,
  // know none.
  static Status Open(const Config& config, StartProgress& progress,
                     std::shared_ptr<MpiWorld>* world);
  // Does not wait for anybody: communicators are freed by the next Open, where all ranks meet, and
  // those of a failed job, whose peers may be gone, not at all.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Equal on ranks of one system that can reach each other without a network, and different
  // otherwise.
  const std::string& host() const { return host_; }
  bool threads_supported() const { return threads_supported_; }
  // "Open MPI v4.1.8", one line.
  const std::string& library() const { return library_; }

  MPI_Comm control() const { return control_; }  // messages
  MPI_Comm data() const { return data_; }        // tensors' bytes
  int highest_tag() const { return highest_tag_; }

  // The communicators are not to be freed (see the destructor), nor MPI to be finalised.
  void MarkFailed();

 private:
  MpiWorld() = default;
  Status Join(const std::vector<int>& members, StartProgress& progress);
  Status FindHost(TimePoint deadline);
  Status FindHighestTag();
  Status FreeLastJob(TimePoint deadline);

  int rank_ = 0;
  int size_ = 1;
  std::string host_;
  std::string library_;
  bool threads_supported_ = false;
  int highest_tag_ = 32767;  // MPI's promise
  std::atomic<bool> failed_{false};
  std::vector<int> members_;  // of MPI's world; empty: all
  int job_ = 0;               // from 1 when it is open
  MPI_Comm control_ = MPI_COMM_NULL;
  MPI_Comm data_ = MPI_COMM_NULL;
};

// MPI_Finalize, if this library has initialised MPI and no job has failed: waiting for peers that
// are gone would take forever. No world may be open.
Status FinalizeMpi();

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_MPI_MPI_WORLD_H_
