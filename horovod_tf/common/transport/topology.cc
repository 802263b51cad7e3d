#include "horovod_tf/common/transport/topology.h"

#include <algorithm>
#include <unordered_map>

#include "horovod_tf/common/base/check.h"

namespace horovod_tf {

Topology MakeTopology(const std::vector<std::string>& hosts, int rank) {
  const auto self = static_cast<std::size_t>(rank);
  HVD_CHECK(rank >= 0 && self < hosts.size(), "a rank that is not among the hosts' ranks");
  Topology topology;
  topology.rank = rank;
  topology.size = static_cast<int>(hosts.size());

  std::unordered_map<std::string, int> number_of_host;
  std::vector<int> ranks_on_host;
  std::vector<int> local_ranks;
  for (const std::string& host : hosts) {
    const int next = static_cast<int>(ranks_on_host.size());
    const int number = number_of_host.try_emplace(host, next).first->second;
    if (number == next) ranks_on_host.push_back(0);
    topology.host_of_rank.push_back(number);
    local_ranks.push_back(ranks_on_host[static_cast<std::size_t>(number)]++);
  }

  topology.local_rank = local_ranks[self];
  topology.local_size = ranks_on_host[static_cast<std::size_t>(topology.host_of_rank[self])];
  const auto self_position = local_ranks.begin() + rank;
  topology.cross_rank =
      static_cast<int>(std::count(local_ranks.begin(), self_position, topology.local_rank));
  topology.cross_size =
      static_cast<int>(std::count(local_ranks.begin(), local_ranks.end(), topology.local_rank));
  topology.homogeneous = std::all_of(ranks_on_host.begin(), ranks_on_host.end(),
                                     [&](int ranks) { return ranks == ranks_on_host.front(); });
  return topology;
}

}  // namespace horovod_tf
