#include "horovod_tf/common/protocol/message.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "horovod_tf/common/base/utf8.h"

namespace horovod_tf {
namespace {

Status Invalid(const Request& request, const std::string& what) {
  return Status::InvalidArgument("Tensor '" + request.name + "': " + what);
}

Status ValidateName(const std::string& name) {
  if (name.empty()) return Status::InvalidArgument("A tensor needs a name; this one is empty.");
  if (name.size() > kMaxTensorNameBytes) {
    return Status::InvalidArgument("The name of tensor '" + Utf8Prefix(name, 64) + "...' has " +
                                   std::to_string(name.size()) + " bytes; at most " +
                                   std::to_string(kMaxTensorNameBytes) + " are allowed.");
  }
  return Status::Ok();
}

// "allreduced".
std::string Reduced(CollectiveKind kind) {
  const std::string name(Info(kind).name);
  return name + (name.back() == 'e' ? "d" : "ed");
}

// An enum may hold any number when it comes from a cast at the C API, so the tables decide.
Status ValidateTypes(const Request& request) {
  const auto kind = static_cast<std::uint64_t>(request.kind);
  const auto dtype = static_cast<std::uint64_t>(request.dtype);
  const auto op = static_cast<std::uint64_t>(request.reduce_op);
  if (!CollectiveKindFromInt(kind).has_value()) {
    return Invalid(request, "unknown kind of collective " + std::to_string(kind) + ".");
  }
  if (!DataTypeFromInt(dtype).has_value()) {
    return Invalid(request, "unknown data type " + std::to_string(dtype) + ".");
  }
  if (!ReduceOpFromInt(op).has_value()) {
    return Invalid(request, "unknown reduce operation " + std::to_string(op) + ".");
  }
  if (Info(request.kind).reduces && !Info(request.dtype).reducible) {
    return Invalid(request, "data type " + std::string(Info(request.dtype).name) + " cannot be " +
                                Reduced(request.kind) + "; cast it to a type with arithmetic.");
  }
  if (AveragesRows(request) && !Info(request.dtype).reducible) {
    return Invalid(request, "data type " + std::string(Info(request.dtype).name) +
                                " cannot be averaged; cast it to a type with arithmetic.");
  }
  if (Info(request.kind).reduces && !CanReduce(request.dtype, request.reduce_op)) {
    return Invalid(request, std::string(Info(request.reduce_op).name) + " of " +
                                std::string(Info(request.dtype).name) +
                                ": complex numbers have no order; reduce their real and imaginary "
                                "parts on their own.");
  }
  return Status::Ok();
}

Status ValidateShape(const Request& request) {
  if (request.shape.rank() > kMaxTensorRank) {
    return Invalid(request, std::to_string(request.shape.rank()) + " dimensions; at most " +
                                std::to_string(kMaxTensorRank) + " are allowed.");
  }
  const std::optional<std::int64_t> elements = request.shape.CheckedElements();
  std::int64_t bytes = 0;
  if (!elements.has_value() ||
      __builtin_mul_overflow(*elements, Info(request.dtype).size, &bytes)) {
    return Invalid(request, "shape " + request.shape.ToString() +
                                " has a negative dimension or more than 2^63-1 bytes.");
  }
  return Status::Ok();
}

// That a scalar has no rows to split is told to all ranks, by their checks.
Status ValidateSplits(const Request& request, int world_size) {
  const std::vector<std::int64_t>& splits = request.splits;
  const bool has_splits = Info(request.kind).splits_rows && request.shape.rank() > 0;
  const std::size_t expected = has_splits ? static_cast<std::size_t>(world_size) : 0;
  if (splits.size() != expected) {
    return Invalid(request, "Number of entries in splits does not equal " +
                                std::string(has_splits ? "the number of ranks" : "none") + ": " +
                                std::to_string(splits.size()) + ", not " +
                                std::to_string(expected) + ".");
  }
  if (!has_splits) return Status::Ok();
  std::int64_t rows = 0;
  for (std::int64_t split : splits) {
    if (split < 0 || __builtin_add_overflow(rows, split, &rows)) {
      return Invalid(request, "splits have " + std::to_string(split) +
                                  ", or more than 2^63-1 rows in all; each is at least 0.");
    }
  }
  if (rows == request.shape.dim(0)) return Status::Ok();
  return Invalid(request, std::string("Sum of splits entries is ") +
                              (rows > request.shape.dim(0) ? "greater" : "less") + " than " +
                              "dimension 0: " + std::to_string(rows) + " rows of " +
                              std::to_string(request.shape.dim(0)) +
                              "; every row goes to one rank.");
}

}  // namespace

bool operator==(const Request& a, const Request& b) {
  return a.name == b.name && a.kind == b.kind && a.dtype == b.dtype && a.reduce_op == b.reduce_op &&
         a.prescale == b.prescale && a.postscale == b.postscale && a.root_rank == b.root_rank &&
         a.device == b.device && a.shape == b.shape && a.splits == b.splits;
}

bool AveragesRows(const Request& request) {
  return request.kind == CollectiveKind::kAllgather && request.reduce_op == ReduceOp::kAverage;
}

Request TensorDefinition::RequestOf(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  Request request = common;
  if (!first_dims.empty()) request.shape.set_dim(0, first_dims[index]);
  request.device = devices.empty() ? kCpuDevice : devices[index];
  if (splits.empty()) return request;
  request.splits = splits[index];
  request.shape.set_dim(
      0, std::accumulate(request.splits.begin(), request.splits.end(), std::int64_t{0}));
  return request;
}

std::vector<std::int64_t> RowsReceived(const SplitsOfRanks& splits, int rank) {
  std::vector<std::int64_t> rows;
  rows.reserve(splits.size());
  for (const std::vector<std::int64_t>& sent : splits) {
    rows.push_back(sent[static_cast<std::size_t>(rank)]);
  }
  return rows;
}

std::int64_t TensorDefinition::bytes() const {
  const auto total = [](const std::vector<std::int64_t>& rows) {
    return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  };
  std::int64_t elements = 0;
  if (Info(common.kind).gathers_rows) {
    elements = total(first_dims) * common.shape.row_elements();
  } else if (Info(common.kind).splits_rows) {
    for (const auto& sent : splits) elements = std::max(elements, total(sent));
    elements *= common.shape.row_elements();
  } else {
    elements = common.shape.elements();
  }
  return elements * static_cast<std::int64_t>(Info(common.dtype).size);
}

Status ValidateGatheredSize(const Request& common, const std::vector<std::int64_t>& first_dims) {
  std::int64_t rows = 0;
  for (std::int64_t dim : first_dims) {
    if (__builtin_add_overflow(rows, dim, &rows)) {
      return Invalid(common, "the rows of all ranks together are more than 2^63-1.");
    }
  }
  Request gathered = common;
  gathered.shape.set_dim(0, rows);
  return ValidateShape(gathered);
}

Status ValidateExchangedSizes(const TensorDefinition& definition) {
  for (std::size_t rank = 0; rank < definition.splits.size(); ++rank) {
    HVD_RETURN_IF_ERROR(ValidateGatheredSize(definition.common, definition.splits[rank]));
    HVD_RETURN_IF_ERROR(ValidateGatheredSize(
        definition.common, RowsReceived(definition.splits, static_cast<int>(rank))));
  }
  return Status::Ok();
}

Status CompleteSplits(Request* request, int world_size) {
  // An unknown kind is for ValidateRequest to refuse.
  const auto kind = CollectiveKindFromInt(static_cast<std::uint64_t>(request->kind));
  if (!kind.has_value() || !Info(*kind).splits_rows) return Status::Ok();
  if (!request->splits.empty() || request->shape.rank() == 0) return Status::Ok();
  const std::int64_t rows = request->shape.dim(0);
  if (rows % world_size != 0) {
    return Invalid(*request, "dimension 0 (" + std::to_string(rows) +
                                 ") is not an even multiple of the number of workers (" +
                                 std::to_string(world_size) +
                                 "); give splits, which say how many rows each rank gets.");
  }
  request->splits.assign(static_cast<std::size_t>(world_size), rows / world_size);
  return Status::Ok();
}

Status ValidateRequest(const Request& request, int world_size) {
  HVD_RETURN_IF_ERROR(ValidateName(request.name));
  HVD_RETURN_IF_ERROR(ValidateTypes(request));
  HVD_RETURN_IF_ERROR(ValidateShape(request));
  if (!std::isfinite(request.prescale) || !std::isfinite(request.postscale)) {
    return Invalid(request, "prescale and postscale factors must be finite; they are " +
                                std::to_string(request.prescale) + " and " +
                                std::to_string(request.postscale) + ".");
  }
  if (Info(request.kind).has_root && (request.root_rank < 0 || request.root_rank >= world_size)) {
    return Invalid(request, "root rank " + std::to_string(request.root_rank) +
                                " is not a rank; ranks are 0 to " + std::to_string(world_size - 1) +
                                ".");
  }
  if (request.device < kCpuDevice) {
    return Invalid(request, "device " + std::to_string(request.device) +
                                " is neither the CPU (-1) nor a GPU's number.");
  }
  return ValidateSplits(request, world_size);
}

}  // namespace horovod_tf
