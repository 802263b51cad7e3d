#include "horovod_tf/common/runtime/process_sets.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <numeric>
#include <set>
#include <utility>

#include "horovod_tf/common/base/logging.h"
#include "horovod_tf/common/runtime/guest.h"
#include "horovod_tf/common/runtime/in_flight.h"
#include "horovod_tf/common/runtime/job_exchange.h"

namespace horovod_tf {
namespace {

// "[0, 2]"
std::string ListText(const std::vector<int>& ranks) {
  std::string text = "[";
  for (const int rank : ranks) {
    text += (text.size() == 1 ? "" : ", ") + std::to_string(rank);
  }
  return text + "]";
}

enum class SetState { kStarting, kReady, kRemoved };

// What is known of a set for as long as anything speaks of it: its tensors may end after it has
// gone.
struct SetFacts {
  std::string name;  // "process set 1 [0, 2]"
  std::atomic<SetState> state{SetState::kStarting};
  std::shared_ptr<JobEnd> end;

  // For texts that speak of its ranks.
  std::string Described() const { return name + ", whose ranks are counted from 0 here"; }

  // What a tensor of the set is told instead of `status`.
  Status Told(const Status& status) const {
    if (state.load() == SetState::kRemoved) {
      return Status::Aborted(name + " was removed: Process set has been removed");
    }
    HVD_RETURN_IF_ERROR(end->why());
    return status.WithContext(Described());
  }
};

std::vector<int> Counted(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Its rank there; -1: it is none of them.
int PlaceIn(const std::vector<int>& ranks, int rank) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

// A set's runtime has no timeline, and its thread is not bound: HOROVOD_THREAD_AFFINITY names one
// processor for the job's.
Config ConfigOfSet(Config config) {
  config.timeline_path.clear();
  config.thread_affinity.clear();
  return config;
}

}  // namespace

struct ProcessSets::Set {
  ProcessSetView view;
  std::shared_ptr<SetFacts> facts;
  std::unique_ptr<Runtime> runtime;  // null: this rank is no member

  // For the peers, and what is in flight here.
  Status Close(std::string_view reason) {
    facts->end->Leave(view.id);
    return runtime == nullptr ? Status::Ok() : runtime->Stop(reason);
  }
};

// While it lives, no other thread adds or removes a set. Not a lock, as peers are waited for.
class ProcessSets::Change {
 public:
  explicit Change(ProcessSets& sets) : sets_(sets) {
    MutexLock lock(sets_.mutex_);
    while (sets_.changing_) sets_.changed_.Wait(sets_.mutex_);
    sets_.changing_ = true;
  }
  ~Change() {
    MutexLock lock(sets_.mutex_);
    sets_.changing_ = false;
    sets_.changed_.NotifyAll();
  }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

