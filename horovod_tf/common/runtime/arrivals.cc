#include "horovod_tf/common/runtime/arrivals.h"

#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "horovod_tf/common/base/host_name.h"
#include "horovod_tf/common/shm/abstract_address.h"

namespace horovod_tf {
namespace {

// A list of hundreds of ranks helps nobody.
constexpr int kMostNamed = 16;

// MPICH's launcher gives a job no name, but has one process on each host that starts its ranks
// there, at once or through the user's scripts.
std::string JobOfHydra() {
  constexpr std::string_view kProxy = "hydra_pmi_proxy";
  pid_t process = getppid();
  while (process > 1) {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    std::string line;
    std::getline(file, line);
    // "42 (name) S 41 ...", where the name may have anything in it.
    const std::size_t begin = line.find('(');
    const std::size_t end = line.rfind(") ");
    if (begin == std::string::npos || end == std::string::npos || end + 4 > line.size()) break;
    if (line.compare(begin + 1, end - begin - 1, kProxy) == 0) {
      return "hydra" + std::to_string(process);
    }
    process = static_cast<pid_t>(std::atoi(line.c_str() + end + 4));
  }
  return "";
}

UniqueFd DatagramSocket() {
  return UniqueFd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// "rank 0, rank 2", or "" for none.
std::string ListRanks(const std::vector<int>& ranks) {
  std::string text;
  int named = 0;
  for (const int rank : ranks) {
    if (named++ == kMostNamed) {
      return text + " and " + std::to_string(ranks.size() - kMostNamed) + " more";
    }
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank);
  }
  return text;
}

}  // namespace

Arrivals::Arrivals(const Config& config)
    : size_(config.launcher_size),
      local_size_(config.launcher_local_size),
      rank_(config.launcher_rank),
      job_(config.launcher_job.empty() ? JobOfHydra() : config.launcher_job),
      here_(static_cast<std::size_t>(size_), false),
      seen_(here_) {
  if (rank_ < 0 || local_size_ == 0) job_.clear();
  if (job_.empty()) return;
  own_ = DatagramSocket();
  const AbstractAddress address(NameOf(rank_));
  if (!own_.valid() || bind(own_.get(), address.get(), address.length) != 0) job_.clear();
}

std::string Arrivals::NameOf(int rank) const {
  // The rank before the job, which may be long and cut off.
  return "horovod_tf-arrived-" + std::to_string(geteuid()) + "-" + std::to_string(rank) + "-" +
         job_;
}

void Arrivals::Look() {
  if (job_.empty()) return;
  probe_ = DatagramSocket();
  for (int rank = 0; rank < size_; ++rank) {
    const AbstractAddress address(NameOf(rank));
    const auto index = static_cast<std::size_t>(rank);
    // Sends nothing: it succeeds if somebody has the name.
    here_[index] = connect(probe_.get(), address.get(), address.length) == 0;
    if (here_[index]) seen_[index] = true;
  }
}

std::string Arrivals::Describe() const {
  if (job_.empty()) return "";
  std::vector<int> here;
  std::vector<int> gone;
  std::vector<int> missing;
  for (int rank = 0; rank < size_; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    (here_[index] ? here : seen_[index] ? gone : missing).push_back(rank);
  }
  const int came = static_cast<int>(here.size() + gone.size());
  const bool all_known = local_size_ == size_ || came == size_;
  std::string host;
  if (!ReadHostName(&host).ok()) host = "this host";
  std::string text = std::to_string(came) + " of " +
                     std::to_string(all_known ? size_ : local_size_) + " ranks" +
                     (all_known ? "" : " of host " + host) + " arrived";
  if (all_known && !missing.empty()) text += ": missing " + ListRanks(missing);
  if (!here.empty()) text += ". Arrived on host " + host + ": " + ListRanks(here);
  if (!gone.empty()) text += ". Arrived, and ended or gave up since: " + ListRanks(gone);
  if (!all_known) text += ". Ranks of other hosts cannot be seen from here";
  return text;
}

}  // namespace horovod_tf
