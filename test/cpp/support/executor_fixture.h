// What tests of the executor share: doubles of the framework, and an executor among three ranks.
#ifndef TEST_CPP_SUPPORT_EXECUTOR_FIXTURE_H_
#define TEST_CPP_SUPPORT_EXECUTOR_FIXTURE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "horovod_tf/common/runtime/executor.h"
#include "horovod_tf/common/transport/local_transport.h"
#include "test/cpp/support/scripted_backend.h"
#include "test/cpp/support/test_entry.h"

namespace horovod_tf {

inline TimePoint InTenSeconds() { return Clock::Real().Now() + std::chrono::seconds(10); }

// A framework that allocates what a test lets it.
class TestContext final : public OpContext {
 public:
  enum class Mode { kRight, kError, kThrow, kWrongType, kWrongShape, kNoBuffer };
  explicit TestContext(Mode mode = Mode::kRight) : mode_(mode) {}

  Status TakeReceivedRows(const std::vector<std::int64_t>& rows) override {
    received = rows;
    return Status::Ok();
  }
  Status AllocateOutput(const TensorShape& shape, TensorView* output) override {
    ++calls;
    asked = shape;
    if (mode_ == Mode::kError) return Status::ResourceExhausted("no room for rows");
    if (mode_ == Mode::kThrow) throw std::runtime_error("allocator kaputt");
    storage.resize(static_cast<std::size_t>(shape.elements()));
    *output = {DataType::kFloat32, shape, storage.data()};
    if (mode_ == Mode::kWrongType) output->dtype = DataType::kInt32;
    if (mode_ == Mode::kWrongShape) output->shape = TensorShape({1, 1});
    if (mode_ == Mode::kNoBuffer) output->data = nullptr;
    return Status::Ok();
  }

  int calls = 0;
  TensorShape asked;
  std::vector<std::int64_t> received;
  std::vector<float> storage;

 private:
  const Mode mode_;
};

class TestEvent final : public ReadyEvent {
 public:
  explicit TestEvent(std::shared_ptr<std::atomic<bool>> ready) : ready_(std::move(ready)) {}
  bool Ready() const override { return ready_->load(); }

 private:
  const std::shared_ptr<std::atomic<bool>> ready_;
};

class ThrowingEvent final : public ReadyEvent {
 public:
  bool Ready() const override { throw std::runtime_error("event kaputt"); }
};

inline bool Contains(const Status& status, const std::string& text) {
  return status.ToString().find(text) != std::string::npos;
}

// An executor on rank 1 of three, with one scripted backend.
class ExecutorTest : public testing::Test {
 protected:
  ExecutorTest() : transports_(MakeLocalTransports({"a", "b", "c"})) {
    backends_.Add(std::make_unique<ScriptedBackend>(script_));
    executor_ = MakeExecutor(nullptr);
  }

  std::unique_ptr<Executor> MakeExecutor(Timeline* timeline) {
    StallOptions stall;
    stall.enabled = false;
    return std::make_unique<Executor>(backends_, *transports_[1],
                                      OperationWatch(stall, Clock::Real(), logger_), timeline);
  }

  static TensorDefinition Define(const Request& request) {
    TensorDefinition definition;
    definition.common = request;
    return definition;
  }

  // Runs the entries, which are not gathers, as one batch.
  Status Execute(std::vector<TensorEntry> entries) {
    std::vector<TensorDefinition> definitions;
    for (const TensorEntry& entry : entries) definitions.push_back(Define(entry.request));
    std::vector<const TensorDefinition*> pointers;
    for (const TensorDefinition& definition : definitions) pointers.push_back(&definition);
    return executor_->Execute(std::move(entries), pointers);
  }

  // Runs an allgather of [2, 3] here, with the ranks' numbers of rows given.
  Status ExecuteGather(TestEntry& test, const std::shared_ptr<OpContext>& context,
                       std::vector<std::int64_t> first_dims) {
    test.request.kind = CollectiveKind::kAllgather;
    test.request.shape = TensorShape({2, 3});
    TensorEntry entry = test.Make();
    entry.output = TensorView();
    entry.context = context;
    TensorDefinition definition = Define(entry.request);
    definition.first_dims = std::move(first_dims);
    return executor_->Execute(Group(std::move(entry)), {&definition});
  }

  const Logger logger_;
  std::shared_ptr<BackendScript> script_ = std::make_shared<BackendScript>();
  BackendRegistry backends_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace horovod_tf

#endif  // TEST_CPP_SUPPORT_EXECUTOR_FIXTURE_H_
