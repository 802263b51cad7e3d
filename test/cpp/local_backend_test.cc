#include "horovod_tf/common/collectives/local_backend.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "test/cpp/contract/backend_contract.h"

namespace horovod_tf {
namespace {

std::unique_ptr<ThreadedWorld> MakeLocalWorld(int size) {
  const std::shared_ptr<LocalMeeting> meeting = MakeLocalMeeting(size);
  std::vector<std::unique_ptr<CollectiveBackend>> backends;
  for (int rank = 0; rank < size; ++rank) backends.push_back(MakeLocalBackend(rank, meeting));
  return std::make_unique<ThreadedWorld>(std::move(backends));
}

HVD_INSTANTIATE_BACKEND_CONTRACT(Local,
                                 testing::Values(ContractWorldFactory{"local", MakeLocalWorld}),
                                 testing::Values(1, 2, 3));
HVD_INSTANTIATE_BACKEND_CONTRACT_OF_TYPES(LocalOfMany,
                                          testing::Values(ContractWorldFactory{"local",
                                                                               MakeLocalWorld}),
                                          testing::Values(5, 8), FewTypes());

// One allreduce of floats, the same on every rank unless a test changes it.
struct Sum {
  explicit Sum(std::size_t elements = 3, float value = 1) : data(elements, value) {
    BatchTensor tensor;
    tensor.name = "gradient";
    tensor.input = {DataType::kFloat32, {static_cast<std::int64_t>(elements)}, data.data()};
    tensor.output = tensor.input;
    batch.tensors.push_back(tensor);
  }
  std::vector<float> data;
  Batch batch;
};

// What every rank is told when rank 1's batch was changed by `change`.
std::vector<Status> RunOutOfStep(int size, const std::function<void(Batch*)>& change) {
  std::vector<Status> statuses(static_cast<std::size_t>(size));
  MakeLocalWorld(size)->Run([&](ContractRank& rank) {
    Sum sum;
    if (rank.rank == 1) change(&sum.batch);
    statuses[static_cast<std::size_t>(rank.rank)] = rank.Run(sum.batch);
  });
  return statuses;
}

void ExpectOutOfStep(const std::function<void(Batch*)>& change, const std::string& description) {
  for (const Status& status : RunOutOfStep(3, change)) {
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    // Rank 1 is compared with whoever came before it, or the other way round.
    EXPECT_NE(status.message().find("rank 1 runs " + description), std::string::npos) << status;
    const bool other = status.message().find(
                           "rank 0 runs allreduce Sum of 1 float32 tensor: "
                           "gradient [3]") != std::string::npos ||
                       status.message().find(
                           "rank 2 runs allreduce Sum of 1 float32 tensor: "
                           "gradient [3]") != std::string::npos;
    EXPECT_TRUE(other) << status;
  }
}

TEST(LocalBackend, RanksBringDifferentKinds_AllAreToldBoth) {
  ExpectOutOfStep(
      [](Batch* batch) {
        batch->kind = CollectiveKind::kBroadcast;
        batch->root_rank = 2;
      },
      "broadcast from rank 2 of 1 float32 tensor: gradient [3]");
}

TEST(LocalBackend, RanksBringDifferentTypes_AllAreToldBoth) {
  ExpectOutOfStep(
      [](Batch* batch) {
        batch->dtype = DataType::kInt32;
        batch->tensors[0].input.dtype = DataType::kInt32;
      },
      "allreduce Sum of 1 int32 tensor: gradient [3]");
}

TEST(LocalBackend, RanksBringDifferentShapes_AllAreToldBoth) {
  ExpectOutOfStep(
      [](Batch* batch) {
        batch->tensors[0].input.shape = {1, 3};
      },
      "allreduce Sum of 1 float32 tensor: gradient [1, 3]");
}

TEST(LocalBackend, RanksBringDifferentNames_AllAreToldBoth) {
  ExpectOutOfStep([](Batch* batch) { batch->tensors[0].name = "bias"; },
                  "allreduce Sum of 1 float32 tensor: bias [3]");
}

TEST(LocalBackend, RanksBringDifferentOps_AllAreToldBoth) {
  ExpectOutOfStep([](Batch* batch) { batch->reduce_op = ReduceOp::kMax; },
                  "allreduce Max of 1 float32 tensor: gradient [3]");
}

TEST(LocalBackend, RanksBringDifferentNumbersOfTensors_AllAreToldBoth) {
  ExpectOutOfStep(
      [](Batch* batch) { batch->tensors.resize(5, batch->tensors[0]); },
      "allreduce Sum of 5 float32 tensors: gradient [3], gradient [3], gradient [3], ...");
}

TEST(LocalBackend, RanksBringDifferentFactors_AllFail) {
  for (const Status& status : RunOutOfStep(2, [](Batch* batch) { batch->postscale = 2; })) {
    EXPECT_EQ(status.code(), StatusCode::kInternal);
  }
}

TEST(LocalBackend, AllgathersWithOtherRowShapes_AllFail) {
  std::vector<Status> statuses(2);
  MakeLocalWorld(2)->Run([&](ContractRank& rank) {
    Sum sum(6);
    sum.batch.kind = CollectiveKind::kAllgather;
    BatchTensor& tensor = sum.batch.tensors[0];
    tensor.input.shape = rank.rank == 0 ? TensorShape{2, 3} : TensorShape{3, 2};
    tensor.first_dims = {2, 3};
    statuses[static_cast<std::size_t>(rank.rank)] = rank.Run(sum.batch);
  });
  for (const Status& status : statuses) EXPECT_EQ(status.code(), StatusCode::kInternal) << status;
}

TEST(LocalBackend, AfterAFailure_EveryLaterRunReturnsTheFirstError) {
  const std::unique_ptr<ThreadedWorld> world = MakeLocalWorld(2);
  std::vector<std::string> texts(4);
  world->Run([&](ContractRank& rank) {
    for (std::size_t round = 0; round < 2; ++round) {
      Sum sum(round == 0 ? 3 + static_cast<std::size_t>(rank.rank) : 3);
      texts[round * 2 + static_cast<std::size_t>(rank.rank)] = rank.Run(sum.batch).ToString();
    }
  });
  EXPECT_NE(texts[0].find("ranks are out of step"), std::string::npos) << texts[0];
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
}

TEST(LocalBackend, APeerNeverComes_WaitingRanksReturnTheInterruption) {
  const std::unique_ptr<ThreadedWorld> world = MakeLocalWorld(3);
  std::vector<Status> statuses(3);
  const auto start = std::chrono::steady_clock::now();
  world->Run([&](ContractRank& rank) {
    if (rank.rank == 2) {  // never brings its batch; the job finds out
      world->context(0).Interrupt(Status::Aborted("rank 2 has left"));
      return;
    }
    Sum sum;
    statuses[static_cast<std::size_t>(rank.rank)] = rank.Run(sum.batch);
    EXPECT_EQ(sum.data, std::vector<float>(3, 1.0F)) << "touched by an operation that never began";
  });
  for (int rank : {0, 1}) {
    EXPECT_EQ(statuses[static_cast<std::size_t>(rank)].ToString(), "Aborted: rank 2 has left");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(LocalBackend, WhileWaiting_TheContextIsAskedAtLeastEvery100Milliseconds) {
  const std::unique_ptr<ThreadedWorld> world = MakeLocalWorld(2);
  world->Run([&](ContractRank& rank) {
    if (rank.rank == 1) {
      // Comes when rank 0 has asked three times, which the deadlines of the world bound.
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (world->context(0).questions() < 3 && std::chrono::steady_clock::now() < limit) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    Sum sum;
    rank.RunOk(sum.batch);
  });
  EXPECT_GE(world->context(0).questions(), 3);
}

TEST(LocalBackend, InterruptedWhileOthersWork_AllRanksGetTheSameOutcome) {
  // Wherever the interruption falls, no rank may take for done what another takes for failed.
  for (int trial = 0; trial < 30; ++trial) {
    const std::unique_ptr<ThreadedWorld> world = MakeLocalWorld(3);
    std::vector<std::vector<bool>> ok(3);
    world->Run([&](ContractRank& rank) {
      for (int round = 0; round < 60; ++round) {
        if (rank.rank == 1 && round == 10) {
          world->context(trial % 3).Interrupt(Status::Aborted("stop"));
        }
        Sum sum(100 + static_cast<std::size_t>(trial));
        ok[static_cast<std::size_t>(rank.rank)].push_back(rank.Run(sum.batch).ok());
      }
    });
    EXPECT_FALSE(ok[0].back()) << "the interruption went unnoticed";
    EXPECT_EQ(ok[0], ok[1]);
    EXPECT_EQ(ok[0], ok[2]);
  }
}

TEST(LocalBackend, InterruptedAfterThePeerHasBegun_BothReturnItButNotBeforeThePeerIsDone) {
  const std::unique_ptr<ThreadedWorld> world = MakeLocalWorld(2);
  std::promise<void> rank_1_waits;
  std::promise<void> rank_0_asked;
  constexpr std::chrono::seconds kLimit{20};
  int questions_of_1 = 0;
  world->context(1).AnswerWith([&] {  // held up between being met and starting to work
    if (questions_of_1++ > 0) return Status::Ok();
    rank_1_waits.set_value();
    EXPECT_EQ(rank_0_asked.get_future().wait_for(kLimit), std::future_status::ready);
    return Status::Ok();
  });
  int questions_of_0 = 0;
  world->context(0).AnswerWith([&] {
    // Only when it asks again has the meeting taken note of the first answer.
    if (questions_of_0++ == 1) rank_0_asked.set_value();
    return Status::Aborted("stop");
  });
  std::vector<std::string> texts(2);
  world->Run([&](ContractRank& rank) {
    Sum sum(1000, static_cast<float>(rank.rank + 1));
    if (rank.rank == 0) {
      EXPECT_EQ(rank_1_waits.get_future().wait_for(kLimit), std::future_status::ready);
    }
    texts[static_cast<std::size_t>(rank.rank)] = rank.Run(sum.batch).ToString();
    // Both shares are complete: rank 1 has worked on rank 0's buffer while that was still there.
    EXPECT_EQ(sum.data, std::vector<float>(1000, 3.0F));
  });
  EXPECT_EQ(texts, std::vector<std::string>(2, "Aborted: stop"));
}

TEST(LocalBackend, OutputsOfAllRanks_AreTheSameBits) {
  std::vector<std::vector<float>> results(5);
  MakeLocalWorld(5)->Run([&](ContractRank& rank) {
    Sum sum(1001);
    for (std::size_t i = 0; i < sum.data.size(); ++i) {
      sum.data[i] = 1.0F / static_cast<float>(7 * i + 3 * static_cast<std::size_t>(rank.rank) + 1);
    }
    sum.batch.reduce_op = ReduceOp::kAverage;
    rank.RunOk(sum.batch);
    results[static_cast<std::size_t>(rank.rank)] = sum.data;
  });
  for (const std::vector<float>& result : results) EXPECT_EQ(result, results[0]);
}

TEST(LocalBackend, EveryKind_NamesItsActivity) {
  const std::unique_ptr<ThreadedWorld> world = MakeLocalWorld(1);
  world->Run([](ContractRank& rank) {
    for (const CollectiveKindInfo& kind : CollectiveKinds()) {
      Sum sum;
      sum.batch.kind = kind.kind;
      sum.batch.tensors[0].first_dims = {3};
      sum.batch.tensors[0].splits = {{3}};
      rank.RunOk(sum.batch);
    }
  });
  EXPECT_EQ(world->context(0).activities(),
            (std::vector<std::string>{"LOCAL_ALLREDUCE", "LOCAL_ALLGATHER", "LOCAL_BCAST",
                                      "LOCAL_ALLTOALL", "LOCAL_REDUCESCATTER"}));
}

TEST(LocalBackend, OneRank_NeverWaits) {
  const std::unique_ptr<ThreadedWorld> world = MakeLocalWorld(1);
  world->context(0).Interrupt(Status::Aborted("nobody should ask"));
  world->Run([](ContractRank& rank) {
    Sum sum;
    rank.RunOk(sum.batch);
  });
  EXPECT_EQ(world->context(0).questions(), 0);
}

TEST(LocalBackend, ATensorOnAGpu_IsRefusedWithTheReason) {
  const std::unique_ptr<CollectiveBackend> backend = MakeLocalBackend(0, MakeLocalMeeting(1));
  Batch batch;
  batch.device = 3;
  EXPECT_EQ(backend->Supports(batch).ToString(), "Unimplemented: moves tensors on CPU only");
}

TEST(LocalBackend, AllreduceOfATypeWithoutArithmetic_IsRefused) {
  const std::unique_ptr<CollectiveBackend> backend = MakeLocalBackend(0, MakeLocalMeeting(1));
  Batch batch;
  batch.dtype = DataType::kBool;
  EXPECT_EQ(backend->Supports(batch).ToString(), "Unimplemented: bool has no arithmetic");
  batch.kind = CollectiveKind::kBroadcast;
  EXPECT_TRUE(backend->Supports(batch).ok());
}

}  // namespace
}  // namespace horovod_tf
