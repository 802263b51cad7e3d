// The contract of CollectiveBackend as a test suite: what every backend must do, whatever moves the
// bytes. A test program defines how to make a world of ranks and instantiates the suites:
//
//   HVD_INSTANTIATE_BACKEND_CONTRACT(Local, testing::Values(factory), testing::Values(1, 2, 3, 5,
//   8));
//
// The tests themselves are in backend_contract.cc, so that several programs' worth of backends may
// share one. A world may drive all its ranks as threads, or one rank when the others are other
// processes: every check is made by the rank itself, against closed forms.
#ifndef HOROVOD_TF_TEST_CPP_CONTRACT_BACKEND_CONTRACT_H_
#define HOROVOD_TF_TEST_CPP_CONTRACT_BACKEND_CONTRACT_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "horovod_tf/common/collectives/collective_backend.h"
#include "test/cpp/contract/contract_world.h"
#include "test/cpp/contract/typed_values.h"

namespace horovod_tf {

// Every rank's data, in closed form: distinct per rank, tensor and index, without a short period,
// and so small that sums of 8 ranks fit int8 and are exact in bfloat16.
struct ContractData {
  static std::int64_t Base(std::size_t tensor, std::size_t i) {
    const std::size_t x = i + 5 * tensor;
    return static_cast<std::int64_t>((x ^ x >> 3 ^ x >> 6 ^ x >> 9) & 7U);
  }
  // Ranks take turns at being the largest.
  static std::int64_t Turn(int rank, int size, std::size_t i) {
    return static_cast<std::int64_t>((static_cast<std::size_t>(rank) + i) %
                                     static_cast<std::size_t>(size));
  }
  static std::int64_t Value(int rank, int size, std::size_t tensor, std::size_t i) {
    return Base(tensor, i) + 2 * Turn(rank, size, i);
  }
  // Factors 1 and 2 only.
  static std::int64_t Factor(int rank, std::size_t i) {
    return (i + static_cast<std::size_t>(rank)) % 3 == 0 ? 2 : 1;
  }
  static std::int64_t Reduced(ReduceOp op, int size, std::size_t tensor, std::size_t i) {
    const std::int64_t base = Base(tensor, i);
    switch (op) {
      case ReduceOp::kSum:
        return size * (base + size - 1);
      case ReduceOp::kAverage:
        return base + size - 1;
      case ReduceOp::kMin:
        return base;
      case ReduceOp::kMax:
        return base + 2 * (size - 1);
      case ReduceOp::kProduct: {
        // Ranks r with (i + r) % 3 == 0.
        const std::int64_t first = (3 - static_cast<std::int64_t>(i % 3)) % 3;
        return std::int64_t{1} << (size > first ? (size - first + 2) / 3 : 0);
      }
    }
    return 0;
  }
  // For kinds that only move bytes: any pattern will do, as long as it fits bool.
  static Bytes Pattern(DataType dtype, int rank, std::size_t tensor, std::size_t elements) {
    Bytes bytes(elements * Info(dtype).size);
    const auto seed = static_cast<std::size_t>(rank) * 101 + tensor * 31 + 7;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const std::size_t x = (i + 1) * 2654435761U + seed * 40503U;
      bytes[i] =
          static_cast<unsigned char>((x >> 7 ^ x >> 15) & (dtype == DataType::kBool ? 1 : 255));
    }
    return bytes;
  }
};

// Shapes of one to three dimensions (and a scalar) for every size of interest.
inline std::vector<TensorShape> ContractShapes() {
  return {{},       {0},       {1},       {2},          {3},         {17},
          {1000},   {4097},    {0, 3},    {2, 0},       {1, 1},      {17, 1},
          {2, 500}, {3, 0, 2}, {1, 1, 3}, {10, 10, 10}, {17, 241, 1}};
}

