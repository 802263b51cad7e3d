#include "horovod_tf/common/base/types.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace horovod_tf {
namespace {

// The numbers are on the wire and in the C API: this list may grow and never change.
TEST(DataType, Table_HasTheFixedNumbersNamesSizesAndArithmetic) {
  struct Row {
    std::uint64_t number;
    std::string_view name;
    std::size_t size;
    bool reducible;
  };
  const std::vector<Row> rows = {
      {0, "uint8", 1, true},   {1, "int8", 1, true},       {2, "uint16", 2, true},
      {3, "int16", 2, true},   {4, "int32", 4, true},      {5, "int64", 8, true},
      {6, "float16", 2, true}, {7, "float32", 4, true},    {8, "float64", 8, true},
      {9, "bool", 1, false},   {10, "bfloat16", 2, true},  {11, "uint32", 4, true},
      {12, "uint64", 8, true}, {13, "complex64", 8, true}, {14, "complex128", 16, true},
  };
  ASSERT_EQ(DataTypes().size(), rows.size());
  for (const Row& row : rows) {
    const std::optional<DataType> type = DataTypeFromInt(row.number);
    ASSERT_TRUE(type.has_value()) << row.name;
    EXPECT_EQ(static_cast<std::uint64_t>(*type), row.number);
    EXPECT_EQ(Info(*type).name, row.name);
    EXPECT_EQ(Info(*type).size, row.size) << row.name;
    EXPECT_EQ(Info(*type).reducible, row.reducible) << row.name;
    const bool is_complex = row.name.substr(0, 7) == "complex";
    EXPECT_EQ(Info(*type).is_complex, is_complex) << row.name;
    EXPECT_EQ(CanReduce(*type, ReduceOp::kSum), row.reducible) << row.name;
    EXPECT_EQ(CanReduce(*type, ReduceOp::kMin), row.reducible && !is_complex) << row.name;
  }
}

TEST(CollectiveKind, Table_HasTheFixedNumbersLabelsAndRules) {
  const CollectiveKindInfo& allreduce = Info(CollectiveKind::kAllreduce);
  const CollectiveKindInfo& allgather = Info(CollectiveKind::kAllgather);
  const CollectiveKindInfo& broadcast = Info(CollectiveKind::kBroadcast);
  EXPECT_EQ(CollectiveKindFromInt(0), CollectiveKind::kAllreduce);
  EXPECT_EQ(CollectiveKindFromInt(1), CollectiveKind::kAllgather);
  EXPECT_EQ(CollectiveKindFromInt(2), CollectiveKind::kBroadcast);
  EXPECT_EQ(CollectiveKindFromInt(3), CollectiveKind::kAlltoall);
  EXPECT_EQ(CollectiveKindFromInt(4), CollectiveKind::kReducescatter);
  EXPECT_EQ(allreduce.name, "allreduce");
  EXPECT_EQ(allgather.name, "allgather");
  EXPECT_EQ(broadcast.name, "broadcast");
  EXPECT_EQ(Info(CollectiveKind::kAlltoall).name, "alltoall");
  EXPECT_EQ(Info(CollectiveKind::kReducescatter).name, "reducescatter");
  for (const CollectiveKindInfo& row : CollectiveKinds()) {
    std::string upper;
    for (const char c : row.name) upper += static_cast<char>(c - 'a' + 'A');
    EXPECT_EQ(row.label, upper);
    EXPECT_EQ(row.negotiate_label, "NEGOTIATE_" + upper);
    EXPECT_EQ(row.fusable, row.kind == CollectiveKind::kAllreduce) << row.name;
    EXPECT_EQ(row.gathers_rows, row.kind == CollectiveKind::kAllgather) << row.name;
    EXPECT_EQ(row.has_root, row.kind == CollectiveKind::kBroadcast) << row.name;
    EXPECT_EQ(row.splits_rows, row.kind == CollectiveKind::kAlltoall) << row.name;
    EXPECT_EQ(row.reduces,
              row.kind == CollectiveKind::kAllreduce || row.kind == CollectiveKind::kReducescatter)
        << row.name;
    EXPECT_EQ(row.changes_rows, row.rows_differ() || row.kind == CollectiveKind::kReducescatter)
        << row.name;
  }
}

TEST(Shares, Rows_AreAllOfThemAndTheFirstRanksHaveOneMore) {
  for (int ranks = 1; ranks <= 7; ++ranks) {
    for (std::int64_t rows = 0; rows <= 20; ++rows) {
      std::int64_t begin = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(BeginOfShare(rows, rank, ranks), begin);
        EXPECT_EQ(RowsOfShare(rows, rank, ranks), rows / ranks + (rank < rows % ranks ? 1 : 0));
        begin += RowsOfShare(rows, rank, ranks);
      }
      EXPECT_EQ(begin, rows);
    }
  }
}

TEST(ReduceOp, Table_HasTheReferenceSystemsNumbersWithoutAdasum) {
  struct Row {
    std::uint64_t number;
    std::string_view name;
  };
  const std::vector<Row> rows = {
      {0, "Average"}, {1, "Sum"}, {3, "Min"}, {4, "Max"}, {5, "Product"}};
  ASSERT_EQ(ReduceOps().size(), rows.size());
  for (const Row& row : rows) {
    const std::optional<ReduceOp> op = ReduceOpFromInt(row.number);
    ASSERT_TRUE(op.has_value()) << row.name;
    EXPECT_EQ(static_cast<std::uint64_t>(*op), row.number);
    EXPECT_EQ(Info(*op).name, row.name);
  }
  EXPECT_FALSE(ReduceOpFromInt(2).has_value());
}

