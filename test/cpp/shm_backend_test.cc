#include "horovod_tf/common/collectives/shm_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "horovod_tf/common/base/mutex.h"
#include "horovod_tf/common/collectives/host_reduce.h"
#include "test/cpp/contract/backend_contract.h"

namespace horovod_tf {
namespace {

constexpr std::size_t kSlotBytes = 4096;

std::shared_ptr<ShmSegment> NewSegment(int size, std::size_t slot_bytes) {
  std::shared_ptr<ShmSegment> segment;
  const Status status = ShmSegment::Create(size, slot_bytes, &segment);
  EXPECT_TRUE(status.ok()) << status;
  return segment;
}

std::unique_ptr<CollectiveBackend> MakeBackend(int rank, std::shared_ptr<ShmSegment> segment) {
  const ShmPatience patience = PatienceFor(segment->ranks(), 1);
  return MakeShmBackend(MakeMembership(rank, std::move(segment), {}, patience));
}

// One mapping for all ranks, so that a race between them shows.
std::unique_ptr<ThreadedWorld> MakeShmWorld(int size, std::size_t slot_bytes) {
  const std::shared_ptr<ShmSegment> segment = NewSegment(size, slot_bytes);
  std::vector<std::unique_ptr<CollectiveBackend>> backends;
  for (int rank = 0; rank < size; ++rank) backends.push_back(MakeBackend(rank, segment));
  return std::make_unique<ThreadedWorld>(std::move(backends));
}

ContractWorldFactory Factory(const std::string& name, std::size_t slot_bytes) {
  return {name, [slot_bytes](int size) { return MakeShmWorld(size, slot_bytes); }};
}

// With slots of one page most of the suite's tensors go in several chunks.
HVD_INSTANTIATE_BACKEND_CONTRACT(Shm, testing::Values(Factory("OnePage", kSlotBytes)),
                                 testing::Values(1, 2, 3));
HVD_INSTANTIATE_BACKEND_CONTRACT_OF_TYPES(ShmOfMany,
                                          testing::Values(Factory("OnePage", kSlotBytes)),
                                          testing::Values(4, 5, 8), FewTypes());
// All of them in one.
HVD_INSTANTIATE_BACKEND_CONTRACT_OF_TYPES(ShmLarge, testing::Values(Factory("Large", 256 << 10)),
                                          testing::Values(2, 3), FewTypes());

// Sizes at which the number of chunks or the way of reducing changes, and their neighbours.
std::vector<std::size_t> InterestingSizes(std::size_t slot_bytes, int ranks) {
  std::vector<std::size_t> sizes;
  const std::size_t small = (std::size_t{128} << 10) / static_cast<std::size_t>(ranks);
  std::vector<std::size_t> edges = {small, 128 << 10};
  for (std::size_t chunks = 1; chunks <= 5; ++chunks) edges.push_back(chunks * slot_bytes);
  for (std::size_t edge : edges) {
    for (std::size_t bytes : {edge - 4, edge, edge + 4, edge + 64}) sizes.push_back(bytes / 4);
  }
  return sizes;
}

// Not exact in any sum, and different for every rank and index.
float Fraction(int rank, std::size_t i) {
  return 1.0F / static_cast<float>(3 * i + 7 * static_cast<std::size_t>(rank) + 1) - 0.01F;
}

// Tensors of odd sizes, `elements` in all.
std::vector<std::size_t> Cut(std::size_t elements) {
  std::vector<std::size_t> sizes;
  for (std::size_t next = 1; elements > 0; next = next * 3 + 1) {
    sizes.push_back(std::min(next, elements));
    elements -= sizes.back();
  }
  sizes.push_back(0);
  return sizes;
}

void AddTensors(const std::vector<std::size_t>& sizes, float* input, float* output, Batch* batch) {
  for (std::size_t size : sizes) {
    const TensorShape shape{static_cast<std::int64_t>(size)};
    batch->tensors.push_back({"t" + std::to_string(batch->tensors.size()),
                              {DataType::kFloat32, shape, input},
                              {DataType::kFloat32, shape, output},
                              {}});
    input += size;
    output += size;
  }
}

// A reduction, and what must come out: the bits of a reduction in rank order on one processor.
struct Case {
  Case(std::size_t elements, int ranks) {
    std::vector<const void*> all;
    for (int rank = 0; rank < ranks; ++rank) {
      inputs.emplace_back(elements);
      for (std::size_t i = 0; i < elements; ++i) inputs.back()[i] = Fraction(rank, i);
      all.push_back(inputs.back().data());
    }
    batch.reduce_op = ReduceOp::kAverage;
    batch.prescale = 1.0 / 3;
    expected.resize(elements);
    Reduce(batch.reduction(ranks), all, elements, expected.data());
  }
  std::vector<std::vector<float>> inputs;  // by rank; their buffers stay where they are
  std::vector<float> expected;
  Batch batch;  // without tensors
};

void CheckBits(ContractRank& rank, const Case& it, bool in_place) {
  const std::size_t elements = it.expected.size();
  SCOPED_TRACE(std::to_string(elements) + (in_place ? " elements in place" : " elements"));
  const std::vector<float>& input = it.inputs[static_cast<std::size_t>(rank.rank)];
  std::vector<float> data = input;
  std::vector<float> output(elements, -1.0F);
  Batch batch = it.batch;
  AddTensors(elements % 2 == 0 ? std::vector<std::size_t>{elements} : Cut(elements), data.data(),
             in_place ? data.data() : output.data(), &batch);
  rank.RunOk(batch);
  const std::vector<float>& actual = in_place ? data : output;
  EXPECT_EQ(std::memcmp(actual.data(), it.expected.data(), elements * sizeof(float)), 0);
  if (!in_place) {
    EXPECT_TRUE(data == input) << "an input was written";
  }
}

TEST(ShmBackend, AroundEveryChunksEnd_ResultsAreTheBitsOfASumInRankOrder) {
  for (int ranks : {1, 2, 3, 4, 5, 8}) {
    for (std::size_t slot_bytes : {std::size_t{4096}, std::size_t{64} << 10}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, slots of " + std::to_string(slot_bytes));
      std::vector<Case> cases;
      for (std::size_t size : InterestingSizes(slot_bytes, ranks)) cases.emplace_back(size, ranks);
      MakeShmWorld(ranks, slot_bytes)->Run([&cases](ContractRank& rank) {
        for (const Case& it : cases) {
          CheckBits(rank, it, /*in_place=*/false);
          CheckBits(rank, it, /*in_place=*/true);
        }
      });
    }
  }
}

// `rank`'s bytes.
std::vector<unsigned char> BytesOf(int rank, std::int64_t count) {
  std::vector<unsigned char> bytes(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<unsigned char>(i / 7 + i + static_cast<std::size_t>(rank));
  }
  return bytes;
}

void CheckGather(ContractRank& rank, const std::vector<std::int64_t>& rows,
                 const std::vector<unsigned char>& expected) {
  std::vector<unsigned char> mine = BytesOf(rank.rank, rows[static_cast<std::size_t>(rank.rank)]);
  std::vector<unsigned char> output(expected.size(), 0xa5);
  Batch batch;
  batch.kind = CollectiveKind::kAllgather;
  batch.dtype = DataType::kUInt8;
  const TensorShape in{static_cast<std::int64_t>(mine.size())};
  const TensorShape out{static_cast<std::int64_t>(output.size())};
  batch.tensors.push_back(
      {"rows", {DataType::kUInt8, in, mine.data()}, {DataType::kUInt8, out, output.data()}, rows});
  rank.RunOk(batch);
  EXPECT_TRUE(output == expected);
}

void CheckBroadcast(ContractRank& rank, int root, const std::vector<unsigned char>& expected) {
  std::vector<unsigned char> data(expected.size(), 0);
  if (rank.rank == root) data = expected;
  Batch batch;
  batch.kind = CollectiveKind::kBroadcast;
  batch.dtype = DataType::kUInt8;
  batch.root_rank = root;
  const TensorView view{DataType::kUInt8, {static_cast<std::int64_t>(data.size())}, data.data()};
  batch.tensors.push_back({"sent", view, view, {}});
  rank.RunOk(batch);
  EXPECT_TRUE(data == expected);
}

TEST(ShmBackend, AllgatherAndBroadcastAroundEveryChunksEnd_MoveEveryByte) {
  for (int ranks : {1, 2, 3, 4, 5, 8}) {
    const std::unique_ptr<ThreadedWorld> world = MakeShmWorld(ranks, kSlotBytes);
    for (std::int64_t chunks : {1, 2, 3, 4}) {
      for (std::int64_t bytes : {chunks * 4096 - 1, chunks * 4096, chunks * 4096 + 1}) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(bytes) + " bytes");
        // Some ranks have nothing, or nothing left long before the others.
        std::vector<std::int64_t> rows;
        std::vector<unsigned char> gathered;
        for (int rank = 0; rank < ranks; ++rank) {
          rows.push_back(rank % 3 == 1 ? 0 : bytes / (rank + 1));
          const std::vector<unsigned char> part = BytesOf(rank, rows.back());
          gathered.insert(gathered.end(), part.begin(), part.end());
        }
        const int root = static_cast<int>(bytes) % ranks;
        const std::vector<unsigned char> sent = BytesOf(root, bytes);
        world->Run([&](ContractRank& rank) {
          CheckGather(rank, rows, gathered);
          CheckBroadcast(rank, root, sent);
        });
      }
    }
  }
}

