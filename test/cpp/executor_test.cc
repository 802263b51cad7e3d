#include "horovod_tf/common/runtime/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test/cpp/support/executor_fixture.h"

namespace horovod_tf {
namespace {

TEST_F(ExecutorTest, OneTensor_RunsAndIsFinishedBeforeExecuteReturns) {
  TestEntry a("a", 5, 100.0F);
  EXPECT_TRUE(Execute(Group(a.Make())).ok());
  EXPECT_EQ(a.outcome->calls(), 1);
  EXPECT_TRUE(a.outcome->status().ok());
  EXPECT_EQ(a.output, (std::vector<float>{100, 101, 102, 103, 104}));
}

TEST_F(ExecutorTest, ThreeTensors_RunAsOneBatchInOrder) {
  TestEntry a("a", 1, 10.0F), b("b", 0), c("c", 2, 30.0F);
  EXPECT_TRUE(Execute(Group(c.Make(), a.Make(), b.Make())).ok());
  EXPECT_EQ(script_->batches(), (std::vector<std::vector<std::string>>{{"c", "a", "b"}}));
  for (TestEntry* entry : {&a, &b, &c}) {
    EXPECT_EQ(entry->outcome->calls(), 1);
    EXPECT_TRUE(entry->outcome->status().ok());
    EXPECT_EQ(entry->output, entry->input);
  }
}

TEST_F(ExecutorTest, Definition_BecomesTheBatchButTheDeviceIsThisRanks) {
  TestEntry a("a", 4);
  a.request.kind = CollectiveKind::kBroadcast;
  a.request.reduce_op = ReduceOp::kMax;
  a.request.prescale = 0.5;
  a.request.postscale = 3.0;
  a.request.root_rank = 2;
  a.request.device = 7;
  TensorDefinition definition = Define(a.request);
  definition.common.device = 0;
  EXPECT_TRUE(executor_->Execute(Group(a.Make()), {&definition}).ok());
  const Batch batch = script_->last_batch();
  EXPECT_EQ(batch.kind, CollectiveKind::kBroadcast);
  EXPECT_EQ(batch.dtype, DataType::kFloat32);
  EXPECT_EQ(batch.reduce_op, ReduceOp::kMax);
  EXPECT_EQ(batch.prescale, 0.5);
  EXPECT_EQ(batch.postscale, 3.0);
  EXPECT_EQ(batch.root_rank, 2);
  EXPECT_EQ(batch.device, 7);
  ASSERT_EQ(batch.tensors.size(), 1U);
  EXPECT_EQ(batch.tensors[0].input.data, a.input.data());
  EXPECT_EQ(batch.tensors[0].output.data, a.output.data());
  EXPECT_TRUE(batch.tensors[0].first_dims.empty());
}

TEST_F(ExecutorTest, NoBackendSupportsTheBatch_TensorsAreToldButTheJobGoesOn) {
  script_->SetSupports(Status::Unimplemented("not on Tuesdays"));
  TestEntry a("a", 1);
  EXPECT_TRUE(Execute(Group(a.Make())).ok());
  EXPECT_EQ(a.outcome->calls(), 1);
  EXPECT_EQ(a.outcome->status().code(), StatusCode::kUnimplemented);
  EXPECT_TRUE(Contains(a.outcome->status(), "allreduce of tensor 'a'")) << a.outcome->status();
  EXPECT_TRUE(Contains(a.outcome->status(), "not on Tuesdays")) << a.outcome->status();
  script_->SetSupports(Status::Ok());
  TestEntry b("b", 1);
  EXPECT_TRUE(Execute(Group(b.Make())).ok());
  EXPECT_TRUE(b.outcome->status().ok());
}

TEST_F(ExecutorTest, BackendFails_EveryTensorIsToldOnceAndTheErrorIsReturned) {
  script_->Push(ScriptAction::kError, Status::Internal("wire cut"));
  TestEntry a("a", 1), b("b", 2), c("c", 3);
  const Status status = Execute(Group(a.Make(), b.Make(), c.Make()));
  EXPECT_EQ(status.ToString(), "Internal: allreduce of 3 tensors, the first is 'a': wire cut");
  for (TestEntry* entry : {&a, &b, &c}) {
    EXPECT_EQ(entry->outcome->calls(), 1);
    EXPECT_EQ(entry->outcome->status().ToString(), status.ToString());
  }
}

TEST_F(ExecutorTest, BackendThrows_BecomesUnknownWithItsText) {
  script_->Push(ScriptAction::kThrow, Status::Internal("kaputt 9"));
  TestEntry a("a", 1), b("b", 1);
  const Status standard = Execute(Group(a.Make()));
  EXPECT_EQ(standard.code(), StatusCode::kUnknown);
  EXPECT_TRUE(Contains(standard, "kaputt 9")) << standard;
  EXPECT_TRUE(Contains(standard, "backend 'scripted'")) << standard;
  EXPECT_TRUE(Contains(standard, "allreduce of tensor 'a'")) << standard;
  EXPECT_EQ(a.outcome->status().ToString(), standard.ToString());
  script_->Push(ScriptAction::kThrowOther);
  const Status foreign = Execute(Group(b.Make()));
  EXPECT_EQ(foreign.code(), StatusCode::kUnknown);
  EXPECT_TRUE(Contains(foreign, "not derived from std::exception")) << foreign;
  EXPECT_EQ(b.outcome->calls(), 1);
}

TEST_F(ExecutorTest, CompletionTakenOver_FinishesAllWhenTheBackendSaysSoAndOnlyOnce) {
  script_->Push(ScriptAction::kLater);
  TestEntry a("a", 2, 5.0F), b("b", 2, 7.0F);
  EXPECT_TRUE(Execute(Group(a.Make(), b.Make())).ok());
  EXPECT_EQ(a.outcome->calls() + b.outcome->calls(), 0);
  std::function<void(const Status&)> finish = script_->TakeLater(InTenSeconds());
  ASSERT_NE(finish, nullptr);
  std::thread([&finish] { finish(Status::Ok()); }).join();
  finish(Status::Internal("once more"));
  finish = nullptr;
  for (TestEntry* entry : {&a, &b}) {
    EXPECT_EQ(entry->outcome->calls(), 1);
    EXPECT_TRUE(entry->outcome->status().ok());
    EXPECT_EQ(entry->output, entry->input);
  }
}

TEST_F(ExecutorTest, CompletionTakenOver_OutlivesTheExecutorAndOthersRunMeanwhile) {
  script_->Push(ScriptAction::kLater);
  TestEntry a("a", 1), b("b", 1);
  EXPECT_TRUE(Execute(Group(a.Make())).ok());
  EXPECT_TRUE(Execute(Group(b.Make())).ok());
  EXPECT_EQ(b.outcome->calls(), 1);
  EXPECT_EQ(a.outcome->calls(), 0);
  executor_.reset();
  script_->TakeLater(InTenSeconds())(Status::Unknown("stream error"));
  EXPECT_EQ(a.outcome->status().ToString(), "Unknown: allreduce of tensor 'a': stream error");
}

TEST_F(ExecutorTest, CompletionTakenOverAndDropped_IsFinishedWithAborted) {
  script_->Push(ScriptAction::kLater);
  TestEntry a("a", 1), b("b", 1);
  EXPECT_TRUE(Execute(Group(a.Make(), b.Make())).ok());
  script_->TakeLater(InTenSeconds()) = nullptr;
  for (TestEntry* entry : {&a, &b}) {
    EXPECT_EQ(entry->outcome->calls(), 1);
    EXPECT_EQ(entry->outcome->status().code(), StatusCode::kAborted);
    EXPECT_TRUE(Contains(entry->outcome->status(), "dropped it before it was finished"));
  }
}

TEST_F(ExecutorTest, CompletionTakenOverAndRunFails_IsFinishedOnceWithTheError) {
  script_->Push(ScriptAction::kLaterError, Status::Internal("launch failed"));
  TestEntry a("a", 1);
  EXPECT_EQ(Execute(Group(a.Make())).code(), StatusCode::kInternal);
  EXPECT_EQ(a.outcome->calls(), 1);
  script_->TakeLater(InTenSeconds())(Status::Ok());
  EXPECT_EQ(a.outcome->calls(), 1);
  EXPECT_TRUE(Contains(a.outcome->status(), "launch failed"));
}

TEST_F(ExecutorTest, Gather_OutputOfAllRowsIsAllocatedOnceAndGivenToTheBackend) {
  const auto context = std::make_shared<TestContext>();
  TestEntry a("rows", 6, 50.0F);
  EXPECT_TRUE(ExecuteGather(a, context, {4, 2, 0}).ok());
  EXPECT_EQ(context->calls, 1);
  EXPECT_EQ(context->asked, TensorShape({6, 3}));
  const Batch batch = script_->last_batch();
  EXPECT_EQ(batch.tensors[0].output.data, context->storage.data());
  EXPECT_EQ(batch.tensors[0].output.shape, TensorShape({6, 3}));
  EXPECT_EQ(batch.tensors[0].first_dims, (std::vector<std::int64_t>{4, 2, 0}));
  EXPECT_EQ(context->storage[5], 55.0F);
  EXPECT_EQ(a.outcome->calls(), 1);
  EXPECT_TRUE(a.outcome->status().ok());
}

TEST_F(ExecutorTest, Alltoall_OutputHasTheRowsForThisRankAndTheFrameworkIsToldWhose) {
  const auto context = std::make_shared<TestContext>();
  TestEntry a("rows", 6);
  a.request.kind = CollectiveKind::kAlltoall;
  a.request.shape = TensorShape({2, 3});
  a.request.splits = {0, 1, 1};
  TensorEntry entry = a.Make();
  entry.output = TensorView();
  entry.context = context;
  TensorDefinition definition = Define(entry.request);
  definition.splits = {{1, 4, 0}, {0, 1, 1}, {5, 0, 7}};
  EXPECT_TRUE(executor_->Execute(Group(std::move(entry)), {&definition}).ok());
  EXPECT_EQ(context->asked, TensorShape({5, 3}));
  EXPECT_EQ(context->received, (std::vector<std::int64_t>{4, 1, 0}));
  EXPECT_EQ(script_->last_batch().tensors[0].splits, definition.splits);
}

TEST_F(ExecutorTest, Reducescatter_OutputHasThisRanksShareOfTheRows) {
  const auto context = std::make_shared<TestContext>();
  TestEntry a("rows", 10);
  a.request.kind = CollectiveKind::kReducescatter;
  a.request.shape = TensorShape({5, 2});
  TensorEntry entry = a.Make();
  entry.output = TensorView();
  entry.context = context;
  const TensorDefinition definition = Define(entry.request);
  EXPECT_TRUE(executor_->Execute(Group(std::move(entry)), {&definition}).ok());
  EXPECT_EQ(context->asked, TensorShape({2, 2}));
  EXPECT_TRUE(context->received.empty());
}

TEST_F(ExecutorTest, GatherOfNoRows_NeedsNoBuffer) {
  TestEntry a("rows", 6);
  EXPECT_TRUE(
      ExecuteGather(a, std::make_shared<TestContext>(TestContext::Mode::kNoBuffer), {0, 0, 0})
          .ok());
  EXPECT_TRUE(a.outcome->status().ok());
}

TEST_F(ExecutorTest, OutputIsNotAllocatedAsAsked_FailsTheJobWithoutRunningTheBackend) {
  struct Row {
    TestContext::Mode mode;
    StatusCode code;
    const char* text;
  };
  const Row rows[] = {
      {TestContext::Mode::kError, StatusCode::kResourceExhausted, "no room for rows"},
      {TestContext::Mode::kThrow, StatusCode::kUnknown, "allocator kaputt"},
      {TestContext::Mode::kWrongType, StatusCode::kInternal, "int32 [7, 3]"},
      {TestContext::Mode::kWrongShape, StatusCode::kInternal, "float32 [1, 1]"},
      {TestContext::Mode::kNoBuffer, StatusCode::kInternal, "no buffer"},
  };
  for (const Row& row : rows) {
    TestEntry a("rows", 6);
    const Status status = ExecuteGather(a, std::make_shared<TestContext>(row.mode), {4, 2, 1});
    EXPECT_EQ(status.code(), row.code) << status;
    EXPECT_TRUE(Contains(status, row.text)) << status;
    EXPECT_TRUE(Contains(status, "allgather of tensor 'rows'")) << status;
    EXPECT_EQ(a.outcome->calls(), 1);
    EXPECT_EQ(a.outcome->status().ToString(), status.ToString());
  }
  EXPECT_TRUE(script_->batches().empty());
}

TEST_F(ExecutorTest, RowsThatCannotBeAnOutput_AreAnInternalError) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::vector<std::int64_t>> impossible = {
      {}, {1, 2}, {1, 2, 3, 4}, {1, -1, 2}, {kMost, 2, 1}, {kMost / 2, 2, 1}};
  for (const std::vector<std::int64_t>& first_dims : impossible) {
    const auto context = std::make_shared<TestContext>();
    TestEntry a("rows", 6);
    EXPECT_EQ(ExecuteGather(a, context, first_dims).code(), StatusCode::kInternal);
    EXPECT_EQ(context->calls, 0);
    EXPECT_EQ(a.outcome->calls(), 1);
  }
  EXPECT_TRUE(script_->batches().empty());
}

TEST_F(ExecutorTest, InputNotReady_BackendRunsOnlyWhenAllAre) {
  const auto first = std::make_shared<std::atomic<bool>>(false);
  const auto second = std::make_shared<std::atomic<bool>>(false);
  TestEntry a("a", 1), b("b", 1), c("c", 1);
  std::vector<TensorEntry> entries = Group(a.Make(), b.Make(), c.Make());
  entries[0].ready = std::make_unique<TestEvent>(first);
  entries[2].ready = std::make_unique<TestEvent>(second);
  std::thread device([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    *second = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(script_->batches().empty());
    *first = true;
  });
  EXPECT_TRUE(Execute(std::move(entries)).ok());
  EXPECT_TRUE(first->load());
  device.join();
  EXPECT_EQ(script_->batches().size(), 1U);
  EXPECT_EQ(a.outcome->calls() + b.outcome->calls() + c.outcome->calls(), 3);
}

TEST_F(ExecutorTest, InputNeverReadyAndTheJobFails_GivesUpWithThatReason) {
  TestEntry a("a", 1);
  std::vector<TensorEntry> entries = Group(a.Make());
  entries[0].ready = std::make_unique<TestEvent>(std::make_shared<std::atomic<bool>>(false));
  std::thread peer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    transports_[2]->Abort(Status::Internal("power cut"));
  });
  const Status status = Execute(std::move(entries));
  peer.join();
  EXPECT_TRUE(Contains(status, "rank 2 failed: power cut")) << status;
  EXPECT_EQ(a.outcome->calls(), 1);
  EXPECT_TRUE(script_->batches().empty());
}

