// Speed of host reductions: one JSON line per instruction set, type and number of inputs, beside
// memcpy of the same buffers in the same run. "gb_per_s" counts every byte read and written.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "horovod_tf/common/collectives/host_reduce.h"

namespace {

using horovod_tf::DataType;
using horovod_tf::InstructionSet;

constexpr std::size_t kBytes = std::size_t{1} << 20;
constexpr int kRounds = 15;
constexpr double kRoundSeconds = 0.003;

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds of one call: the best of several rounds, so that a neighbour's work does not count.
double Measure(const std::function<void()>& call) {
  call();
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const double start = Seconds();
    int calls = 0;
    double elapsed = 0;
    do {
      call();
      ++calls;
      elapsed = Seconds() - start;
    } while (elapsed < kRoundSeconds);
    best = std::min(best, elapsed / calls);
  }
  return best;
}

void Print(const std::string& set, const std::string& type, std::size_t inputs, double seconds) {
  const double bytes = static_cast<double>((inputs + 1) * kBytes);
  std::printf(
      "{\"benchmark\": \"host_reduce\", \"set\": \"%s\", \"type\": \"%s\", \"inputs\": %zu, "
      "\"bytes\": %zu, \"us\": %.1f, \"gb_per_s\": %.2f}\n",
      set.c_str(), type.c_str(), inputs, kBytes, seconds * 1e6, bytes / seconds * 1e-9);
}

}  // namespace

int main() {
  // Zero bytes are zero in every type: no input makes a slow path of the arithmetic unit.
  std::vector<std::vector<unsigned char>> buffers(5, std::vector<unsigned char>(kBytes));
  unsigned char* const out = buffers.back().data();
  Print("memcpy", "bytes", 1, Measure([&] { std::memcpy(out, buffers[0].data(), kBytes); }));
  for (InstructionSet set : horovod_tf::SupportedInstructionSets()) {
    for (const horovod_tf::DataTypeInfo& type : horovod_tf::DataTypes()) {
      if (!type.reducible) continue;
      horovod_tf::Reduction reduction;
      reduction.dtype = type.type;
      for (std::size_t inputs : {std::size_t{2}, std::size_t{4}}) {
        std::vector<const void*> sources;
        for (std::size_t i = 0; i < inputs; ++i) sources.push_back(buffers[i].data());
        const double seconds = Measure(
            [&] { horovod_tf::ReduceWith(set, reduction, sources, kBytes / type.size, out); });
        Print(std::string(InstructionSetName(set)), std::string(type.name), inputs, seconds);
      }
    }
  }
  return 0;
}