// Rank r has `each` bytes for every rank, and the last rank one more for rank 0.
void CheckExchange(ContractRank& rank, int ranks, std::int64_t each) {
  const auto n = static_cast<std::size_t>(ranks);
  SplitsOfRanks splits(n, std::vector<std::int64_t>(n, each));
  ++splits.back()[0];
  const auto all = [&](int r) { return BytesOf(r, ranks * each + (r == ranks - 1 ? 1 : 0)); };
  std::vector<unsigned char> expected;
  for (int r = 0; r < ranks; ++r) {
    const std::vector<unsigned char> sent = all(r);
    const std::int64_t more = r == ranks - 1 ? 1 : 0;
    const auto first = sent.begin() + rank.rank * each + (rank.rank > 0 ? more : 0);
    expected.insert(expected.end(), first, first + each + (rank.rank == 0 ? more : 0));
  }
  std::vector<unsigned char> mine = all(rank.rank);
  std::vector<unsigned char> output(expected.size(), 0xa5);
  Batch batch;
  batch.kind = CollectiveKind::kAlltoall;
  batch.dtype = DataType::kUInt8;
  const TensorShape in{static_cast<std::int64_t>(mine.size())};
  const TensorShape out{static_cast<std::int64_t>(output.size())};
  batch.tensors.push_back({"exchanged",
                           {DataType::kUInt8, in, mine.data()},
                           {DataType::kUInt8, out, output.data()},
                           {},
                           splits});
  rank.RunOk(batch);
  EXPECT_TRUE(output == expected);
}