TEST_F(ExecutorTest, ReadyEventThrows_BecomesUnknown) {
  TestEntry a("a", 1);
  std::vector<TensorEntry> entries = Group(a.Make());
  entries[0].ready = std::make_unique<ThrowingEvent>();
  const Status status = Execute(std::move(entries));
  EXPECT_EQ(status.code(), StatusCode::kUnknown);
  EXPECT_TRUE(Contains(status, "event kaputt")) << status;
  EXPECT_EQ(a.outcome->calls(), 1);
}

TEST_F(ExecutorTest, BackendWaitsForAPeerThatFails_IsInterrupted) {
  script_->Push(ScriptAction::kBlock);
  TestEntry a("a", 1);
  std::thread peer([&] {
    EXPECT_TRUE(script_->WaitForRuns(1, InTenSeconds()));
    transports_[0]->Abort(Status::Unavailable("gone"));
  });
  const Status status = Execute(Group(a.Make()));
  peer.join();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Contains(status, "rank 0 failed: gone")) << status;
  EXPECT_EQ(a.outcome->status().ToString(), status.ToString());
}

TEST_F(ExecutorTest, BackendBlocksAndIsReleased_Finishes) {
  script_->Push(ScriptAction::kBlock);
  TestEntry a("a", 1, 3.0F);
  std::thread other([&] {
    EXPECT_TRUE(script_->WaitForRuns(1, InTenSeconds()));
    EXPECT_EQ(a.outcome->calls(), 0);
    script_->Release();
  });
  EXPECT_TRUE(Execute(Group(a.Make())).ok());
  other.join();
  EXPECT_EQ(a.output, a.input);
}

