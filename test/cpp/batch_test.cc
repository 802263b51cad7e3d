#include "horovod_tf/common/collectives/batch.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "test/cpp/contract/typed_values.h"

namespace horovod_tf {
namespace {

// Three tensors, the middle one empty and without a buffer.
class BatchTest : public testing::Test {
 protected:
  BatchTest() {
    batch_.dtype = DataType::kInt32;
    Add("first", {2, 3}, &first_);
    Add("empty", {0, 5}, nullptr);
    Add("last", {}, &last_);
  }

  void Add(const char* name, TensorShape shape, std::vector<std::int32_t>* data) {
    BatchTensor tensor;
    tensor.name = name;
    tensor.input = {DataType::kInt32, std::move(shape), data == nullptr ? nullptr : data->data()};
    tensor.output = tensor.input;
    batch_.tensors.push_back(tensor);
  }

  std::vector<std::int32_t> first_{10, 11, 12, 13, 14, 15};
  std::vector<std::int32_t> last_{99};
  Batch batch_;
};

TEST_F(BatchTest, InputBytes_AreThoseOfAllTensors) {
  EXPECT_EQ(batch_.input_bytes(), 7 * sizeof(std::int32_t));
  EXPECT_EQ(Batch{}.input_bytes(), 0U);
}

TEST_F(BatchTest, Pack_PutsInputsInOrderWithoutGaps) {
  std::vector<std::int32_t> buffer(8, -1);
  PackInputs(batch_, buffer.data());
  EXPECT_EQ(buffer, (std::vector<std::int32_t>{10, 11, 12, 13, 14, 15, 99, -1}));
}

TEST_F(BatchTest, Unpack_GivesEveryOutputItsPart) {
  const std::vector<std::int32_t> buffer = {20, 21, 22, 23, 24, 25, 77};
  UnpackOutputs(batch_, buffer.data());
  EXPECT_EQ(first_, (std::vector<std::int32_t>{20, 21, 22, 23, 24, 25}));
  EXPECT_EQ(last_, (std::vector<std::int32_t>{77}));
}

TEST_F(BatchTest, PackAndUnpack_OfNothing_TouchNothing) {
  batch_.tensors.erase(batch_.tensors.begin());
  batch_.tensors.pop_back();
  PackInputs(batch_, nullptr);
  UnpackOutputs(batch_, nullptr);
  EXPECT_EQ(batch_.input_bytes(), 0U);
}

TEST_F(BatchTest, Reduction_TakesOverTypeOpFactorsAndRanks) {
  batch_.reduce_op = ReduceOp::kAverage;
  batch_.prescale = 0.5;
  batch_.postscale = 3.0;
  const Reduction reduction = batch_.reduction(7);
  EXPECT_EQ(reduction.dtype, DataType::kInt32);
  EXPECT_EQ(reduction.op, ReduceOp::kAverage);
  EXPECT_EQ(reduction.prescale, 0.5);
  EXPECT_EQ(reduction.postscale, 3.0);
  EXPECT_EQ(reduction.divisor, 7);
}

}  // namespace
}  // namespace horovod_tf
