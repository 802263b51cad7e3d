#include "horovod_tf/common/runtime/placement.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "horovod_tf/common/protocol/wire.h"

namespace horovod_tf {
namespace {

// One core, which may be two processors to the system.
constexpr int kCore = 2;
constexpr char kUnbind[] = "`mpirun --bind-to none` leaves them to the system";

// Empty if the system does not say.
std::vector<bool> OwnProcessors() {
  cpu_set_t own;
  std::vector<bool> processors;
  if (sched_getaffinity(0, sizeof own, &own) != 0) return processors;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &own)) continue;
    processors.resize(cpu + 1);
    processors[cpu] = true;
  }
  return processors;
}

int OnlineProcessors() { return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); }

int Count(const std::vector<bool>& processors) {
  return static_cast<int>(std::count(processors.begin(), processors.end(), true));
}

void Add(const std::vector<bool>& processors, std::vector<bool>* all) {
  all->resize(std::max(all->size(), processors.size()));
  for (std::size_t cpu = 0; cpu < processors.size(); ++cpu) {
    if (processors[cpu]) (*all)[cpu] = true;
  }
}

// A host as it is called: without what makes its name unique among ranks.
std::string NameOf(const std::string& host) { return host.substr(0, host.rfind('#')); }

std::string Processors(int count) {
  return std::to_string(count) + (count == 1 ? " processor" : " processors");
}

std::string Encode(const Placement& it) {
  WireWriter writer;
  writer.String(it.host);
  writer.Varint(it.processors.size());
  for (const bool may : it.processors) writer.U8(may ? 1 : 0);
  return writer.Take();
}

Status Decode(const std::string& bytes, Placement* it) {
  WireReader reader(bytes);
  it->host = std::string(reader.String());
  it->processors.resize(std::min<std::size_t>(reader.Varint(), CPU_SETSIZE));
  for (auto&& may : it->processors) may = reader.U8() != 0;
  return reader.status();
}

}  // namespace

std::string JudgePlacement(const std::vector<Placement>& ranks, const std::string& host,
                           int online) {
  std::vector<bool> used;
  int count = 0;
  for (const Placement& it : ranks) {
    if (it.host != host) continue;
    if (it.processors.empty()) return "";
    Add(it.processors, &used);
    ++count;
  }
  const std::string these = count == 1 ? "the rank" : "the " + std::to_string(count) + " ranks";
  if (count > Count(used)) {
    const bool bound = Count(used) < online;
    return these + " of host " + NameOf(host) + " share " + Processors(Count(used)) +
           (bound ? ", to which they are bound, of " + std::to_string(online) +
                        " that it has: " + kUnbind
                  : ": they wait for each other's turn in every step. As many ranks as it has "
                    "cores, or fewer, train faster");
  }
  for (const Placement& it : ranks) {
    const int own = Count(it.processors);
    if (it.host != host || own > kCore || own * 2 > online / count) continue;
    return "rank " + std::to_string(it.rank) + " is bound to " + Processors(own) + " of the " +
           std::to_string(online) + " of host " + NameOf(host) +
           ", for TensorFlow's threads and Horovod's: " + these + " could have " +
           std::to_string(online / count) + (count == 1 ? "" : " each") + ". " + kUnbind;
  }
  return "";
}

Status WarnOfPlacement(RankExchange& exchange, const std::string& host, const Logger& logger) {
  const Placement own{exchange.rank(), host, OwnProcessors()};
  std::vector<std::string> said;
  HVD_RETURN_IF_ERROR(exchange.Gather(Encode(own), &said));
  std::vector<Placement> ranks;
  for (const std::string& bytes : said) {
    Placement it;
    HVD_RETURN_IF_ERROR(Decode(bytes, &it));
    it.rank = static_cast<int>(ranks.size());
    ranks.push_back(std::move(it));
  }
  const auto first = std::find_if(ranks.begin(), ranks.end(),
                                  [&host](const Placement& it) { return it.host == host; });
  if (first == ranks.end() || first->rank != exchange.rank()) return Status::Ok();
  const std::string warning = JudgePlacement(ranks, host, OnlineProcessors());
  if (!warning.empty()) logger.Log(LogLevel::kWarning, warning);
  return Status::Ok();
}

void WarnOfLonePlacement(const std::string& host, const Logger& logger) {
  const std::string warning =
      JudgePlacement({{0, host, OwnProcessors()}}, host, OnlineProcessors());
  if (!warning.empty()) logger.Log(LogLevel::kWarning, warning);
}

}  // namespace horovod_tf
