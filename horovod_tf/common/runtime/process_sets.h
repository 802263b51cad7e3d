// ProcessSets: the process sets of this process's job: which there are, and one more Runtime for
// each that this rank is a member of. See docs/process_sets.md.
#ifndef HOROVOD_TF_COMMON_RUNTIME_PROCESS_SETS_H_
#define HOROVOD_TF_COMMON_RUNTIME_PROCESS_SETS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "horovod_tf/common/base/config.h"
#include "horovod_tf/common/base/mutex.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/runtime/assemble.h"
#include "horovod_tf/common/runtime/job_end.h"
#include "horovod_tf/common/runtime/runtime.h"

namespace horovod_tf {

inline constexpr int kWholeJob = 0;  // the id of the set of all ranks

// One as its users see it.
struct ProcessSetView {
  int id = 0;
  std::vector<int> ranks;  // of the job, in their order in the set
  int rank = -1;           // of this process, in the set; -1: it is no member
};

struct ProcessSetsOptions {
  Config config;
  std::shared_ptr<JobEnd> end;  // the job's runtime has joined it
  // Makes what a set's runtime works with. The members call it together.
  std::function<Status(const RankGroup& group, RankExchange& exchange, World* world)> assemble;
};

// Thread rule: any thread. The job's runtime outlives it.
class ProcessSets {
 public:
  // REQUIRES: what Add, Remove and Enqueue are called for has started: the job.
  ProcessSets(Runtime& job, ProcessSetsOptions options);
  // Stops all of them.
  ~ProcessSets();
  ProcessSets(const ProcessSets&) = delete;
  ProcessSets& operator=(const ProcessSets&) = delete;

  // All ranks of the job call it with the same ranks, in the order that they have in the set. All
  // get the same id, or the same error: InvalidArgument if the lists differ (both are named), if
  // one is none of the job's ranks or twice there, or if there is such a set. Waits for all ranks,
  // as a collective does. FailedPrecondition in a completion's callback.
  Status Add(const std::vector<int>& ranks, int* id);
  // The same. What is in flight in the set ends with Aborted. InvalidArgument if there is no such
  // set (nor can the whole job be removed).
  Status Remove(int id);

  // By id, the whole job first.
  std::vector<ProcessSetView> List() const;

  // As Runtime's, for a set other than the whole job. Roots are ranks of the job. InvalidArgument
  // for all if there is no such set, or this rank is no member.
  void Enqueue(int id, std::vector<TensorEntry> group);
  // As Runtime's, for all sets.
  void Withdraw(std::uint64_t ticket, std::string_view reason);
  void Interrupt(std::string_view reason);
  std::string Describe();
  // Stops all sets' runtimes. The first that could not be; OK if all could.
  Status Stop(std::string_view reason);

 private:
  struct Set;
  using SetPtr = std::shared_ptr<Set>;
  class Change;

  std::vector<SetPtr> Members() const;
  SetPtr FindSet(int id) const;
  Status CheckNew(const std::vector<int>& ranks) const;
  Status Agree(const std::string& wish);
  Status Open(Set& set);
  Status MakeMember(Set& set, RankExchange& exchange);
  Status MakeRuntime(Set& set, RankExchange& exchange);
  Status Refusal(int id, const Set* set) const;

  Runtime& job_;
  const ProcessSetsOptions options_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool changing_ HVD_GUARDED_BY(mutex_) = false;  // a thread adds or removes one
  int last_id_ HVD_GUARDED_BY(mutex_) = kWholeJob;
  std::map<int, SetPtr> sets_ HVD_GUARDED_BY(mutex_);
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_PROCESS_SETS_H_
