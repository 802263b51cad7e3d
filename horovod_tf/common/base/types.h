// The vocabulary of collectives: data types, kinds of collective, reduce operations, shapes. Each
// enum has exactly one table; its numbers are on the wire and in the C API and never change.
#ifndef HOROVOD_TF_COMMON_BASE_TYPES_H_
#define HOROVOD_TF_COMMON_BASE_TYPES_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "horovod_tf/common/base/table.h"

namespace horovod_tf {

enum class DataType : std::uint8_t {
  kUInt8 = 0,
  kInt8 = 1,
  kUInt16 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBool = 9,
  kBFloat16 = 10,
  kUInt32 = 11,
  kUInt64 = 12,
  kComplex64 = 13,
  kComplex128 = 14,
};

struct DataTypeInfo {
  DataType type;
  std::string_view name;  // TensorFlow's name
  std::size_t size;       // bytes of one element
  bool reducible;         // has arithmetic: may be allreduced
  bool is_complex;        // a real and an imaginary part, of half the size each: has no order
};

// All data types, in the order of their numbers.
Table<DataTypeInfo> DataTypes();
const DataTypeInfo& Info(DataType type);
std::optional<DataType> DataTypeFromInt(std::uint64_t value);

enum class CollectiveKind : std::uint8_t {
  kAllreduce = 0,
  kAllgather = 1,
  kBroadcast = 2,
  kAlltoall = 3,
  kReducescatter = 4,
};

struct CollectiveKindInfo {
  CollectiveKind kind;
  std::string_view name;             // "allreduce"
  std::string_view label;            // "ALLREDUCE", as in error texts and in the timeline
  std::string_view negotiate_label;  // "NEGOTIATE_ALLREDUCE"
  bool fusable;                      // several ready tensors may become one operation
  bool gathers_rows;  // dimension 0 may differ between ranks; the output has all of it
  bool has_root;
  bool reduces;       // has a reduce operation and factors
  bool splits_rows;   // dimension 0 may differ; it is divided into what each rank gets
  bool changes_rows;  // dimension 0 of the output is another: no scalars, and it is allocated late

  // Whether dimension 0 may differ between ranks.
  bool rows_differ() const { return gathers_rows || splits_rows; }
};

Table<CollectiveKindInfo> CollectiveKinds();
const CollectiveKindInfo& Info(CollectiveKind kind);
std::optional<CollectiveKind> CollectiveKindFromInt(std::uint64_t value);

// The numbers are those of the reference system's public constants. 2 is its Adasum, which is not
// offered here.
enum class ReduceOp : std::uint8_t {
  kAverage = 0,
  kSum = 1,
  kMin = 3,
  kMax = 4,
  kProduct = 5,
};

struct ReduceOpInfo {
  ReduceOp op;
  std::string_view name;  // "Average"
};

Table<ReduceOpInfo> ReduceOps();
const ReduceOpInfo& Info(ReduceOp op);
std::optional<ReduceOp> ReduceOpFromInt(std::uint64_t value);

// Whether there is such a reduction of this type: not without arithmetic, and no Min or Max without
// an order.
bool CanReduce(DataType type, ReduceOp op);

// The host's memory, as opposed to a GPU's number (0, 1, ...).
inline constexpr int kCpuDevice = -1;

// Dimensions of a tensor, all >= 0; no dimensions is a scalar.
class TensorShape {
 public:
  TensorShape() = default;
  TensorShape(std::initializer_list<std::int64_t> dims) : TensorShape(dims.begin(), dims.size()) {}
  explicit TensorShape(const std::vector<std::int64_t>& dims)
      : TensorShape(dims.data(), dims.size()) {}
  TensorShape(const std::int64_t* dims, std::size_t rank);
  // All dimensions are 0.
  static TensorShape OfRank(std::size_t rank);
  TensorShape(const TensorShape&) = default;
  TensorShape& operator=(const TensorShape&) = default;
  // What is left is a scalar's shape.
  TensorShape(TensorShape&& other) noexcept
      : rank_(std::exchange(other.rank_, 0)), few_(other.few_), many_(std::move(other.many_)) {}
  TensorShape& operator=(TensorShape&& other) noexcept {
    if (this != &other) {
      rank_ = std::exchange(other.rank_, 0);
      few_ = other.few_;
      many_ = std::move(other.many_);
    }
    return *this;
  }
  ~TensorShape() = default;

  std::size_t rank() const { return rank_; }
  std::int64_t dim(std::size_t i) const { return data()[i]; }
  void set_dim(std::size_t i, std::int64_t value) { mutable_data()[i] = value; }
  const std::int64_t* data() const { return rank_ <= kInlineRank ? few_.data() : many_.data(); }
  const std::int64_t* begin() const { return data(); }
  const std::int64_t* end() const { return data() + rank_; }

  // Product of the dimensions, or nothing if a dimension is negative or the product exceeds int64.
  std::optional<std::int64_t> CheckedElements() const;
  // The same. REQUIRES: CheckedElements() has a value, which every entry point verifies once.
  std::int64_t elements() const;
  // Elements of one row: the product of the dimensions from 1 on. REQUIRES: rank() >= 1.
  std::int64_t row_elements() const;

  // "[2, 3]"; "[]" for a scalar.
  std::string ToString() const;

  friend bool operator==(const TensorShape& a, const TensorShape& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend bool operator!=(const TensorShape& a, const TensorShape& b) { return !(a == b); }

 private:
  // Shapes travel between threads with every tensor of every step, where memory that one thread
  // allocates and another frees is dear: those of common rank need none.
  static constexpr std::size_t kInlineRank = 4;

  std::int64_t* mutable_data() { return rank_ <= kInlineRank ? few_.data() : many_.data(); }

  std::size_t rank_ = 0;
  std::array<std::int64_t, kInlineRank> few_{};
  std::vector<std::int64_t> many_;  // if rank_ > kInlineRank: all of them
};

// Of `rows` rows that ranks share evenly, the first ranks with one more: how many `rank` has, and
// where they begin.
std::int64_t RowsOfShare(std::int64_t rows, int rank, int ranks);
std::int64_t BeginOfShare(std::int64_t rows, int rank, int ranks);

// "CPU" or "GPU 3".
std::string DeviceName(int device);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_BASE_TYPES_H_