TEST_F(ExecutorTest, Scratch_IsAlignedKeptWhileItSufficesAndGrows) {
  for (std::size_t bytes : {1000U, 1000U, 10U, 5000U, 4999U}) {
    script_->Push(ScriptStep{ScriptAction::kFinish, Status::Ok(), bytes, {}});
    TestEntry a("a", 1);
    EXPECT_TRUE(Execute(Group(a.Make())).ok());
  }
  const std::vector<void*> buffers = script_->scratch_buffers();
  ASSERT_EQ(buffers.size(), 5U);
  for (void* buffer : buffers) {
    ASSERT_NE(buffer, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer) % 64, 0U);
  }
  EXPECT_EQ(buffers[0], buffers[1]);
  EXPECT_EQ(buffers[0], buffers[2]);
  EXPECT_EQ(buffers[3], buffers[4]);
}

TEST_F(ExecutorTest, ScratchThatNoMachineHas_IsResourceExhaustedAndLaterOnesWork) {
  constexpr std::size_t kTooMuch = std::numeric_limits<std::size_t>::max();
  script_->Push(ScriptStep{ScriptAction::kFinish, Status::Ok(), 64, {}});
  script_->Push(ScriptStep{ScriptAction::kFinish, Status::Ok(), kTooMuch, {}});
  script_->Push(ScriptStep{ScriptAction::kFinish, Status::Ok(), 128, {}});
  TestEntry a("a", 1), b("b", 1), c("c", 1);
  EXPECT_TRUE(Execute(Group(a.Make())).ok());
  const Status status = Execute(Group(b.Make()));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Contains(status, std::to_string(kTooMuch) + " bytes")) << status;
  EXPECT_TRUE(Execute(Group(c.Make())).ok());
}

TEST_F(ExecutorTest, Callback_ComesWhenTheFrameworksContextIsNoLongerReferred) {
  auto context = std::make_shared<TestContext>();
  const std::weak_ptr<TestContext> watch = context;
  TestEntry a("a", 1);
  TensorEntry entry = a.Make();
  entry.context = std::move(context);
  bool gone = false;
  entry.done = Completion([&](const Status&) { gone = watch.expired(); });
  EXPECT_TRUE(Execute(Group(std::move(entry))).ok());
  EXPECT_TRUE(gone);
}

}  // namespace
}  // namespace horovod_tf
