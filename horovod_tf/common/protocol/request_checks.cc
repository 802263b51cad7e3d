#include "horovod_tf/common/protocol/request_checks.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>
#include <string>
#include <string_view>

namespace horovod_tf {
namespace {

// One check: whether two ranks' requests for one tensor go together, and what to say if not. Every
// rank is compared with rank 0, which is enough because each check but the scalar one is an
// equality; rank 0 is compared with itself too, for that one.
struct Check {
  bool (*applies)(const Request& first);
  bool (*passes)(const Request& first, const Request& other);
  std::string (*text)(const Request& first, const Request& other, int rank);
};

std::string Label(const Request& request) { return std::string(Info(request.kind).label); }

bool Always(const Request&) { return true; }
bool Reduces(const Request& request) { return Info(request.kind).reduces; }
bool Gathers(const Request& request) { return Info(request.kind).gathers_rows; }
bool Splits(const Request& request) { return Info(request.kind).splits_rows; }
bool ChangesRows(const Request& request) { return Info(request.kind).changes_rows; }
bool RowsDiffer(const Request& request) { return Info(request.kind).rows_differ(); }
bool HasRoot(const Request& request) { return Info(request.kind).has_root; }
bool WantsEqualShapes(const Request& request) { return !RowsDiffer(request); }

// "what: rank 0 has 1 for tensor 'x', but rank 3 has 2."
std::string Differ(const std::string& what, const Request& first, const std::string& first_value,
                   int rank, const std::string& value) {
  return what + ": rank 0 has " + first_value + " for tensor '" + first.name + "', but rank " +
         std::to_string(rank) + " has " + value + ".";
}

bool SameDataType(const Request& a, const Request& b) { return a.dtype == b.dtype; }
std::string DataTypeText(const Request& a, const Request& b, int rank) {
  return Differ("Mismatched data types", a, std::string(Info(a.dtype).name), rank,
                std::string(Info(b.dtype).name));
}

bool SameKind(const Request& a, const Request& b) { return a.kind == b.kind; }
std::string KindText(const Request& a, const Request& b, int rank) {
  const auto did = [](const Request& request) {
    const std::string label = Label(request);
    const bool vowel = std::string_view("AEIOU").find(label.front()) != std::string_view::npos;
    return std::string(" did ") + (vowel ? "an " : "a ") + label;
  };
  return "Mismatched operations: rank 0" + did(a) + " on tensor '" + a.name + "', but rank " +
         std::to_string(rank) + did(b) + ".";
}

bool SameShape(const Request& a, const Request& b) { return a.shape == b.shape; }
std::string ShapeText(const Request& a, const Request& b, int rank) {
  return Differ("Mismatched " + Label(a) + " tensor shapes", a, "shape " + a.shape.ToString(), rank,
                "shape " + b.shape.ToString());
}

bool SameReduceOp(const Request& a, const Request& b) { return a.reduce_op == b.reduce_op; }
std::string ReduceOpText(const Request& a, const Request& b, int rank) {
  return Differ("Mismatched reduction operations", a, std::string(Info(a.reduce_op).name), rank,
                std::string(Info(b.reduce_op).name));
}

bool SameFactors(const Request& a, const Request& b) {
  return a.prescale == b.prescale && a.postscale == b.postscale;
}
std::string Factors(const Request& request) {
  // All digits: factors that differ in the last bit must not print alike.
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), "prescale %.17g and postscale %.17g", request.prescale,
                request.postscale);
  return std::string(text.data());
}
std::string FactorsText(const Request& a, const Request& b, int rank) {
  return Differ("Mismatched prescale and/or postscale factors", a, Factors(a), rank, Factors(b));
}

bool NotScalar(const Request&, const Request& b) { return b.shape.rank() > 0; }
std::string ScalarText(const Request&, const Request& b, int rank) {
  return "Rank " + std::to_string(rank) + " tried to " + Label(b) + " a rank-zero tensor '" +
         b.name + "'; reshape it to one dimension or more.";
}

