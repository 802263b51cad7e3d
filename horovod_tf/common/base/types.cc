#include "horovod_tf/common/base/types.h"

#include <algorithm>
#include <array>

#include "horovod_tf/common/base/check.h"

namespace horovod_tf {
namespace {

// The row whose `member` equals `value`; null if there is none. One search for every table here.
template <typename Row, typename Enum>
const Row* FindRow(Table<Row> rows, Enum Row::*member, std::uint64_t value) {
  for (const Row& row : rows) {
    if (static_cast<std::uint64_t>(row.*member) == value) return &row;
  }
  return nullptr;
}

template <typename Row, typename Enum>
const Row& GetRow(Table<Row> rows, Enum Row::*member, Enum value) {
  const Row* row = FindRow(rows, member, static_cast<std::uint64_t>(value));
  HVD_CHECK(row != nullptr, "an enum value without a row in its table");
  return *row;
}

template <typename Row, typename Enum>
std::optional<Enum> GetEnum(Table<Row> rows, Enum Row::*member, std::uint64_t value) {
  const Row* row = FindRow(rows, member, value);
  return row == nullptr ? std::nullopt : std::optional<Enum>(row->*member);
}

}  // namespace

Table<DataTypeInfo> DataTypes() {
  static constexpr DataTypeInfo kRows[] = {
      {DataType::kUInt8, "uint8", 1, true, false},
      {DataType::kInt8, "int8", 1, true, false},
      {DataType::kUInt16, "uint16", 2, true, false},
      {DataType::kInt16, "int16", 2, true, false},
      {DataType::kInt32, "int32", 4, true, false},
      {DataType::kInt64, "int64", 8, true, false},
      {DataType::kFloat16, "float16", 2, true, false},
      {DataType::kFloat32, "float32", 4, true, false},
      {DataType::kFloat64, "float64", 8, true, false},
      {DataType::kBool, "bool", 1, false, false},
      {DataType::kBFloat16, "bfloat16", 2, true, false},
      {DataType::kUInt32, "uint32", 4, true, false},
      {DataType::kUInt64, "uint64", 8, true, false},
      {DataType::kComplex64, "complex64", 8, true, true},
      {DataType::kComplex128, "complex128", 16, true, true},
  };
  return Table(kRows);
}

const DataTypeInfo& Info(DataType type) { return GetRow(DataTypes(), &DataTypeInfo::type, type); }
std::optional<DataType> DataTypeFromInt(std::uint64_t value) {
  return GetEnum(DataTypes(), &DataTypeInfo::type, value);
}

Table<CollectiveKindInfo> CollectiveKinds() {
  static constexpr CollectiveKindInfo kRows[] = {
      {CollectiveKind::kAllreduce, "allreduce", "ALLREDUCE", "NEGOTIATE_ALLREDUCE",
       /*fusable=*/true, /*gathers_rows=*/false, /*has_root=*/false, /*reduces=*/true,
       /*splits_rows=*/false, /*changes_rows=*/false},
      {CollectiveKind::kAllgather, "allgather", "ALLGATHER", "NEGOTIATE_ALLGATHER",
       /*fusable=*/false, /*gathers_rows=*/true, /*has_root=*/false, /*reduces=*/false,
       /*splits_rows=*/false, /*changes_rows=*/true},
      {CollectiveKind::kBroadcast, "broadcast", "BROADCAST", "NEGOTIATE_BROADCAST",
       /*fusable=*/false, /*gathers_rows=*/false, /*has_root=*/true, /*reduces=*/false,
       /*splits_rows=*/false, /*changes_rows=*/false},
      {CollectiveKind::kAlltoall, "alltoall", "ALLTOALL", "NEGOTIATE_ALLTOALL",
       /*fusable=*/false, /*gathers_rows=*/false, /*has_root=*/false, /*reduces=*/false,
       /*splits_rows=*/true, /*changes_rows=*/true},
      {CollectiveKind::kReducescatter, "reducescatter", "REDUCESCATTER", "NEGOTIATE_REDUCESCATTER",
       /*fusable=*/false, /*gathers_rows=*/false, /*has_root=*/false, /*reduces=*/true,
       /*splits_rows=*/false, /*changes_rows=*/true},
  };
  return Table(kRows);
}

const CollectiveKindInfo& Info(CollectiveKind kind) {
  return GetRow(CollectiveKinds(), &CollectiveKindInfo::kind, kind);
}
std::optional<CollectiveKind> CollectiveKindFromInt(std::uint64_t value) {
  return GetEnum(CollectiveKinds(), &CollectiveKindInfo::kind, value);
}

Table<ReduceOpInfo> ReduceOps() {
  static constexpr ReduceOpInfo kRows[] = {
      {ReduceOp::kAverage, "Average"}, {ReduceOp::kSum, "Sum"},         {ReduceOp::kMin, "Min"},
      {ReduceOp::kMax, "Max"},         {ReduceOp::kProduct, "Product"},
  };
  return Table(kRows);
}

const ReduceOpInfo& Info(ReduceOp op) { return GetRow(ReduceOps(), &ReduceOpInfo::op, op); }
std::optional<ReduceOp> ReduceOpFromInt(std::uint64_t value) {
  return GetEnum(ReduceOps(), &ReduceOpInfo::op, value);
}

bool CanReduce(DataType type, ReduceOp op) {
  const bool wants_order = op == ReduceOp::kMin || op == ReduceOp::kMax;
  return Info(type).reducible && !(Info(type).is_complex && wants_order);
}

TensorShape TensorShape::OfRank(std::size_t rank) {
  TensorShape shape;
  shape.rank_ = rank;
  if (rank > kInlineRank) shape.many_.resize(rank);
  return shape;
}

TensorShape::TensorShape(const std::int64_t* dims, std::size_t rank) : TensorShape(OfRank(rank)) {
  std::copy(dims, dims + rank, mutable_data());
}

std::optional<std::int64_t> TensorShape::CheckedElements() const {
  std::int64_t product = 1;
  bool empty = false;
  for (std::int64_t dim : *this) {
    if (dim < 0) return std::nullopt;
    if (dim == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(product, dim, &product)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : product;
}

std::int64_t TensorShape::elements() const {
  const std::optional<std::int64_t> elements = CheckedElements();
  HVD_CHECK(elements.has_value(), "a shape that was not validated");
  return *elements;
}

std::int64_t TensorShape::row_elements() const {
  HVD_CHECK(rank() >= 1, "a scalar has no rows");
  std::int64_t product = 1;
  for (std::size_t i = 1; i < rank(); ++i) product *= dim(i);
  return product;
}

std::string TensorShape::ToString() const {
  std::string text = "[";
  for (std::size_t i = 0; i < rank(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(dim(i));
  }
  return text + "]";
}

std::int64_t RowsOfShare(std::int64_t rows, int rank, int ranks) {
  return rows / ranks + (rank < rows % ranks ? 1 : 0);
}

std::int64_t BeginOfShare(std::int64_t rows, int rank, int ranks) {
  return rows / ranks * rank + std::min<std::int64_t>(rank, rows % ranks);
}

std::string DeviceName(int device) {
  return device == kCpuDevice ? "CPU" : "GPU " + std::to_string(device);
}

}  // namespace horovod_tf
