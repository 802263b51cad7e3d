// How the timeline treats its file: paths that cannot be written, a full disk, and kills.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "horovod_tf/common/runtime/json_array_file.h"
#include "horovod_tf/common/runtime/timeline.h"
#include "test/cpp/support/json_check.h"
#include "test/cpp/support/timeline_fixture.h"

namespace horovod_tf {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

constexpr CollectiveKind kAllreduce = CollectiveKind::kAllreduce;

TEST_F(TimelineTest, UnwritablePath_IsAnErrorThatNamesPathAndReason) {
  const auto expect = [this](const std::string& path, const std::string& reason) {
    const Status status = OpenError(path);
    EXPECT_FALSE(status.ok()) << path;
    EXPECT_NE(status.message().find(path), std::string::npos) << status;
    EXPECT_NE(status.message().find(reason), std::string::npos) << status;
  };
  expect(folder_ + "/missing/trace.json", "No such file or directory");
  expect(folder_, "Is a directory");
  expect("/dev/full", "No space left on device");
  ASSERT_EQ(::mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  expect(folder_ + "/pipe", "Illegal seek");
  if (::geteuid() != 0) {
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_read);
    expect(path_, "Permission denied");
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
  }
  EXPECT_FALSE(OpenError("").ok());
}

TEST_F(TimelineTest, ExistingFile_IsReplaced) {
  std::ofstream(path_) << std::string(100000, 'x');
  const std::unique_ptr<Timeline> timeline = Open();
  EXPECT_EQ(Elements().size(), 1u);
  EXPECT_LT(Text().size(), 500u);
}

TEST_F(TimelineTest, FlushWithAPassedDeadline_ReturnsAtOnce) {
  const std::unique_ptr<Timeline> timeline = Open();
  timeline->Start("t", kAllreduce);
  timeline->Flush(Clock::Real().Now() - seconds(1));
  timeline->Flush(Soon());
  EXPECT_EQ(Row("t").size(), 1u);
  timeline->Flush(kNever);
}

TEST_F(TimelineTest, FileMadeShorterBySomebody_IsNoCrash) {
  const std::unique_ptr<Timeline> timeline = Open();
  const auto report = [&timeline](int tensors) {
    for (int i = 0; i < tensors; ++i) {
      timeline->Start("t" + std::to_string(i), kAllreduce);
      timeline->End("t" + std::to_string(i), DataType::kInt8, TensorShape({i}));
    }
    timeline->Flush(Soon());
  };
  report(400);
  const std::size_t before = Text().size();
  ASSERT_GT(before, 60000u);
  ASSERT_EQ(::truncate(path_.c_str(), 0), 0);
  report(400);
  const std::string text = Text();
  EXPECT_GT(text.size(), before);
  // What was cut is gone; what came later is whole.
  std::string error;
  const std::string later = text.substr(std::min(text.find_first_not_of('\0'), text.size()));
  EXPECT_TRUE(ParseJson("[0" + later, &error).has_value()) << error;
}

TEST_F(TimelineTest, ElementsOfEverySize_LeaveValidJsonAndNoBlanksAtTheEnd) {
  std::size_t expected = 1;
  {
    JsonArrayFile file;
    ASSERT_TRUE(file.Open(path_, "{}").ok());
    for (const std::size_t size : {1u, 2000u, 4089u, 4090u, 4091u, 4092u, 4096u, 70000u, 3u}) {
      for (int i = 0; i < 3; ++i, ++expected) {
        file.Add("{\"x\":\"" + std::string(size, 'x') + "\"}");
        if (i == 2) continue;  // goes with the next
        ASSERT_TRUE(file.Commit().ok());
        EXPECT_EQ(Elements().back()["x"].string, std::string(size, 'x'));
      }
    }
    ASSERT_TRUE(file.Commit().ok());
    EXPECT_EQ(Elements().size(), expected);
    // So the window was in use.
    EXPECT_EQ(Text().back(), ' ');
  }
  EXPECT_EQ(Elements().size(), expected);
  const std::string text = Text();
  EXPECT_EQ(text.substr(text.size() - 4), "}\n]\n");
}

TEST_F(TimelineTest, DeviceThatTakesEverything_IsWrittenWithoutAWindow) {
  JsonArrayFile file;
  ASSERT_TRUE(file.Open("/dev/null", "{}").ok());
  for (int i = 0; i < 10; ++i) {
    file.Add("{}");
    EXPECT_TRUE(file.Commit().ok());
  }
}

// What a child process does; its exit code says whether it went well.
int RunInChild(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // a child that hangs is a failure and not a leak
    ::_exit(body());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// In a child, as the limit on the size of files is the whole process's.
TEST_F(TimelineTest, FileThatCannotGrow_EndsTheRecordingWithOneMessage) {
  std::string message_path = folder_ + "/messages";
  const int exit_code = RunInChild([&] {
    const rlimit limit{100000, 100000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    std::mutex mutex;
    std::string messages;
    const auto logger =
        std::make_shared<Logger>(LogLevel::kError, true, [&](std::string_view line) {
          const std::lock_guard<std::mutex> lock(mutex);
          messages += line;
        });
    std::unique_ptr<Timeline> timeline = Open(1 << 16, logger);
    if (timeline == nullptr) return 3;
    for (int i = 0; i < 3000; ++i) {
      timeline->Start("t" + std::to_string(i), kAllreduce);
      timeline->End("t" + std::to_string(i), DataType::kInt8, TensorShape({i}));
      if (i % 100 == 0) timeline->Flush(Soon());
    }
    timeline.reset();
    std::ofstream(message_path) << messages;
    return 0;
  });
  ASSERT_EQ(exit_code, 0);
  std::ifstream file(message_path);
  const std::string messages((std::istreambuf_iterator<char>(file)),
                             std::istreambuf_iterator<char>());
  EXPECT_EQ(messages, "[horovod_tf] error: timeline: cannot write to " + path_ +
                          ": File too large; nothing more is recorded\n");
  EXPECT_GT(Text().size(), 30000u);
  EXPECT_LE(Text().size(), 100000u);
  EXPECT_EQ(Row("t0"), (Words{"B:ALLREDUCE@0", "E:int8[0]@0"}));
}

// The child's part of the next test: reports for ever, and says through `fd` that it does.
int ReportForEver(Timeline& timeline, int fd) {
  timeline.Start("first", kAllreduce);
  timeline.End("first", DataType::kFloat16, TensorShape({11}));
  timeline.Flush(Soon());
  if (::write(fd, "!", 1) != 1) return 2;
  for (std::int64_t i = 0;; ++i) {
    const std::string name = "tensor/" + std::to_string(i % 50);
    timeline.OnRankReady(name, kAllreduce, static_cast<int>(i % 4));
    timeline.OnNegotiated(name);
    timeline.Start(name, kAllreduce);
    timeline.ActivityStart(name, "MPI_ALLREDUCE");
    timeline.End(name, DataType::kFloat32, TensorShape({i, 3}));
    if (i % 16 == 0) std::this_thread::sleep_for(microseconds(20));
  }
}

TEST_F(TimelineTest, ClosedAndReopened_EachFileHasItsOwnTime) {
  const std::string first = path_;
  Timeline timeline;
  timeline.Close();
  timeline.Start("thrown away", CollectiveKind::kAllreduce);
  EXPECT_EQ(timeline.dropped(), 0u);
  TimelineOptions options;
  options.path = first;
  ASSERT_TRUE(timeline.Reopen(options, clock_).ok());
  timeline.Start("half", CollectiveKind::kAllreduce);
  ASSERT_TRUE(timeline.Reopen(options, clock_).ok());  // the same: goes on
  timeline.ActivityStart("half", "MPI_ALLREDUCE");
  options.path = "/nonexistent/folder/trace.json";
  EXPECT_FALSE(timeline.Reopen(options, clock_).ok());
  options.path = first + "2";
  ASSERT_TRUE(timeline.Reopen(options, clock_).ok());
  EXPECT_EQ(Row("half"), (Words{"B:ALLREDUCE@0", "B:MPI_ALLREDUCE@0", "E@0", "E@0"}));
  timeline.ActivityEnd("half");
  timeline.End("half", DataType::kFloat32, TensorShape{2});
  timeline.Start("whole", CollectiveKind::kAllreduce);
  timeline.End("whole", DataType::kFloat32, TensorShape{2});
  timeline.Close();
  timeline.Start("thrown away", CollectiveKind::kAllreduce);
  path_ = options.path;
  EXPECT_EQ(RowNames().size(), 1u);
  EXPECT_EQ(Row("whole"), (Words{"B:ALLREDUCE@0", "E:float32[2]@0"}));
}

// For ThreadSanitizer.
TEST_F(TimelineTest, ReportsWhileItIsSwitched_AreInOneOrNone) {
  Timeline timeline;
  std::atomic<bool> over{false};
  std::thread reporter([&] {
    while (!over.load()) {
      timeline.Start("t", CollectiveKind::kAllreduce);
      timeline.End("t", DataType::kFloat32, TensorShape{2});
    }
  });
  TimelineOptions options;
  options.queue_capacity = 64;
  for (int round = 0; round < 20; ++round) {
    options.path = path_ + std::to_string(round % 2);
    EXPECT_TRUE(timeline.Reopen(options, clock_).ok());
    if (round % 3 == 0) timeline.Close();
  }
  timeline.Close();
  over.store(true);
  reporter.join();
  for (const char* end : {"0", "1"}) {
    path_ = options.path.substr(0, options.path.size() - 1) + end;
    EXPECT_FALSE(Elements().empty());
  }
}

TEST_F(TimelineTest, KilledAtAnyMoment_LeavesValidJson) {
  std::mt19937 random(4711);
  std::size_t largest = 0;
  for (int round = 0; round < 20; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);
      const std::unique_ptr<Timeline> timeline = Open();
      ::_exit(ReportForEver(*timeline, ends[1]));
    }
    ::close(ends[1]);  // so that the end of a child that fails is seen
    char said = 0;
    int status = 0;
    ASSERT_EQ(::read(ends[0], &said, 1), 1)
        << "the child failed: " << ::waitpid(child, &status, 0) << " has status " << status;
    std::this_thread::sleep_for(microseconds(random() % 15000));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    ::close(ends[0]);
    EXPECT_EQ(Row("first"), (Words{"B:ALLREDUCE@0", "E:float16[11]@0"})) << "round " << round;
    largest = std::max(largest, Elements().size());
  }
  // Otherwise the kills came before there was anything to cut.
  EXPECT_GT(largest, 100u);
}

}  // namespace
}  // namespace horovod_tf
