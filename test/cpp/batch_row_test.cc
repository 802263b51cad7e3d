#include "horovod_tf/common/collectives/batch_row.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "horovod_tf/common/collectives/cpu_hints.h"

namespace horovod_tf {
namespace {

// Tensors of bytes with these sizes; input byte i of the row is i + 1.
struct Row {
  explicit Row(const std::vector<std::int64_t>& sizes) {
    const auto total = static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), 0L));
    inputs.resize(total);
    std::iota(inputs.begin(), inputs.end(), static_cast<unsigned char>(1));
    outputs.assign(total, 0);
    std::size_t at = 0;
    for (std::int64_t size : sizes) {
      const TensorView input{DataType::kUInt8, {size}, size == 0 ? nullptr : inputs.data() + at};
      const TensorView output{DataType::kUInt8, {size}, size == 0 ? nullptr : outputs.data() + at};
      batch.tensors.push_back({"t", input, output, {}});
      at += static_cast<std::size_t>(size);
    }
  }
  std::vector<unsigned char> inputs;
  std::vector<unsigned char> outputs;
  Batch batch;
};

void Memcpy(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

TEST(BatchRow, EveryRange_IsCutWhereTensorsEnd) {
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{10}, {3, 0, 4, 1, 2}, {0, 0, 5, 5}, {9, 1, 0, 0}, {0}}) {
    Row row(sizes);
    const BatchRow it(row.batch);
    ASSERT_EQ(it.bytes(), row.inputs.size());
    for (std::size_t begin = 0; begin <= it.bytes(); ++begin) {
      for (std::size_t end = begin; end <= it.bytes(); ++end) {
        std::size_t next = begin;
        it.ForEachPiece({begin, end}, [&](const BatchRow::Piece& piece) {
          EXPECT_EQ(piece.at, next - begin);
          EXPECT_EQ(piece.input, row.inputs.data() + next);
          EXPECT_EQ(piece.output, row.outputs.data() + next);
          EXPECT_GT(piece.bytes, 0U);
          next += piece.bytes;
        });
        EXPECT_EQ(next, end);
      }
    }
  }
}

TEST(BatchRow, APieceNeverReachesIntoTheNextTensor) {
  Row row({3, 4});
  std::vector<std::size_t> sizes;
  BatchRow(row.batch).ForEachPiece(
      {1, 6}, [&](const BatchRow::Piece& piece) { sizes.push_back(piece.bytes); });
  EXPECT_EQ(sizes, (std::vector<std::size_t>{2, 3}));
}

TEST(BatchRow, CopiesOfARange_TouchNothingElse) {
  Row row({3, 0, 4, 1, 2});
  const BatchRow it(row.batch);
  std::vector<unsigned char> copy(10, 0xee);
  it.CopyInputs({2, 8}, copy.data());
  EXPECT_EQ(copy, (std::vector<unsigned char>{3, 4, 5, 6, 7, 8, 0xee, 0xee, 0xee, 0xee}));
  it.CopyToOutputs({2, 8}, copy.data(), Memcpy);
  EXPECT_EQ(row.outputs, (std::vector<unsigned char>{0, 0, 3, 4, 5, 6, 7, 8, 0, 0}));
}

TEST(CpuHints, CopyPastCaches_CopiesWhateverLiesWhere) {
  std::vector<unsigned char> from(1000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 7 + 1);
  for (std::size_t to_at = 0; to_at < 70; to_at += 3) {
    for (std::size_t from_at : {0U, 1U, 16U, 63U}) {
      for (std::size_t bytes : {0U, 1U, 15U, 63U, 64U, 65U, 128U, 200U, 777U}) {
        std::vector<unsigned char> to(1000, 0xee);
        std::vector<unsigned char> expected = to;
        CopyPastCaches(to.data() + to_at, from.data() + from_at, bytes);
        std::memcpy(expected.data() + to_at, from.data() + from_at, bytes);
        ASSERT_EQ(to, expected) << to_at << " " << from_at << " " << bytes;
      }
    }
  }
}

}  // namespace
}  // namespace horovod_tf
