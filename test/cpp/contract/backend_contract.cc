#include "test/cpp/contract/backend_contract.h"

namespace horovod_tf {

// Not every program that links these instantiates them for every type.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BackendContract);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BackendReduceContract);

TEST_P(BackendReduceContract, AllreduceOfEveryOpAndShape_MatchesTheClosedForm) {
  OnEveryRank([this](ContractRank& rank) {
    for (const ReduceOpInfo& op : ReduceOps()) {
      if (!CanReduce(dtype(), op.op)) continue;
      for (const TensorShape& shape : ContractShapes()) {
        for (bool in_place : {false, true}) {
          SCOPED_TRACE(std::string(op.name) + " " + shape.ToString());
          CheckAllreduce(rank, op.op, {shape}, in_place);
        }
      }
    }
  });
}

TEST_P(BackendReduceContract, AllreduceOfFusedTensors_MatchesTheClosedForm) {
  std::vector<TensorShape> many(40, TensorShape{3});
  many[20] = {0};
  OnEveryRank([&](ContractRank& rank) {
    for (bool in_place : {false, true}) {
      CheckAllreduce(rank, ReduceOp::kSum, {{17}, {2, 3}, {}}, in_place);
      CheckAllreduce(rank, ReduceOp::kAverage, ContractShapes(), in_place);
      CheckAllreduce(rank, ReduceOp::kProduct, {{0}, {0, 3}}, in_place);
      CheckAllreduce(rank, ReduceOp::kSum, many, in_place);
    }
  });
}

TEST_P(BackendReduceContract, AllreduceWithFactors_ScalesInputsAndResult) {
  OnEveryRank([this](ContractRank& rank) {
    const TensorShape shape{1000};
    for (bool in_place : {false, true}) {
      ContractBatch contract;
      contract.batch.dtype = dtype();
      contract.batch.prescale = 0.5;
      contract.batch.postscale = 3.0;
      // Even, so that halves are exact in every type.
      contract.Add(
          MakeBuffer(dtype(), 1000,
                     [&](std::size_t i) { return 2 * ContractData::Turn(rank.rank, size(), i); }),
          shape, shape, in_place);
      rank.RunOk(contract.batch);
      const std::int64_t sum = size() * (size() - 1) / 2;
      contract.ExpectOutput(0, MakeBuffer(dtype(), 1000, [sum](std::size_t) { return 3 * sum; }));
    }
  });
}

TEST_P(BackendReduceContract, AllreduceWithoutAbsentRanks_IsOneOverTheOthers) {
  if (size() == 1) return;
  std::vector<int> all_but_one;
  for (int rank = 0; rank < size(); ++rank) {
    if (rank != 1) all_but_one.push_back(rank);
  }
  OnEveryRank([&](ContractRank& rank) {
    for (const ReduceOpInfo& op : ReduceOps()) {
      if (!CanReduce(dtype(), op.op)) continue;
      for (const std::vector<int>& absent : {std::vector<int>{0}, {size() - 1}, all_but_one}) {
        for (const std::size_t elements : {0U, 1000U, 40000U}) {
          if (elements > 1000 && op.op != ReduceOp::kSum) continue;
          SCOPED_TRACE(std::string(op.name) + " of " + std::to_string(elements) + " without " +
                       std::to_string(absent.size()) + " from " + std::to_string(absent.front()));
          CheckReduceWithout(rank, op.op, absent, elements, /*in_place=*/elements % 2 == 0);
        }
      }
    }
    // And nothing of it stays.
    CheckAllreduce(rank, ReduceOp::kSum, {{1000}}, /*in_place=*/false);
  });
}

TEST_P(BackendContract, AllgatherOfEveryShape_IsInRankOrder) {
  OnEveryRank([this](ContractRank& rank) {
    const std::vector<std::vector<std::int64_t>> row_shapes = {{}, {1}, {3}, {0}, {2, 5}, {17, 1}};
    for (const std::vector<std::int64_t>& row : row_shapes) {
      for (std::int64_t each : {0, 1, 2, 3, 17, 1000, 4097}) {
        SCOPED_TRACE(std::to_string(each) + " rows");
        std::vector<std::int64_t> rows(static_cast<std::size_t>(size()), each);
        if (each < 1000 || row.empty()) CheckAllgather(rank, rows, row);
      }
    }
  });
}

TEST_P(BackendContract, AllgatherOfDifferentNumbersOfRows_IsInRankOrder) {
  OnEveryRank([this](ContractRank& rank) {
    const auto ranks = static_cast<std::size_t>(size());
    std::vector<std::int64_t> rising(ranks);
    std::vector<std::int64_t> every_other(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      rising[r] = static_cast<std::int64_t>(r);  // rank 0 has none
      every_other[r] = r % 2 == 0 ? 1000 : 0;
    }
    CheckAllgather(rank, rising, {3});
    CheckAllgather(rank, every_other, {});
    for (std::size_t only = 0; only < ranks; ++only) {
      std::vector<std::int64_t> rows(ranks, 0);
      rows[only] = 17;
      CheckAllgather(rank, rows, {2, 2});
    }
  });
}

TEST_P(BackendContract, BroadcastFromEveryRoot_GivesTheRootsBytes) {
  OnEveryRank([this](ContractRank& rank) {
    for (int root = 0; root < size(); ++root) {
      for (const TensorShape& shape : ContractShapes()) {
        for (bool in_place : {false, true}) {
          // Large ones once: what depends on the root does not depend on the size.
          if (Elements(shape) > 1000 && root != size() - 1) continue;
          SCOPED_TRACE("root " + std::to_string(root) + " " + shape.ToString());
          CheckBroadcast(rank, root, shape, in_place);
        }
      }
    }
  });
}

TEST_P(BackendReduceContract, ReducescatterOfEveryOpAndShape_GivesEachRankItsRows) {
  OnEveryRank([this](ContractRank& rank) {
    for (const ReduceOpInfo& op : ReduceOps()) {
      if (!CanReduce(dtype(), op.op)) continue;
      for (const TensorShape& shape : ContractShapes()) {
        if (shape.rank() == 0) continue;
        SCOPED_TRACE(std::string(op.name) + " " + shape.ToString());
        CheckReducescatter(rank, op.op, shape);
      }
      for (std::int64_t rows = 1; rows <= 2 * size() + 1; ++rows) {
        CheckReducescatter(rank, op.op, {rows, 3});
      }
    }
  });
}

TEST_P(BackendReduceContract, ReducescatterWithFactors_ScalesInputsAndResult) {
  OnEveryRank([this](ContractRank& rank) {
    const TensorShape shape{1000};
    const std::int64_t rows = RowsOfShare(1000, rank.rank, size());
    ContractBatch contract;
    contract.batch.kind = CollectiveKind::kReducescatter;
    contract.batch.dtype = dtype();
    contract.batch.prescale = 0.5;
    contract.batch.postscale = 3.0;
    contract.Add(
        MakeBuffer(dtype(), 1000,
                   [&](std::size_t i) { return 2 * ContractData::Turn(rank.rank, size(), i); }),
        shape, {rows}, /*in_place=*/false);
    rank.RunOk(contract.batch);
    const std::int64_t sum = size() * (size() - 1) / 2;
    contract.ExpectOutput(0, MakeBuffer(dtype(), static_cast<std::size_t>(rows),
                                        [sum](std::size_t) { return 3 * sum; }));
  });
}

TEST_P(BackendContract, AlltoallOfEqualSplits_GivesEachRankItsRows) {
  OnEveryRank([this](ContractRank& rank) {
    const auto ranks = static_cast<std::size_t>(size());
    const std::vector<std::vector<std::int64_t>> row_shapes = {{}, {1}, {3}, {0}, {2, 5}, {17, 1}};
    for (const std::vector<std::int64_t>& row : row_shapes) {
      for (std::int64_t each : {0, 1, 2, 3, 17, 1000}) {
        if (each == 1000 && !row.empty()) continue;
        SCOPED_TRACE(std::to_string(each) + " rows for each");
        CheckAlltoall(rank, SplitsOfRanks(ranks, std::vector<std::int64_t>(ranks, each)), row);
      }
    }
  });
}

TEST_P(BackendContract, AlltoallOfDifferentSplits_GivesEachRankItsRows) {
  OnEveryRank([this](ContractRank& rank) {
    const auto ranks = static_cast<std::size_t>(size());
    const SplitsOfRanks none(ranks, std::vector<std::int64_t>(ranks, 0));
    SplitsOfRanks mixed = none;
    SplitsOfRanks to_last = none;
    SplitsOfRanks from_first = none;
    SplitsOfRanks to_itself = none;
    for (std::size_t r = 0; r < ranks; ++r) {
      for (std::size_t q = 0; q < ranks; ++q) {
        mixed[r][q] = static_cast<std::int64_t>((r * 5 + q * 3) % 4 * 7);
      }
      to_last[r].back() = static_cast<std::int64_t>(r) * 400 + 1;
      from_first[0][r] = 4097 / static_cast<std::int64_t>(r + 1);
      to_itself[r][r] = 17;
    }
    for (const SplitsOfRanks& splits : {none, mixed, to_last, from_first, to_itself}) {
      CheckAlltoall(rank, splits, {});
      CheckAlltoall(rank, splits, {3});
    }
  });
}

TEST_P(BackendContract, KindsInTurn_DoNotDisturbEachOther) {
  OnEveryRank([this](ContractRank& rank) {
    for (int round = 0; round < 50; ++round) {
      CheckBroadcast(rank, round % size(), {round}, round % 2 == 0);
      std::vector<std::int64_t> rows(static_cast<std::size_t>(size()), round % 3);
      CheckAllgather(rank, rows, {2});
      CheckAlltoall(rank, SplitsOfRanks(rows.size(), rows), {1 + round % 2});
      if (!Info(dtype()).reducible) continue;
      CheckAllreduce(rank, ReduceOp::kSum, {{round}, {3}}, true);
      CheckReducescatter(rank, ReduceOp::kSum, {round, 2});
    }
  });
}

}  // namespace horovod_tf
