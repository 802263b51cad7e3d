// SetCluster: a LocalCluster whose ranks make process sets, on transports and meetings of their
// own.
#ifndef HOROVOD_TF_TEST_CPP_SUPPORT_SET_CLUSTER_H_
#define HOROVOD_TF_TEST_CPP_SUPPORT_SET_CLUSTER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "horovod_tf/common/collectives/local_backend.h"
#include "horovod_tf/common/runtime/process_sets.h"
#include "horovod_tf/common/transport/local_transport.h"
#include "test/cpp/support/local_cluster.h"

namespace horovod_tf {

// Where the members of a set, threads of this process, find what connects them.
//
// Thread rule: any thread.
class SetHub {
 public:
  Status Assemble(const RankGroup& group, World* made) {
    MutexLock lock(mutex_);
    Place& place = places_[group.id];
    const int size = static_cast<int>(group.ranks.size());
    if (place.meeting == nullptr) {
      place.transports = MakeLocalTransports(OneHost(size));
      place.meeting = MakeLocalMeeting(size);
    }
    made->transport = std::move(place.transports[static_cast<std::size_t>(group.rank)]);
    made->backends.Add(MakeLocalBackend(group.rank, place.meeting));
    return Status::Ok();
  }

 private:
  struct Place {
    std::vector<std::unique_ptr<Transport>> transports;
    decltype(MakeLocalMeeting(1)) meeting;
  };
  Mutex mutex_;
  std::map<int, Place> places_ HVD_GUARDED_BY(mutex_);
};

// Thread rule: as LocalCluster.
class SetCluster {
 public:
  using Assemble =
      std::function<Status(const RankGroup& group, RankExchange& exchange, World* made)>;

  // `before` may fail, or do something more; it is called by every member.
  explicit SetCluster(int ranks, Assemble before = nullptr)
      : ends_(static_cast<std::size_t>(ranks)) {
    for (auto& end : ends_) end = std::make_shared<JobEnd>();
    ClusterOptions options{OneHost(ranks), TestConfig(), {}, {}};
    options.customize = [this](int rank, RuntimeOptions* runtime) {
      runtime->on_end = [end = ends_[static_cast<std::size_t>(rank)]](
                            const Status& why, bool failed) { end->Ended(kWholeJob, why, failed); };
    };
    cluster_ = std::make_unique<LocalCluster>(options);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto& end = ends_[static_cast<std::size_t>(rank)];
      end->Join(kWholeJob, cluster_->rank(rank).Ender());
      sets_.push_back(std::make_unique<ProcessSets>(
          cluster_->rank(rank),
          ProcessSetsOptions{
              TestConfig(), end,
              [this, before](const RankGroup& group, RankExchange& exchange, World* made) {
                if (before) HVD_RETURN_IF_ERROR(before(group, exchange, made));
                return hub_.Assemble(group, made);
              }}));
    }
  }
  ~SetCluster() {
    (void)cluster_->Stop();
    OnEveryRank(cluster_->size(),
                [this](int rank) { sets_[static_cast<std::size_t>(rank)].reset(); });
  }
  SetCluster(const SetCluster&) = delete;
  SetCluster& operator=(const SetCluster&) = delete;

  LocalCluster& job() { return *cluster_; }
  ProcessSets& sets(int rank) { return *sets_[static_cast<std::size_t>(rank)]; }
  JobEnd& end(int rank) { return *ends_[static_cast<std::size_t>(rank)]; }

  // On all ranks; what each got. -1 where it failed.
  std::vector<Status> Add(const std::vector<int>& ranks, int* id) {
    std::vector<int> ids(ends_.size(), -1);
    std::vector<Status> statuses = OnAll(
        [&](int rank) { return sets(rank).Add(ranks, &ids[static_cast<std::size_t>(rank)]); });
    for (const int each : ids) EXPECT_EQ(each, ids[0]);
    *id = ids[0];
    return statuses;
  }
  std::vector<Status> Remove(int id) {
    return OnAll([&](int rank) { return sets(rank).Remove(id); });
  }
  std::vector<Status> OnAll(const std::function<Status(int rank)>& call) {
    std::vector<Status> statuses(ends_.size());
    OnEveryRank(cluster_->size(),
                [&](int rank) { statuses[static_cast<std::size_t>(rank)] = call(rank); });
    return statuses;
  }

  // One tensor of one member. `spec.root` is a place in the set.
  TestTensorPtr Submit(int id, const std::vector<int>& ranks, int place, const TestSpec& spec) {
    auto tensor = std::make_shared<TestTensor>(spec, place, static_cast<int>(ranks.size()));
    TensorEntry entry = tensor->Entry();
    entry.request.root_rank = ranks[static_cast<std::size_t>(spec.root)];
    sets(ranks[static_cast<std::size_t>(place)]).Enqueue(id, Group(std::move(entry)));
    return tensor;
  }
  // Of every member.
  std::vector<TestTensorPtr> SubmitOnAll(int id, const std::vector<int>& ranks,
                                         const TestSpec& spec) {
    std::vector<TestTensorPtr> tensors;
    for (std::size_t place = 0; place < ranks.size(); ++place) {
      tensors.push_back(Submit(id, ranks, static_cast<int>(place), spec));
    }
    return tensors;
  }

 private:
  std::vector<std::shared_ptr<JobEnd>> ends_;
  SetHub hub_;
  std::unique_ptr<LocalCluster> cluster_;
  std::vector<std::unique_ptr<ProcessSets>> sets_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_TEST_CPP_SUPPORT_SET_CLUSTER_H_
