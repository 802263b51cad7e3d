#include "horovod_tf/common/protocol/numbered_names.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>

namespace horovod_tf {
namespace {

constexpr std::size_t kMostPairs = 3;
constexpr std::string_view kDigits = "0123456789";
// What may stand behind a number: "x_1/y", and "x_1_y" where a name was made of another.
constexpr std::string_view kBehind = "_/:@";

// The end of the number that begins with the underscore at `begin`; `begin` if there is none.
std::size_t EndOfNumber(const std::string& name, std::size_t begin) {
  if (name[begin] != '_') return begin;
  const std::size_t end = std::min(name.find_first_not_of(kDigits, begin + 1), name.size());
  const bool ends = end == name.size() || kBehind.find(name[end]) != std::string_view::npos;
  return ends && end > begin + 1 ? end : begin;
}

// "scope_2/x_1_0" -> "scope/x".
std::string WithoutNumbers(const std::string& name) {
  std::string rest;
  for (std::size_t i = 0; i < name.size();) {
    const std::size_t end = EndOfNumber(name, i);
    if (end == i) rest += name[i++];
    i = std::max(i, end);
  }
  return rest;
}

// Whether no rank waits for both.
bool WaitApart(const PendingTensor& a, const PendingTensor& b) {
  return std::none_of(a.ready_ranks.begin(), a.ready_ranks.end(), [&b](int rank) {
    return std::binary_search(b.ready_ranks.begin(), b.ready_ranks.end(), rank);
  });
}

std::string Explain(const PendingTensor& a, const PendingTensor& b) {
  return "\n[ranks: " + RankList(a.ready_ranks) + "] wait for '" + a.name +
         "' and [ranks: " + RankList(b.ready_ranks) + "] for '" + b.name +
         "', which are the same but for their names, whose numbers TensorFlow counts while a graph "
         "is built: do the ranks build different graphs? Build the same on all ranks, or give the "
         "operations names of your own (name=).";
}

}  // namespace

std::string ExplainNumbers(const std::vector<const PendingTensor*>& pending) {
  std::map<std::pair<std::string, std::string_view>, std::vector<const PendingTensor*>> alike;
  std::string text;
  std::size_t pairs = 0;
  for (const PendingTensor* const tensor : pending) {
    auto& others = alike[{WithoutNumbers(tensor->name), tensor->signature}];
    const auto apart =
        std::find_if(others.begin(), others.end(),
                     [tensor](const PendingTensor* other) { return WaitApart(*other, *tensor); });
    if (apart == others.end()) {
      others.push_back(tensor);
      continue;
    }
    // Each tensor is in one pair.
    if (pairs++ < kMostPairs) text += Explain(**apart, *tensor);
    others.erase(apart);
  }
  return text;
}

}  // namespace horovod_tf