// `rows` bytes, of which the ranks share the sums.
void CheckShares(ContractRank& rank, int ranks, std::int64_t rows) {
  std::vector<unsigned char> expected(static_cast<std::size_t>(rows), 0);
  for (int r = 0; r < ranks; ++r) {
    const std::vector<unsigned char> one = BytesOf(r, rows);
    for (std::size_t i = 0; i < one.size(); ++i) {
      expected[i] = static_cast<unsigned char>(expected[i] + one[i]);
    }
  }
  std::vector<unsigned char> mine = BytesOf(rank.rank, rows);
  const std::int64_t share = RowsOfShare(rows, rank.rank, ranks);
  const auto first = expected.begin() + BeginOfShare(rows, rank.rank, ranks);
  std::vector<unsigned char> output(static_cast<std::size_t>(share), 0xa5);
  Batch batch;
  batch.kind = CollectiveKind::kReducescatter;
  batch.dtype = DataType::kUInt8;
  batch.tensors.push_back({"shared",
                           {DataType::kUInt8, {rows}, mine.data()},
                           {DataType::kUInt8, {share}, output.data()},
                           {}});
  rank.RunOk(batch);
  EXPECT_TRUE(output == std::vector<unsigned char>(first, first + share));
}

TEST(ShmBackend, AlltoallAndReducescatterAroundEveryChunksEnd_MoveEveryByte) {
  for (int ranks : {1, 2, 3, 5, 8}) {
    const std::unique_ptr<ThreadedWorld> world = MakeShmWorld(ranks, kSlotBytes);
    const std::int64_t place = 4096 / ranks / 64 * 64;
    world->Run([&](ContractRank& rank) {
      for (std::int64_t chunks : {1, 2, 3, 4, 5}) {
        for (std::int64_t each : {chunks * place - 1, chunks * place, chunks * place + 1}) {
          SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(each) + " bytes each");
          CheckExchange(rank, ranks, each);
          CheckShares(rank, ranks, each * ranks);
          CheckShares(rank, ranks, each * ranks + 1);
        }
      }
    });
  }
}