bool SameDimensionCount(const Request& a, const Request& b) {
  return a.shape.rank() == b.shape.rank();
}
std::string DimensionCountText(const Request& a, const Request& b, int rank) {
  const auto count = [](const Request& request) {
    return std::to_string(request.shape.rank()) + " as the number of dimensions (shape " +
           request.shape.ToString() + ")";
  };
  return Differ("Mismatched " + Label(a) + " tensor shapes", a, count(a), rank, count(b));
}

// The first dimension after 0 that differs; the number of dimensions if none does.
std::size_t FirstDifferentDimension(const Request& a, const Request& b) {
  std::size_t i = 1;
  while (i < a.shape.rank() && a.shape.dim(i) == b.shape.dim(i)) ++i;
  return i;
}
bool SameRows(const Request& a, const Request& b) {
  return FirstDifferentDimension(a, b) == a.shape.rank();
}
std::string RowsText(const Request& a, const Request& b, int rank) {
  const std::size_t i = FirstDifferentDimension(a, b);
  const auto size = [i](const Request& request) {
    return std::to_string(request.shape.dim(i)) + " (shape " + request.shape.ToString() + ")";
  };
  return Differ("Mismatched " + Label(a) + " tensor shapes, dimension " + std::to_string(i), a,
                size(a), rank, size(b));
}

bool SameSplitsCount(const Request& a, const Request& b) {
  return a.splits.size() == b.splits.size();
}
std::string SplitsCountText(const Request& a, const Request& b, int rank) {
  const auto count = [](const Request& request) {
    return std::to_string(request.splits.size()) + " entries";
  };
  return Differ("Mismatched " + Label(a) + " splits", a, count(a), rank, count(b));
}

bool SameRoot(const Request& a, const Request& b) { return a.root_rank == b.root_rank; }
std::string RootText(const Request& a, const Request& b, int rank) {
  return Differ("Mismatched " + Label(a) + " root ranks", a,
                "root rank " + std::to_string(a.root_rank), rank,
                "root rank " + std::to_string(b.root_rank));
}

bool SameDeviceType(const Request& a, const Request& b) {
  return (a.device == kCpuDevice) == (b.device == kCpuDevice);
}
std::string DeviceText(const Request& a, const Request& b, int rank) {
  return Differ("Mismatched " + Label(a) + " CPU/GPU device selection", a, DeviceName(a.device),
                rank, DeviceName(b.device));
}

bool Averages(const Request& request) { return request.kind == CollectiveKind::kAllgather; }
bool BothAverage(const Request& a, const Request& b) { return AveragesRows(a) == AveragesRows(b); }

constexpr std::array<Check, 12> kChecks = {{
    {Always, SameDataType, DataTypeText},
    {Always, SameKind, KindText},
    {WantsEqualShapes, SameShape, ShapeText},
    {Reduces, SameReduceOp, ReduceOpText},
    {Averages, BothAverage, ReduceOpText},
    {Reduces, SameFactors, FactorsText},
    {ChangesRows, NotScalar, ScalarText},
    {RowsDiffer, SameDimensionCount, DimensionCountText},
    {RowsDiffer, SameRows, RowsText},
    {Splits, SameSplitsCount, SplitsCountText},
    {HasRoot, SameRoot, RootText},
    {Always, SameDeviceType, DeviceText},
}};

std::vector<std::int64_t> FirstDims(const std::vector<Request>& requests) {
  std::vector<std::int64_t> first_dims;
  first_dims.reserve(requests.size());
  for (const Request& request : requests) first_dims.push_back(request.shape.dim(0));
  return first_dims;
}

// The texts say who the first one is, which others are compared with: rank 0, unless it is absent.
std::string NameFirst(std::string text, int rank) {
  constexpr std::string_view kFirst = ": rank 0 ";
  const std::size_t at = text.find(kFirst);
  if (rank == 0 || at == std::string::npos) return text;
  return text.replace(at, kFirst.size(), ": rank " + std::to_string(rank) + " ");
}

// `ranks` is parallel to `requests`: whose each is.
Status CheckRequestsOf(const std::vector<int>& ranks, const std::vector<Request>& requests) {
  const Request& first = requests.front();
  for (const Check& check : kChecks) {
    if (!check.applies(first)) continue;
    const auto found =
        std::find_if_not(requests.begin(), requests.end(),
                         [&](const Request& other) { return check.passes(first, other); });
    if (found == requests.end()) continue;
    const int rank = ranks[static_cast<std::size_t>(found - requests.begin())];
    return Status::FailedPrecondition(NameFirst(check.text(first, *found, rank), ranks.front()));
  }
  return Status::Ok();
}

