// What the tests of the timeline share: a folder to write to, a clock set by hand, and a reader of
// the trace.
#ifndef HOROVOD_TF_TEST_CPP_SUPPORT_TIMELINE_FIXTURE_H_
#define HOROVOD_TF_TEST_CPP_SUPPORT_TIMELINE_FIXTURE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "horovod_tf/common/base/mutex.h"
#include "horovod_tf/common/runtime/timeline.h"
#include "test/cpp/support/json_check.h"

namespace horovod_tf {

using Words = std::vector<std::string>;

// A clock that is set by hand. Thread rule: any thread.
class HandSetClock final : public Clock {
 public:
  TimePoint Now() const override { return TimePoint{std::chrono::microseconds(micros_.load())}; }
  void WaitUntil(CondVar& condition, Mutex& mutex, TimePoint deadline) const override
      HVD_REQUIRES(mutex) {
    condition.WaitUntil(mutex, deadline);
  }
  void set_micros(std::int64_t micros) { micros_ = micros; }

 private:
  std::atomic<std::int64_t> micros_{0};
};

inline TimePoint Soon() { return Clock::Real().Now() + std::chrono::seconds(30); }

// A folder of its own for each test, removed at the end.
class TimelineTest : public ::testing::Test {
 public:
  ~TimelineTest() override { std::filesystem::remove_all(folder_); }

 protected:
  TimelineTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "timeline.XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/trace.json";
  }

  std::unique_ptr<Timeline> Open(std::size_t capacity = 1 << 16,
                                 std::shared_ptr<const Logger> logger = nullptr) {
    std::unique_ptr<Timeline> timeline;
    TimelineOptions options;
    options.path = path_;
    options.queue_capacity = capacity;
    options.logger = std::move(logger);
    const Status status = Timeline::Open(options, clock_, &timeline);
    EXPECT_TRUE(status.ok()) << status;
    return timeline;
  }
  Status OpenError(const std::string& path) {
    std::unique_ptr<Timeline> timeline;
    TimelineOptions options;
    options.path = path;
    Status status = Timeline::Open(options, clock_, &timeline);
    EXPECT_EQ(timeline, nullptr);
    return status;
  }

  std::string Text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  // The file's elements; it must be a JSON array of objects.
  std::vector<Json> Elements() const {
    std::string error;
    const std::optional<Json> json = ParseJson(Text(), &error);
    EXPECT_TRUE(json.has_value()) << error;
    if (!json.has_value()) return {};
    EXPECT_EQ(json->type, Json::Type::kArray);
    for (const Json& element : json->array) EXPECT_EQ(element.type, Json::Type::kObject);
    return json->array;
  }
  // Name of each row by its pid.
  std::map<int, std::string> RowNames() const {
    std::map<int, std::string> names;
    for (const Json& event : Elements()) {
      if (event["name"].string != "process_name") continue;
      const int pid = static_cast<int>(event["pid"].number);
      EXPECT_EQ(names.count(pid), 0u) << "row " << pid << " named twice";
      names[pid] = event["args"]["name"].string;
    }
    return names;
  }
  // The events of each row by its name, in the file's order, one word per event: "B:NAME@micros",
  // "X:3@micros", "E@micros" or "E:float32[2, 3]@micros".
  std::map<std::string, Words> Rows() const {
    std::map<int, std::string> names = RowNames();
    std::map<std::string, Words> rows;
    for (const Json& event : Elements()) {
      const std::string& phase = event["ph"].string;
      if (phase == "M" || phase == "i") continue;
      std::string word = phase;
      if (phase != "E") word += ":" + event["name"].string;
      if (event["args"]["dtype"].type == Json::Type::kString) {
        word += ":" + event["args"]["dtype"].string + event["args"]["shape"].string;
      }
      word += "@" + std::to_string(static_cast<long>(event["ts"].number));
      rows[names[static_cast<int>(event["pid"].number)]].push_back(word);
    }
    return rows;
  }
  Words Row(const std::string& name) const { return Rows()[name]; }
  // How many spans are open at the end. Every end must have a beginning, and time must not run
  // backwards in a row.
  std::size_t OpenSpans() const {
    std::map<double, std::size_t> depth;
    std::map<double, double> last;
    std::size_t open = 0;
    for (const Json& event : Elements()) {
      const double row = event["pid"].number;
      if (event["ts"].type == Json::Type::kNumber) {
        EXPECT_GE(event["ts"].number, last[row]) << "row " << row;
        last[row] = event["ts"].number;
      }
      if (event["ph"].string == "B") {
        ++depth[row];
        ++open;
      }
      if (event["ph"].string != "E") continue;
      if (depth[row] == 0) {
        ADD_FAILURE() << "row " << row << " ends what never began";
        continue;
      }
      --depth[row];
      --open;
    }
    return open;
  }
  // How many records the trace says were dropped.
  std::uint64_t DroppedAsWritten() const {
    double dropped = 0;
    for (const Json& event : Elements()) {
      if (event["name"].string != "RECORDS_DROPPED") continue;
      EXPECT_EQ(event["ph"].string, "i");
      dropped += event["args"]["count"].number;
    }
    return static_cast<std::uint64_t>(dropped);
  }

  HandSetClock clock_;
  std::string folder_;
  std::string path_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_TEST_CPP_SUPPORT_TIMELINE_FIXTURE_H_
