// Where the ranks are: computed from each rank's host name, which is data exchanged at start, so
// that tests can invent hosts.
#ifndef HOROVOD_TF_COMMON_TRANSPORT_TOPOLOGY_H_
#define HOROVOD_TF_COMMON_TRANSPORT_TOPOLOGY_H_

#include <string>
#include <vector>

namespace horovod_tf {

struct Topology {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // position among the ranks of the same host, in rank order
  int local_size = 1;
  int cross_rank = 0;  // position among the ranks with the same local rank, in rank order
  int cross_size = 1;
  bool homogeneous = true;        // every host has the same number of ranks
  std::vector<int> host_of_rank;  // dense host numbers in order of first appearance
};

// REQUIRES: 0 <= rank < hosts.size().
Topology MakeTopology(const std::vector<std::string>& hosts, int rank);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_TRANSPORT_TOPOLOGY_H_