// Each rank's rows are representable; those of all ranks together need not be. `requests` are those
// of all ranks.
Status CheckSizes(const std::vector<Request>& requests) {
  const Request& first = requests.front();
  Status status;
  if (Gathers(first)) status = ValidateGatheredSize(first, FirstDims(requests));
  if (Splits(first)) status = ValidateExchangedSizes(Define(requests));
  return status.ok() ? status : Status::FailedPrecondition(status.message());
}

// A rank that brings nothing to what `first` asks for.
Request Nothing(const Request& first) {
  Request request = first;
  if (RowsDiffer(first)) request.shape.set_dim(0, 0);
  std::fill(request.splits.begin(), request.splits.end(), 0);
  return request;
}

}  // namespace

Status CheckRequests(const std::vector<Request>& requests) {
  std::vector<int> ranks(requests.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  HVD_RETURN_IF_ERROR(CheckRequestsOf(ranks, requests));
  return CheckSizes(requests);
}

Status AgreeWithout(const std::vector<std::uint32_t>& absent, std::vector<Request> requests,
                    TensorDefinition* definition) {
  const auto is_absent = [&absent](std::size_t rank) {
    return std::binary_search(absent.begin(), absent.end(), static_cast<std::uint32_t>(rank));
  };
  std::vector<int> ranks;
  std::vector<Request> present;
  for (std::size_t rank = 0; rank < requests.size(); ++rank) {
    if (is_absent(rank)) continue;
    ranks.push_back(static_cast<int>(rank));
    present.push_back(requests[rank]);
  }
  HVD_RETURN_IF_ERROR(CheckRequestsOf(ranks, present));
  const Request& first = present.front();
  if (HasRoot(first) && is_absent(static_cast<std::size_t>(first.root_rank))) {
    return Status::FailedPrecondition(
        "Tensor '" + first.name + "' cannot be processed: rank " + std::to_string(first.root_rank) +
        ", the root of this " + Label(first) +
        ", has no more data and has called join(). Choose a root that has not.");
  }
  for (std::size_t i = 0; i < present.size() && Splits(first); ++i) {
    for (const std::uint32_t rank : absent) {
      if (present[i].splits[rank] == 0) continue;
      return Status::FailedPrecondition("Tensor '" + first.name + "' cannot be processed: rank " +
                                        std::to_string(ranks[i]) + " has rows for rank " +
                                        std::to_string(rank) +
                                        ", which has no more data and has called join().");
    }
  }
  for (const std::uint32_t rank : absent) requests[rank] = Nothing(first);
  HVD_RETURN_IF_ERROR(CheckSizes(requests));
  *definition = Define(requests);
  definition->absent = absent;
  return Status::Ok();
}

std::string Describe(const Request& request) {
  return Label(request) + " of " + std::string(Info(request.dtype).name) + ", shape " +
         request.shape.ToString() + ", " + std::string(Info(request.reduce_op).name) + ", " +
         Factors(request) + ", root rank " + std::to_string(request.root_rank) +
         (Splits(request) ? ", splits " + TensorShape(request.splits).ToString() : "") + ", on " +
         DeviceName(request.device);
}

TensorDefinition Define(const std::vector<Request>& requests) {
  TensorDefinition definition;
  definition.common = requests.front();
  if (Gathers(definition.common)) {
    definition.first_dims = FirstDims(requests);
    definition.common.shape.set_dim(0, 0);
  }
  if (Splits(definition.common)) {
    for (const Request& request : requests) definition.splits.push_back(request.splits);
    definition.common.shape.set_dim(0, 0);
    definition.common.splits.clear();
  }
  if (definition.common.device != kCpuDevice) {
    for (const Request& request : requests) definition.devices.push_back(request.device);
    definition.common.device = kCpuDevice;
  }
  return definition;
}

}  // namespace horovod_tf
