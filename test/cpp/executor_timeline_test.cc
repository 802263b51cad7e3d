// What the executor reports to the timeline, as it is in the file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "horovod_tf/common/runtime/timeline.h"
#include "test/cpp/support/executor_fixture.h"

namespace horovod_tf {
namespace {

using Lines = std::vector<std::string>;

// The events in the trace, in order: "tensor NAME" of a beginning, "tensor -" of an end.
Lines TraceEvents(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> tensors = {"?"};
  std::vector<std::string> events;
  const auto field = [](const std::string& line, const std::string& key) {
    const std::size_t at = line.find("\"" + key + "\":");
    if (at == std::string::npos) return std::string();
    const std::size_t begin = at + key.size() + 3 + (line[at + key.size() + 3] == '"' ? 1 : 0);
    return line.substr(begin, line.find_first_of("\",}", begin) - begin);
  };
  for (std::string line; std::getline(file, line);) {
    const std::string phase = field(line, "ph");
    if (phase == "M" && field(line, "name") == "process_name") {
      tensors.push_back(field(line.substr(line.find("\"args\"")), "name"));
    }
    if (phase != "B" && phase != "E") continue;
    const auto pid = static_cast<std::size_t>(std::stoi(field(line, "pid")));
    events.push_back(tensors.at(pid) + " " + (phase == "B" ? field(line, "name") : "-"));
  }
  return events;
}

class ExecutorTimelineTest : public ExecutorTest {
 protected:
  ExecutorTimelineTest()
      : path_(testing::TempDir() + "executor_test_" + std::to_string(getpid()) + ".json") {
    TimelineOptions options;
    options.path = path_;
    EXPECT_TRUE(Timeline::Open(options, Clock::Real(), &timeline_).ok());
    executor_ = MakeExecutor(timeline_.get());
  }
  ~ExecutorTimelineTest() override { std::remove(path_.c_str()); }

  Lines Events() {
    executor_.reset();
    timeline_.reset();
    return TraceEvents(path_);
  }

  const std::string path_;
  std::unique_ptr<Timeline> timeline_;
};

TEST_F(ExecutorTimelineTest, OneTensor_ShowsTheBackendsActivitiesAndScratchInsideThem) {
  script_->Push(ScriptStep{
      ScriptAction::kFinish, Status::Ok(), 100, {"MEMCPY_IN_FUSION_BUFFER", "LOCAL_ALLREDUCE"}});
  TestEntry a("a", 1);
  EXPECT_TRUE(Execute(Group(a.Make())).ok());
  EXPECT_EQ(Events(), (Lines{"a ALLREDUCE", "a MEMCPY_IN_FUSION_BUFFER", "a -", "a LOCAL_ALLREDUCE",
                             "a INIT_FUSION_BUFFER", "a -", "a -", "a -"}));
}

TEST_F(ExecutorTimelineTest, Gather_ShowsTheAllocation) {
  TestEntry a("a", 6);
  EXPECT_TRUE(ExecuteGather(a, std::make_shared<TestContext>(), {1, 2, 3}).ok());
  EXPECT_EQ(Events(), (Lines{"a ALLGATHER", "a ALLOCATE_OUTPUT", "a -", "a -"}));
}

TEST_F(ExecutorTimelineTest, InputNotReady_ShowsWhoWaitsForDataAndWhoForOthers) {
  const auto ready = std::make_shared<std::atomic<bool>>(false);
  TestEntry a("a", 1), b("b", 1);
  std::vector<TensorEntry> entries = Group(a.Make(), b.Make());
  entries[1].ready = std::make_unique<TestEvent>(ready);
  std::thread device([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    *ready = true;
  });
  EXPECT_TRUE(Execute(std::move(entries)).ok());
  device.join();
  // The last one to be ready waits for others too, for no time.
  EXPECT_EQ(Events(),
            (Lines{"a ALLREDUCE", "b ALLREDUCE", "a WAIT_FOR_OTHER_TENSOR_DATA", "b WAIT_FOR_DATA",
                   "b -", "b WAIT_FOR_OTHER_TENSOR_DATA", "a -", "b -", "a -", "b -"}));
}

TEST_F(ExecutorTimelineTest, CompletionTakenOver_TheLastActivityLastsUntilItIsFinished) {
  script_->Push(ScriptStep{ScriptAction::kLater, Status::Ok(), 0, {"QUEUE"}});
  TestEntry a("a", 1), b("b", 1);
  EXPECT_TRUE(Execute(Group(a.Make())).ok());
  EXPECT_TRUE(Execute(Group(b.Make())).ok());
  script_->TakeLater(InTenSeconds())(Status::Ok());
  EXPECT_EQ(Events(), (Lines{"a ALLREDUCE", "a QUEUE", "b ALLREDUCE", "b -", "a -", "a -"}));
}

// Goes on reporting after it has given its duty away, as a careless backend would.
class TalkativeBackend final : public CollectiveBackend {
 public:
  explicit TalkativeBackend(std::function<void(const Status&)>* later) : later_(later) {}
  std::string_view name() const override { return "talkative"; }
  int score() const override { return 1000; }
  Status Supports(const Batch&) const override { return Status::Ok(); }
  Status Run(Batch&, RunContext& context) override {
    context.Activity("QUEUE");
    *later_ = context.TakeCompletion();
    context.Activity("TOO_LATE");
    void* buffer = nullptr;
    return context.Scratch(100, &buffer);
  }

 private:
  std::function<void(const Status&)>* const later_;  // the test's, which outlives this
};

TEST_F(ExecutorTimelineTest, ActivitiesAfterTheCompletionWasTakenOver_AreNotReported) {
  std::function<void(const Status&)> later;
  backends_.Add(std::make_unique<TalkativeBackend>(&later));
  TestEntry a("a", 1);
  EXPECT_TRUE(Execute(Group(a.Make())).ok());
  ASSERT_NE(later, nullptr);
  later(Status::Ok());
  EXPECT_EQ(Events(), (Lines{"a ALLREDUCE", "a QUEUE", "a -", "a -"}));
}

TEST_F(ExecutorTimelineTest, EveryKindOfFailure_ClosesTheRow) {
  script_->Push(ScriptStep{ScriptAction::kError, Status::Internal("x"), 0, {"LOCAL_ALLREDUCE"}});
  TestEntry a("a", 1), b("b", 6), c("c", 1), d("d", 1);
  EXPECT_FALSE(Execute(Group(a.Make())).ok());
  EXPECT_FALSE(
      ExecuteGather(b, std::make_shared<TestContext>(TestContext::Mode::kError), {1, 2, 3}).ok());
  script_->Push(ScriptAction::kLater);
  EXPECT_TRUE(Execute(Group(c.Make())).ok());
  script_->TakeLater(InTenSeconds()) = nullptr;
  script_->SetSupports(Status::Unimplemented("no"));
  EXPECT_TRUE(Execute(Group(d.Make())).ok());
  EXPECT_EQ(Events(),
            (Lines{"a ALLREDUCE", "a LOCAL_ALLREDUCE", "a -", "a -", "b ALLGATHER",
                   "b ALLOCATE_OUTPUT", "b -", "b -", "c ALLREDUCE", "c -", "d ALLREDUCE", "d -"}));
}

}  // namespace
}  // namespace horovod_tf
