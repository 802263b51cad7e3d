#include "horovod_tf/common/transport/topology.h"

#include <gtest/gtest.h>

namespace horovod_tf {
namespace {

struct Place {
  int local_rank;
  int local_size;
  int cross_rank;
  int cross_size;
};

void ExpectPlaces(const std::vector<std::string>& hosts, const std::vector<Place>& places,
                  bool homogeneous, const std::vector<int>& host_of_rank) {
  ASSERT_EQ(hosts.size(), places.size());
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    SCOPED_TRACE("rank " + std::to_string(i));
    const Topology topology = MakeTopology(hosts, static_cast<int>(i));
    EXPECT_EQ(topology.rank, static_cast<int>(i));
    EXPECT_EQ(topology.size, static_cast<int>(hosts.size()));
    EXPECT_EQ(topology.local_rank, places[i].local_rank);
    EXPECT_EQ(topology.local_size, places[i].local_size);
    EXPECT_EQ(topology.cross_rank, places[i].cross_rank);
    EXPECT_EQ(topology.cross_size, places[i].cross_size);
    EXPECT_EQ(topology.homogeneous, homogeneous);
    EXPECT_EQ(topology.host_of_rank, host_of_rank);
  }
}

TEST(Topology, OneRank_IsAloneEverywhere) { ExpectPlaces({"a"}, {{0, 1, 0, 1}}, true, {0}); }

TEST(Topology, OneHost_NumbersRanksLocally) {
  ExpectPlaces({"a", "a", "a"}, {{0, 3, 0, 1}, {1, 3, 0, 1}, {2, 3, 0, 1}}, true, {0, 0, 0});
}

TEST(Topology, OneRankPerHost_CrossesAllHosts) {
  ExpectPlaces({"c", "a", "b"}, {{0, 1, 0, 3}, {0, 1, 1, 3}, {0, 1, 2, 3}}, true, {0, 1, 2});
}

TEST(Topology, TwoByTwo_InBlocks) {
  ExpectPlaces({"a", "a", "b", "b"}, {{0, 2, 0, 2}, {1, 2, 0, 2}, {0, 2, 1, 2}, {1, 2, 1, 2}}, true,
               {0, 0, 1, 1});
}

TEST(Topology, TwoByTwo_RoundRobin) {
  ExpectPlaces({"b", "a", "b", "a"}, {{0, 2, 0, 2}, {0, 2, 1, 2}, {1, 2, 0, 2}, {1, 2, 1, 2}}, true,
               {0, 1, 0, 1});
}

TEST(Topology, UnequalHosts_AreNotHomogeneous) {
  // The third rank of b has nobody to cross to.
  ExpectPlaces({"b", "b", "a", "b", "a"},
               {{0, 3, 0, 2}, {1, 3, 0, 2}, {0, 2, 1, 2}, {2, 3, 0, 1}, {1, 2, 1, 2}}, false,
               {0, 0, 1, 0, 1});
}

TEST(TopologyDeathTest, RankOutside_IsAProgrammingError) {
  EXPECT_DEATH(MakeTopology({"a", "b"}, 2), "not among");
  EXPECT_DEATH(MakeTopology({"a", "b"}, -1), "not among");
}

}  // namespace
}  // namespace horovod_tf
