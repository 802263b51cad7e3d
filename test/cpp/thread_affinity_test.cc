#include "horovod_tf/common/runtime/thread_affinity.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test/cpp/support/local_cluster.h"

namespace horovod_tf {
namespace {

// That this thread may run on.
std::vector<int> Processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  std::vector<int> processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) processors.push_back(i);
  }
  return processors;
}

// What a fresh thread of this local rank is told, and where it may run then.
std::pair<Status, std::vector<int>> Bind(std::vector<int> affinity, int local_rank,
                                         int local_size) {
  std::pair<Status, std::vector<int>> result;
  std::thread([&] {
    Config config = Config::Defaults();
    config.thread_affinity = std::move(affinity);
    Topology topology;
    topology.rank = 10 + local_rank;
    topology.local_rank = local_rank;
    topology.local_size = local_size;
    result.first = BindThisThread(config, topology);
    result.second = Processors();
  }).join();
  return result;
}

TEST(ThreadAffinity, Unset_LeavesTheThreadAlone) {
  const auto [status, processors] = Bind({}, 0, 2);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(processors, Processors());
}

TEST(ThreadAffinity, OneForAll_OrOneForEachLocalRank) {
  const std::vector<int> all = Processors();
  const std::vector<int> last{all.back()};
  EXPECT_EQ(Bind(last, 3, 4).second, last);
  const std::vector<int> each{all.front(), all.back(), all.front()};
  for (int local_rank = 0; local_rank < 3; ++local_rank) {
    const auto [status, processors] = Bind(each, local_rank, 3);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(processors, std::vector<int>{each[static_cast<std::size_t>(local_rank)]});
  }
}

TEST(ThreadAffinity, TooFew_OrNotThere_IsAnErrorThatSaysSo) {
  const std::vector<int> all = Processors();
  const auto few = Bind({all.front(), all.front()}, 2, 3);
  EXPECT_EQ(few.first.message(),
            "HOROVOD_THREAD_AFFINITY names 2 processors, but there are 3 ranks on the host of rank "
            "12: name one for each of them, or one for all");
  EXPECT_EQ(few.second, all);
  const auto missing = Bind({65535}, 1, 2);
  const std::string expected =
      "HOROVOD_THREAD_AFFINITY wants rank 11 on processor 65535, which it cannot use: ";
  EXPECT_EQ(missing.first.message().substr(0, expected.size()), expected);
  EXPECT_EQ(missing.second, all);
}

TEST(ThreadAffinity, OfARuntime_IsItsBackgroundThreads) {
  ClusterOptions options;
  options.hosts = {"host-a", "host-a"};
  options.config.thread_affinity = {Processors().back()};
  LocalCluster cluster(options);
  ASSERT_TRUE(cluster.Started());
  std::vector<int> where;
  const auto mine = std::make_shared<TestTensor>(TestSpec{"x"}, 0, 2);
  std::vector<TensorEntry> group;
  group.push_back(mine->Entry([&](const Status&) { where = Processors(); }));
  cluster.rank(0).Enqueue(std::move(group));
  const TestTensorPtr other = Submit(cluster.rank(1), TestSpec{"x"}, 1, 2);
  ASSERT_TRUE(mine->Wait() && other->Wait());
  EXPECT_EQ(where, options.config.thread_affinity);
}

TEST(ThreadAffinity, ThatCannotBe_EndsTheStart) {
  ClusterOptions options;
  options.hosts = {"host-a", "host-a"};
  options.config.thread_affinity = {65535};
  LocalCluster cluster(options);
  EXPECT_FALSE(cluster.Started());
}

}  // namespace
}  // namespace horovod_tf