 private:
  ProcessSets& sets_;
};

ProcessSets::ProcessSets(Runtime& job, ProcessSetsOptions options)
    : job_(job), options_(std::move(options)) {}

ProcessSets::~ProcessSets() {
  // What became of them has been told to their tensors.
  const Status stopped = Stop("its job was destroyed");
}

Status ProcessSets::Add(const std::vector<int>& ranks, int* id) {
  if (OnGuestThread()) {
    return Status::FailedPrecondition(
        "a process set cannot be added from a completion's callback: it waits for other ranks");
  }
  const Change change(*this);
  HVD_RETURN_IF_ERROR(Agree("adds the ranks " + ListText(ranks)));
  HVD_RETURN_IF_ERROR(CheckNew(ranks));
  const auto set = std::make_shared<Set>();
  {
    MutexLock lock(mutex_);
    // Never used again in this job: what still has the id of a removed set must not reach another.
    set->view = {++last_id_, ranks, PlaceIn(ranks, job_.topology().rank)};
  }
  set->facts = std::make_shared<SetFacts>();
  set->facts->name = "process set " + std::to_string(set->view.id) + " " + ListText(ranks);
  set->facts->end = options_.end;
  const Status opened = Open(*set);
  if (!opened.ok()) {
    // It has never been there; what became of it is in `opened`.
    const Status closed = set->Close("it could not be made");
    return opened.WithContext(set->facts->name + " could not be made");
  }
  *id = set->view.id;
  MutexLock lock(mutex_);
  sets_.emplace(*id, set);
  return Status::Ok();
}

Status ProcessSets::Remove(int id) {
  if (OnGuestThread()) {
    return Status::FailedPrecondition(
        "a process set cannot be removed from a completion's callback: it waits for other ranks");
  }
  const Change change(*this);
  HVD_RETURN_IF_ERROR(Agree("removes process set " + std::to_string(id)));
  SetPtr set = FindSet(id);
  HVD_RETURN_IF_ERROR(set == nullptr ? Refusal(id, nullptr) : Status::Ok());
  set->facts->state = SetState::kRemoved;
  {
    MutexLock lock(mutex_);
    sets_.erase(id);
  }
  MembersExchange exchange(job_, Counted(job_.topology().size));
  // Not before all know that this end is a removal.
  const Status known = exchange.Conclude(Status::Ok());
  const Status closed = set->Close("it was removed");
  set.reset();
  HVD_RETURN_IF_ERROR(known);
  // Nothing of it is left anywhere when the first rank returns.
  return exchange.Conclude(closed);
}

// OK if all ranks wish the same.
Status ProcessSets::Agree(const std::string& wish) {
  std::vector<std::string> all;
  HVD_RETURN_IF_ERROR(GatherInJob(job_, wish, &all));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    return Status::InvalidArgument("ranks do not agree on process sets: rank 0 " + all[0] +
                                   ", and rank " + std::to_string(rank) + " " + all[rank]);
  }
  return Status::Ok();
}

// As all ranks find it, since all ask for the same.
Status ProcessSets::CheckNew(const std::vector<int>& ranks) const {
  const std::string text = ListText(ranks);
  const int size = job_.topology().size;
  if (ranks.empty()) return Status::InvalidArgument("a process set needs one rank at least");
  if (std::set<int>(ranks.begin(), ranks.end()).size() < ranks.size()) {
    return Status::InvalidArgument("a rank is twice in the process set " + text);
  }
  for (const int rank : ranks) {
    if (rank >= 0 && rank < size) continue;
    return Status::InvalidArgument("there is no rank " + std::to_string(rank) +
                                   " for the process set " + text + ": the job has ranks 0 to " +
                                   std::to_string(size - 1));
  }
  for (const ProcessSetView& it : List()) {
    if (it.ranks != ranks) continue;
    return Status::InvalidArgument("Attempted to add a duplicate process set: " + text +
                                   " is process set " + std::to_string(it.id) + " already");
  }
  return Status::Ok();
}

// All ranks together. The members make the set, and the others come along.
Status ProcessSets::Open(Set& set) {
  MembersExchange exchange(job_, set.view.ranks);
  const bool member = set.view.rank >= 0;
  HVD_RETURN_IF_ERROR(exchange.Conclude(member ? MakeMember(set, exchange) : Status::Ok()));
  HVD_RETURN_IF_ERROR(exchange.Conclude(member ? set.runtime->Start() : Status::Ok()));
  set.facts->state = SetState::kReady;
  return Status::Ok();
}

// An exception is told to the others as every other error.
Status ProcessSets::MakeMember(Set& set, RankExchange& exchange) {
  try {
    return MakeRuntime(set, exchange);
  } catch (const std::exception& e) {
    return Status::Internal(std::string("it met an exception: ") + e.what());
  }
}

// Everything but the meeting of the runtimes.
Status ProcessSets::MakeRuntime(Set& set, RankExchange& exchange) {
  World world;
  HVD_RETURN_IF_ERROR(
      options_.assemble({set.view.id, set.view.ranks, set.view.rank}, exchange, &world));
  RuntimeOptions options;
  options.config = ConfigOfSet(options_.config);
  options.process_set = set.facts->name;
  options.logger = std::make_shared<Logger>(options.config.log_level, options.config.log_hide_time);
  options.logger->set_rank(job_.topology().rank);
  options.logger->set_part(set.facts->Described());
  options.transport = std::move(world.transport);
  options.backends = std::move(world.backends);
  options.on_end = [facts = set.facts, id = set.view.id](const Status& why, bool failed) {
    // A set that could not be made is no end of the job.
    if (facts->state.load() != SetState::kReady) return;
    facts->end->Ended(id, why.WithContext(facts->name), failed);
  };
  set.runtime = std::make_unique<Runtime>(std::move(options));
  options_.end->Join(set.view.id, set.runtime->Ender());
  return Status::Ok();
}

std::vector<ProcessSets::SetPtr> ProcessSets::Members() const {
  MutexLock lock(mutex_);
  std::vector<SetPtr> members;
  for (const auto& [id, set] : sets_) {
    if (set->runtime != nullptr) members.push_back(set);
  }
  return members;
}

ProcessSets::SetPtr ProcessSets::FindSet(int id) const {
  MutexLock lock(mutex_);
  const auto found = sets_.find(id);
  return found == sets_.end() ? nullptr : found->second;
}

std::vector<ProcessSetView> ProcessSets::List() const {
  const Topology& topology = job_.topology();
  std::vector<ProcessSetView> views = {{kWholeJob, Counted(topology.size), topology.rank}};
  MutexLock lock(mutex_);
  for (const auto& [id, set] : sets_) views.push_back(set->view);
  return views;
}

// Why nothing may be submitted to the set; `set` is null if there is none.
Status ProcessSets::Refusal(int id, const Set* set) const {
  HVD_RETURN_IF_ERROR(job_.Refusal());
  const std::string number = std::to_string(id);
  if (set == nullptr) {
    return Status::InvalidArgument(
        id == kWholeJob ? "process set 0, of all ranks, cannot be removed"
                        : "process set " + number +
                              ": Process set provided does not exist, or has not been registered. "
                              "A process set does not exist or has not been registered before "
                              "hvd.add_process_set, nor after hvd.remove_process_set");
  }
  if (set->runtime != nullptr) return Status::Ok();
  return Status::InvalidArgument("rank " + std::to_string(job_.topology().rank) +
                                 " is not a member of the provided process set " + number + " " +
                                 ListText(set->view.ranks));
}

void ProcessSets::Enqueue(int id, std::vector<TensorEntry> group) {
  const SetPtr set = FindSet(id);
  Status refusal = Refusal(id, set.get());
  for (TensorEntry& entry : group) {
    if (!refusal.ok()) break;
    if (entry.request.kind != CollectiveKind::kBroadcast) continue;
    const int root = entry.request.root_rank;
    entry.request.root_rank = PlaceIn(set->view.ranks, root);
    if (entry.request.root_rank >= 0) continue;
    refusal = Status::InvalidArgument(
        "broadcast received invalid root rank " + std::to_string(root) +
        " for provided process set " + std::to_string(id) + " " + ListText(set->view.ranks) +
        ": the root is given as a rank of the job, and must be a member");
  }
  if (!refusal.ok()) return FinishAll(std::move(group), refusal);
  for (TensorEntry& entry : group) {
    if (!entry.done.pending()) continue;
    entry.done.Translate(
        [facts = set->facts](const Status& status) { return facts->Told(status); });
  }
  set->runtime->Enqueue(std::move(group));
}

void ProcessSets::Withdraw(std::uint64_t ticket, std::string_view reason) {
  for (const SetPtr& set : Members()) set->runtime->Withdraw(ticket, reason);
}

void ProcessSets::Interrupt(std::string_view reason) {
  for (const SetPtr& set : Members()) set->runtime->Interrupt(reason);
}

std::string ProcessSets::Describe() {
  std::string text;
  for (const SetPtr& set : Members()) text += "\n" + set->runtime->Describe();
  return text;
}

Status ProcessSets::Stop(std::string_view reason) {
  const std::vector<SetPtr> members = Members();
  // All before the first is waited for.
  for (const SetPtr& set : members) set->runtime->AskToStop(reason);
  Status first;
  for (const SetPtr& set : members) {
    const Status stopped = set->runtime->Stop(reason);
    if (first.ok()) first = stopped.WithContext(set->facts->name);
  }
  return first;
}

}  // namespace horovod_tf