// One rank's batch and the memory it lives in.
class ContractBatch {
 public:
  // An output on its own, or `output_shape` ignored and the input's buffer used in place.
  void Add(Bytes input, const TensorShape& input_shape, const TensorShape& output_shape,
           bool in_place, std::vector<std::int64_t> first_dims = {}, SplitsOfRanks splits = {}) {
    BatchTensor tensor;
    tensor.name = "tensor" + std::to_string(batch.tensors.size());
    inputs_.push_back(std::move(input));
    originals_.push_back(in_place ? Bytes() : inputs_.back());
    in_place_.push_back(in_place);
    tensor.input = {batch.dtype, input_shape, inputs_.back().data()};
    outputs_.emplace_back();
    tensor.output = {batch.dtype, in_place ? input_shape : output_shape, nullptr};
    // Wrong until written.
    if (!in_place) outputs_.back().assign(tensor.output.bytes(), 0xa5);
    tensor.output.data = in_place ? inputs_.back().data() : outputs_.back().data();
    tensor.first_dims = std::move(first_dims);
    tensor.splits = std::move(splits);
    batch.tensors.push_back(std::move(tensor));
  }

  void ExpectOutput(std::size_t tensor, const Bytes& expected) const {
    const Bytes& actual = in_place_[tensor] ? inputs_[tensor] : outputs_[tensor];
    EXPECT_EQ(FirstDifference(batch.dtype, actual, expected), "") << "tensor " << tensor;
    if (!in_place_[tensor]) {
      EXPECT_EQ(inputs_[tensor], originals_[tensor]) << "an input was written";
    }
  }

  Batch batch;

 private:
  std::vector<Bytes> inputs_;
  std::vector<Bytes> originals_;
  std::vector<Bytes> outputs_;
  std::vector<bool> in_place_;
};

using ContractParam = std::tuple<ContractWorldFactory, int, DataType>;

inline std::string ContractParamName(const testing::TestParamInfo<ContractParam>& info) {
  return std::get<0>(info.param).name + "_" + std::to_string(std::get<1>(info.param)) + "ranks_" +
         std::string(Info(std::get<2>(info.param)).name);
}

class BackendContract : public testing::TestWithParam<ContractParam> {
 protected:
  int size() const { return std::get<1>(GetParam()); }
  DataType dtype() const { return std::get<2>(GetParam()); }

  // Runs fn(rank) on every rank of a new world, each with its backend, and fails the test when they
  // have not all returned in time.
  void OnEveryRank(const std::function<void(ContractRank&)>& fn) const {
    std::get<0>(GetParam()).make(size())->Run(fn);
  }

  void CheckAllreduce(ContractRank& rank, ReduceOp op, const std::vector<TensorShape>& shapes,
                      bool in_place) const {
    ContractBatch contract;
    contract.batch.kind = CollectiveKind::kAllreduce;
    contract.batch.dtype = dtype();
    contract.batch.reduce_op = op;
    for (std::size_t t = 0; t < shapes.size(); ++t) {
      contract.Add(MakeBuffer(dtype(), Elements(shapes[t]),
                              [&](std::size_t i) {
                                return op == ReduceOp::kProduct
                                           ? ContractData::Factor(rank.rank, i)
                                           : ContractData::Value(rank.rank, size(), t, i);
                              }),
                   shapes[t], shapes[t], in_place);
    }
    rank.RunOk(contract.batch);
    for (std::size_t t = 0; t < shapes.size(); ++t) {
      contract.ExpectOutput(t, MakeBuffer(dtype(), Elements(shapes[t]), [&](std::size_t i) {
                              return ContractData::Reduced(op, size(), t, i);
                            }));
    }
  }

  // `count` rows of shape `row`.
  static TensorShape RowsOf(std::int64_t count, const std::vector<std::int64_t>& row) {
    std::vector<std::int64_t> dims = {count};
    dims.insert(dims.end(), row.begin(), row.end());
    return TensorShape(dims);
  }