TEST(Types, NumbersOutsideTheTables_AreNothing) {
  // 256 + n would be n again if a number were cut to the enum's byte before it is looked up.
  const std::vector<std::uint64_t> numbers = {
      15, 16, 255, 256, 257, 260, std::numeric_limits<std::uint64_t>::max()};
  for (const std::uint64_t number : numbers) {
    EXPECT_FALSE(DataTypeFromInt(number).has_value()) << number;
    EXPECT_FALSE(CollectiveKindFromInt(number).has_value()) << number;
    EXPECT_FALSE(ReduceOpFromInt(number).has_value()) << number;
  }
  EXPECT_FALSE(CollectiveKindFromInt(5).has_value());
  EXPECT_FALSE(ReduceOpFromInt(6).has_value());
}

TEST(TensorShape, Elements_IsTheProductOfTheDimensions) {
  EXPECT_EQ(TensorShape().elements(), 1);
  EXPECT_EQ(TensorShape({7}).elements(), 7);
  EXPECT_EQ(TensorShape({2, 3, 5}).elements(), 30);
  EXPECT_EQ(TensorShape({2, 0, 5}).elements(), 0);
}

TEST(TensorShape, CheckedElements_RefusesNegativeDimensionsEvenBesideZero) {
  EXPECT_FALSE(TensorShape({-1}).CheckedElements().has_value());
  EXPECT_FALSE(TensorShape({0, -1}).CheckedElements().has_value());
  EXPECT_FALSE(TensorShape({-1, 0}).CheckedElements().has_value());
}

TEST(TensorShape, CheckedElements_RefusesAProductBeyondInt64) {
  const std::int64_t big = std::int64_t{1} << 31;
  EXPECT_EQ(TensorShape({big, big}).CheckedElements(), std::int64_t{1} << 62);
  EXPECT_FALSE(TensorShape({big, big, 2}).CheckedElements().has_value());
  const std::int64_t max = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(TensorShape({max, 1}).CheckedElements(), max);
  EXPECT_FALSE(TensorShape({max, 2}).CheckedElements().has_value());
}

TEST(TensorShapeDeathTest, ElementsOfAnInvalidShape_IsAnInvariantOfOurs) {
  EXPECT_DEATH(static_cast<void>(TensorShape({-3}).elements()), "a shape that was not validated");
  EXPECT_DEATH(static_cast<void>(TensorShape().row_elements()), "a scalar has no rows");
}

TEST(TensorShape, RowElements_LeavesOutTheFirstDimension) {
  EXPECT_EQ(TensorShape({4}).row_elements(), 1);
  EXPECT_EQ(TensorShape({4, 3, 5}).row_elements(), 15);
  EXPECT_EQ(TensorShape({0, 3}).row_elements(), 3);
}

TEST(TensorShape, ToStringAndEquality_SeeEveryDimension) {
  EXPECT_EQ(TensorShape().ToString(), "[]");
  EXPECT_EQ(TensorShape({2}).ToString(), "[2]");
  TensorShape shape({2, 3});
  EXPECT_EQ(shape.ToString(), "[2, 3]");
  EXPECT_NE(shape, TensorShape({3, 2}));
  EXPECT_NE(shape, TensorShape({2, 3, 1}));
  shape.set_dim(0, 9);
  EXPECT_EQ(shape, TensorShape(std::vector<std::int64_t>{9, 3}));
  EXPECT_EQ(shape.rank(), 2u);
  EXPECT_EQ(shape.dim(1), 3);
}

TEST(TensorShape, OfAnyRank_IsCopiedAndMovedWhole) {
  std::vector<std::int64_t> dims;
  for (std::size_t rank = 0; rank <= 9; ++rank) {
    const TensorShape made(dims);
    TensorShape counted = TensorShape::OfRank(rank);
    for (std::size_t i = 0; i < rank; ++i) {
      EXPECT_EQ(counted.dim(i), 0);
      counted.set_dim(i, dims[i]);
    }
    EXPECT_EQ(counted, made);
    EXPECT_EQ(std::vector<std::int64_t>(made.begin(), made.end()), dims);
    TensorShape copy({8, 8, 8, 8, 8, 8});
    copy = made;
    EXPECT_EQ(copy, made);
    TensorShape moved(std::move(copy));
    EXPECT_EQ(moved, made);
    EXPECT_EQ(copy, TensorShape());  // NOLINT(bugprone-use-after-move): what is left is promised
    copy = std::move(moved);
    EXPECT_EQ(copy, made);
    EXPECT_EQ(moved, TensorShape());  // NOLINT(bugprone-use-after-move)
    dims.push_back(static_cast<std::int64_t>(rank) + 2);
  }
}

TEST(DeviceName, HostAndNumberedDevices_AreNamedApart) {
  EXPECT_EQ(DeviceName(kCpuDevice), "CPU");
  EXPECT_EQ(DeviceName(0), "GPU 0");
  EXPECT_EQ(DeviceName(3), "GPU 3");
}

}  // namespace
}  // namespace horovod_tf
