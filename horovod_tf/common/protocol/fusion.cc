#include "horovod_tf/common/protocol/fusion.h"

#include <algorithm>
#include <array>

namespace horovod_tf {
namespace {

// How many batches of one class wait for more tensors at once. A bound keeps planning linear; a few
// are enough for small tensors to fill the room that large ones leave.
constexpr std::size_t kOpenBatches = 4;

struct OpenBatch {
  std::size_t batch;  // index of the plan
  std::int64_t room;  // bytes to the threshold
};

// The open batches of one class, the oldest first.
struct ClassState {
  std::array<OpenBatch, kOpenBatches> open{};
  std::size_t count = 0;

  OpenBatch* FirstFit(std::int64_t bytes) {
    const auto end = open.begin() + static_cast<std::ptrdiff_t>(count);
    const auto found =
        std::find_if(open.begin(), end, [&](const OpenBatch& o) { return bytes <= o.room; });
    return found == end ? nullptr : &*found;
  }
  void Open(const OpenBatch& batch) {
    if (count == kOpenBatches) Close(0);
    open[count++] = batch;
  }
  void Close(std::size_t index) {
    std::move(open.begin() + static_cast<std::ptrdiff_t>(index) + 1,
              open.begin() + static_cast<std::ptrdiff_t>(count),
              open.begin() + static_cast<std::ptrdiff_t>(index));
    --count;
  }
};

// Each candidate's class as an index into a table, and the table's size. Class numbers that are
// small as they come (what the coordinator gives) are used as they are; others are ranked.
struct ClassIndex {
  std::vector<std::size_t> of_candidate;
  std::size_t size = 0;
};
ClassIndex IndexClasses(const std::vector<FusionCandidate>& ready) {
  ClassIndex index;
  index.of_candidate.reserve(ready.size());
  std::uint32_t largest = 0;
  for (const FusionCandidate& candidate : ready) {
    index.of_candidate.push_back(candidate.fusion_class);
    largest = std::max(largest, candidate.fusion_class);
  }
  index.size = std::size_t{largest} + 1;
  if (index.size <= ready.size() + 64) return index;
  std::vector<std::size_t> sorted = index.of_candidate;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  for (std::size_t& number : index.of_candidate) {
    number = static_cast<std::size_t>(std::lower_bound(sorted.begin(), sorted.end(), number) -
                                      sorted.begin());
  }
  index.size = sorted.size();
  return index;
}

}  // namespace

std::vector<std::vector<std::size_t>> PlanFusion(const std::vector<FusionCandidate>& ready,
                                                 std::int64_t threshold) {
  std::vector<std::vector<std::size_t>> plan;
  const ClassIndex classes = IndexClasses(ready);
  std::vector<ClassState> states(classes.size);
  for (std::size_t i = 0; i < ready.size(); ++i) {
    const FusionCandidate& candidate = ready[i];
    const bool fusable = threshold > 0 && candidate.fusion_class != kNeverFused;
    ClassState& state = states[classes.of_candidate[i]];
    if (OpenBatch* fit = fusable ? state.FirstFit(candidate.bytes) : nullptr; fit != nullptr) {
      plan[fit->batch].push_back(i);
      fit->room -= candidate.bytes;
      continue;
    }
    plan.push_back({i});
    // What is full already is never opened, so it cannot push out a batch with room.
    if (fusable && candidate.bytes < threshold) {
      state.Open({plan.size() - 1, threshold - candidate.bytes});
    }
  }
  return plan;
}

}  // namespace horovod_tf