  // The inputs of `absent` ranks would be seen in the result if they counted.
  void CheckReduceWithout(ContractRank& rank, ReduceOp op, const std::vector<int>& absent,
                          std::size_t elements, bool in_place) const {
    const auto is_absent = [&absent](int r) {
      return std::find(absent.begin(), absent.end(), r) != absent.end();
    };
    const auto value = [&](int r, std::size_t i) -> std::int64_t {
      if (is_absent(r)) return op == ReduceOp::kMin || op == ReduceOp::kProduct ? 0 : 99;
      if (op == ReduceOp::kProduct) return ContractData::Factor(r, i);
      if (op == ReduceOp::kAverage)
        return ContractData::Base(0, i);  // so that it is a whole number
      return ContractData::Value(r, size(), 0, i) + 1;
    };
    const auto expected = [&](std::size_t i) {
      std::int64_t result = op == ReduceOp::kProduct ? 1 : op == ReduceOp::kMin ? 99 : 0;
      for (int r = 0; r < size(); ++r) {
        if (is_absent(r)) continue;
        if (op == ReduceOp::kSum) result += value(r, i);
        if (op == ReduceOp::kMin) result = std::min(result, value(r, i));
        if (op == ReduceOp::kMax) result = std::max(result, value(r, i));
        if (op == ReduceOp::kProduct) result *= value(r, i);
        if (op == ReduceOp::kAverage) result = value(r, i);
      }
      return result;
    };
    ContractBatch contract;
    contract.batch.dtype = dtype();
    contract.batch.reduce_op = op;
    contract.batch.absent = absent;
    const TensorShape shape{static_cast<std::int64_t>(elements)};
    contract.Add(MakeBuffer(dtype(), elements, [&](std::size_t i) { return value(rank.rank, i); }),
                 shape, shape, in_place);
    rank.RunOk(contract.batch);
    contract.ExpectOutput(0, MakeBuffer(dtype(), elements, expected));
  }

  // Tensors of row shape `row`, of which rank r has rows[r].
  void CheckAllgather(ContractRank& rank, const std::vector<std::int64_t>& rows,
                      const std::vector<std::int64_t>& row) const {
    const auto shape_of = [&row](std::int64_t count) { return RowsOf(count, row); };
    Bytes expected;
    std::int64_t all_rows = 0;
    for (int r = 0; r < size(); ++r) {
      const std::int64_t count = rows[static_cast<std::size_t>(r)];
      const Bytes part = ContractData::Pattern(dtype(), r, 0, Elements(shape_of(count)));
      expected.insert(expected.end(), part.begin(), part.end());
      all_rows += count;
    }
    const TensorShape mine = shape_of(rows[static_cast<std::size_t>(rank.rank)]);
    ContractBatch contract;
    contract.batch.kind = CollectiveKind::kAllgather;
    contract.batch.dtype = dtype();
    contract.Add(ContractData::Pattern(dtype(), rank.rank, 0, Elements(mine)), mine,
                 shape_of(all_rows), /*in_place=*/false, rows);
    rank.RunOk(contract.batch);
    contract.ExpectOutput(0, expected);
  }

  void CheckBroadcast(ContractRank& rank, int root, const TensorShape& shape, bool in_place) const {
    ContractBatch contract;
    contract.batch.kind = CollectiveKind::kBroadcast;
    contract.batch.dtype = dtype();
    contract.batch.root_rank = root;
    contract.Add(ContractData::Pattern(dtype(), rank.rank, 0, Elements(shape)), shape, shape,
                 in_place);
    rank.RunOk(contract.batch);
    contract.ExpectOutput(0, ContractData::Pattern(dtype(), root, 0, Elements(shape)));
  }

  // Tensors of row shape `row`, of which rank r has splits[r][q] rows for rank q.
  void CheckAlltoall(ContractRank& rank, const SplitsOfRanks& splits,
                     const std::vector<std::int64_t>& row) const {
    const auto sum = [](const std::vector<std::int64_t>& rows) {
      return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    };
    const auto self = static_cast<std::size_t>(rank.rank);
    const auto row_bytes =
        static_cast<std::ptrdiff_t>(Elements(RowsOf(1, row)) * Info(dtype()).size);
    const auto input_of = [&](std::size_t r) {
      return ContractData::Pattern(dtype(), static_cast<int>(r), 0,
                                   Elements(RowsOf(sum(splits[r]), row)));
    };
    Bytes expected;
    for (std::size_t r = 0; r < splits.size(); ++r) {
      const Bytes all = input_of(r);
      const std::vector<std::int64_t> before(splits[r].begin(), splits[r].begin() + rank.rank);
      const auto first = all.begin() + sum(before) * row_bytes;
      expected.insert(expected.end(), first, first + splits[r][self] * row_bytes);
    }
    ContractBatch contract;
    contract.batch.kind = CollectiveKind::kAlltoall;
    contract.batch.dtype = dtype();
    contract.Add(input_of(self), RowsOf(sum(splits[self]), row),
                 RowsOf(sum(RowsReceived(splits, rank.rank)), row), /*in_place=*/false, {}, splits);
    rank.RunOk(contract.batch);
    contract.ExpectOutput(0, expected);
  }