// So large that outputs go past the caches, unless they are the inputs.
TEST(ShmBackend, ALargeTensor_IsSummedInEveryElement) {
  constexpr std::size_t kElements = (std::size_t{11} << 20) + 3;
  MakeShmWorld(2, 64 << 10)->Run([](ContractRank& rank) {
    for (bool in_place : {false, true}) {
      std::vector<std::int32_t> input(kElements);
      std::vector<std::int32_t> output(in_place ? 0 : kElements, -1);
      for (std::size_t i = 0; i < kElements; ++i) {
        input[i] = static_cast<std::int32_t>(i) * (rank.rank + 1);
      }
      std::int32_t* const target = in_place ? input.data() : output.data();
      Batch batch;
      batch.dtype = DataType::kInt32;
      const TensorShape shape{static_cast<std::int64_t>(kElements)};
      batch.tensors.push_back({"large",
                               {DataType::kInt32, shape, input.data()},
                               {DataType::kInt32, shape, target},
                               {}});
      rank.RunOk(batch);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < kElements; ++i) {
        wrong += target[i] != static_cast<std::int32_t>(i) * 3 ? 1U : 0U;
      }
      EXPECT_EQ(wrong, 0U);
    }
  });
}

// Fifty gradients on four ranks that are late by turns, ten times: the same bits.
TEST(ShmBackend, RanksThatAreLateByTurns_GetTheSameBitsEveryTime) {
  std::vector<std::vector<float>> results;
  Mutex mutex;
  for (unsigned repeat = 0; repeat < 10; ++repeat) {
    MakeShmWorld(4, kSlotBytes)->Run([&](ContractRank& rank) {
      std::minstd_rand random(repeat * 4 + static_cast<unsigned>(rank.rank) + 1);
      std::vector<float> result;
      for (std::size_t gradient = 0; gradient < 50; ++gradient) {
        std::vector<float> data(1 + gradient * 97);
        for (std::size_t i = 0; i < data.size(); ++i) data[i] = Fraction(rank.rank, i + gradient);
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
        Batch batch;
        AddTensors({data.size()}, data.data(), data.data(), &batch);
        rank.RunOk(batch);
        result.insert(result.end(), data.begin(), data.end());
      }
      const MutexLock lock(mutex);
      results.push_back(std::move(result));
    });
  }
  ASSERT_EQ(results.size(), 40U);
  for (const std::vector<float>& result : results) EXPECT_TRUE(result == results[0]);
}

