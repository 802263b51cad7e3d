// How the ranks of a running job tell each other a few bytes: as one of its ordinary collectives,
// which ends in time and says who is missing as every other.
#ifndef HOROVOD_TF_COMMON_RUNTIME_JOB_EXCHANGE_H_
#define HOROVOD_TF_COMMON_RUNTIME_JOB_EXCHANGE_H_

#include <string>
#include <vector>

#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/runtime/runtime.h"
#include "horovod_tf/common/shm/rank_exchange.h"

namespace horovod_tf {

// Everybody's bytes to everybody, by rank. All ranks of the job call it, one call at a time. An
// error is one on all ranks: FailedPrecondition if some have joined, which bring nothing. REQUIRES:
// not on a guest's thread (guest.h).
Status GatherInJob(Runtime& job, const std::string& mine, std::vector<std::string>* all);

// The steps that some ranks of a job, the members, take together before they are a process set.
// The other ranks come along: every gathering is one of the job, where whoever is no member has
// nothing to say.
//
// Thread rule: one thread. The job outlives it.
class MembersExchange final : public RankExchange {
 public:
  // `members` are ranks of the job.
  MembersExchange(Runtime& job, std::vector<int> members);

  // Among the members; -1 if this rank is none.
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  // For members. Cancelled if one of the others has given up.
  Status Gather(const std::string& mine, std::vector<std::string>* all) override;

  // All ranks: goes along until every member has said how it went, and returns the first of them
  // that is not OK, the same on all ranks. Who is no member says OK.
  Status Conclude(const Status& mine);

 private:
  struct Said;
  Status Round(const Said& mine, std::vector<Said>* said);

  Runtime& job_;
  const std::vector<int> members_;
  int rank_ = -1;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_JOB_EXCHANGE_H_