  void CheckReducescatter(ContractRank& rank, ReduceOp op, const TensorShape& shape) const {
    const auto value = [&](std::size_t i) {
      return op == ReduceOp::kProduct ? ContractData::Factor(rank.rank, i)
                                      : ContractData::Value(rank.rank, size(), 0, i);
    };
    const auto row = static_cast<std::size_t>(shape.row_elements());
    const std::size_t first =
        static_cast<std::size_t>(BeginOfShare(shape.dim(0), rank.rank, size())) * row;
    TensorShape share = shape;
    share.set_dim(0, RowsOfShare(shape.dim(0), rank.rank, size()));
    ContractBatch contract;
    contract.batch.kind = CollectiveKind::kReducescatter;
    contract.batch.dtype = dtype();
    contract.batch.reduce_op = op;
    contract.Add(MakeBuffer(dtype(), Elements(shape), value), shape, share, /*in_place=*/false);
    rank.RunOk(contract.batch);
    contract.ExpectOutput(0, MakeBuffer(dtype(), Elements(share), [&](std::size_t i) {
                            return ContractData::Reduced(op, size(), 0, first + i);
                          }));
  }

  static std::size_t Elements(const TensorShape& shape) {
    return static_cast<std::size_t>(shape.elements());
  }
};

// Of types with arithmetic.
class BackendReduceContract : public BackendContract {};

// Supports() may refuse types, but never differently on different ranks; here it must not refuse.
#define HVD_INSTANTIATE_BACKEND_CONTRACT_OF_TYPES(prefix, factories, sizes, types)    \
  INSTANTIATE_TEST_SUITE_P(                                                           \
      prefix, BackendContract,                                                        \
      testing::Combine(factories, sizes,                                              \
                       testing::ValuesIn(::horovod_tf::ContractTypes(types, false))), \
      ::horovod_tf::ContractParamName);                                               \
  INSTANTIATE_TEST_SUITE_P(                                                           \
      prefix, BackendReduceContract,                                                  \
      testing::Combine(factories, sizes,                                              \
                       testing::ValuesIn(::horovod_tf::ContractTypes(types, true))),  \
      ::horovod_tf::ContractParamName)

#define HVD_INSTANTIATE_BACKEND_CONTRACT(prefix, factories, sizes) \
  HVD_INSTANTIATE_BACKEND_CONTRACT_OF_TYPES(prefix, factories, sizes, ::horovod_tf::AllTypes())

inline std::vector<DataType> AllTypes() {
  std::vector<DataType> types;
  for (const DataTypeInfo& info : DataTypes()) types.push_back(info.type);
  return types;
}

// One of each size, and of each kind of arithmetic: a backend that has all types right on a few
// ranks moves and reduces the others as these on many.
inline std::vector<DataType> FewTypes() {
  return {DataType::kUInt8, DataType::kBool,    DataType::kBFloat16,
          DataType::kInt32, DataType::kFloat64, DataType::kComplex128};
}

inline std::vector<DataType> ContractTypes(std::vector<DataType> types, bool reducible_only) {
  const auto left_out = [&](DataType type) { return reducible_only && !Info(type).reducible; };
  types.erase(std::remove_if(types.begin(), types.end(), left_out), types.end());
  return types;
}

}  // namespace horovod_tf

#endif  // HOROVOD_TF_TEST_CPP_CONTRACT_BACKEND_CONTRACT_H_