TEST(ShmBackend, EveryKind_NamesItsActivity) {
  const std::unique_ptr<ThreadedWorld> world = MakeShmWorld(1, kSlotBytes);
  world->Run([](ContractRank& rank) {
    for (const CollectiveKindInfo& kind : CollectiveKinds()) {
      std::vector<float> data(3, 1.0F);
      Batch batch;
      batch.kind = kind.kind;
      AddTensors({3}, data.data(), data.data(), &batch);
      batch.tensors[0].first_dims = {3};
      batch.tensors[0].splits = {{3}};
      rank.RunOk(batch);
    }
  });
  EXPECT_EQ(world->context(0).activities(),
            (std::vector<std::string>{"SHM_ALLREDUCE", "SHM_ALLGATHER", "SHM_BCAST", "SHM_ALLTOALL",
                                      "SHM_REDUCESCATTER"}));
}

TEST(ShmBackend, WhatItCannotDo_IsRefusedWithTheReason) {
  const std::unique_ptr<CollectiveBackend> backend = MakeBackend(0, NewSegment(1, kSlotBytes));
  Batch batch;
  batch.device = 3;
  EXPECT_EQ(backend->Supports(batch).ToString(), "Unimplemented: it moves host memory only");
  batch.device = kCpuDevice;
  batch.dtype = DataType::kBool;
  EXPECT_EQ(backend->Supports(batch).ToString(), "Unimplemented: bool has no arithmetic");
  batch.kind = CollectiveKind::kReducescatter;
  EXPECT_EQ(backend->Supports(batch).ToString(), "Unimplemented: bool has no arithmetic");
  batch.dtype = DataType::kComplex64;
  EXPECT_TRUE(backend->Supports(batch).ok());
  batch.reduce_op = ReduceOp::kMax;
  EXPECT_EQ(backend->Supports(batch).ToString(), "Unimplemented: complex64 has no order");
  for (const CollectiveKind kind : {CollectiveKind::kBroadcast, CollectiveKind::kAlltoall}) {
    batch.kind = kind;
    EXPECT_TRUE(backend->Supports(batch).ok());
  }
}

TEST(ShmBackend, ManyRanksAndShortChunks_LeaveBlocksToAnotherBackend) {
  for (const auto& [ranks, enough] : {std::pair(64, true), std::pair(65, false)}) {
    const auto backend = MakeBackend(0, NewSegment(ranks, kSlotBytes));
    for (CollectiveKind kind : {CollectiveKind::kAlltoall, CollectiveKind::kReducescatter}) {
      Batch batch;
      batch.kind = kind;
      EXPECT_EQ(backend->Supports(batch).ok(), enough) << ranks << " ranks";
    }
    EXPECT_TRUE(backend->Supports(Batch{}).ok()) << "an allreduce of " << ranks << " ranks";
  }
}

TEST(ShmBackend, APeerNeverComes_TheOthersReturnTheInterruption) {
  for (std::size_t elements : {std::size_t{3}, std::size_t{100000}}) {
    const std::unique_ptr<ThreadedWorld> world = MakeShmWorld(3, kSlotBytes);
    std::vector<std::string> told(2);
    world->Run([&](ContractRank& rank) {
      if (rank.rank == 2) {
        world->context(0).Interrupt(Status::Aborted("rank 2 has left"));
        return;
      }
      std::vector<float> data(elements, 1.0F);
      for (int i = 0; i < 2; ++i) {  // the second time without waiting
        Batch batch;
        AddTensors({elements}, data.data(), data.data(), &batch);
        told[static_cast<std::size_t>(rank.rank)] = rank.Run(batch).ToString();
      }
    });
    EXPECT_EQ(told, std::vector<std::string>(2, "Aborted: rank 2 has left"));
  }
}

}  // namespace
}  // namespace horovod_tf
