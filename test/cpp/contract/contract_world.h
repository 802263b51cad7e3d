// The ranks that the contract suites run on: a world, its ranks, their surroundings.
#ifndef HOROVOD_TF_TEST_CPP_CONTRACT_CONTRACT_WORLD_H_
#define HOROVOD_TF_TEST_CPP_CONTRACT_CONTRACT_WORLD_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "horovod_tf/common/collectives/collective_backend.h"

namespace horovod_tf {

// Aborts the process with a text when it is not destroyed in time: a hang is a failure, not a
// timeout of somebody's patience.
class Watchdog {
 public:
  Watchdog(std::chrono::seconds limit, std::string what)
      : thread_([this, limit, what = std::move(what)] {
          std::unique_lock<std::mutex> lock(mutex_);
          if (changed_.wait_for(lock, limit, [this] { return done_; })) return;
          std::fprintf(stderr, "hung: %s\n", what.c_str());
          std::abort();
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;  // last: it uses the others
};

// A RunContext that is interrupted by its deadline or by `status`, and notes activities.
//
// Thread rule: one rank's, but Interrupt may be called from any thread.
class ContractContext final : public RunContext {
 public:
  explicit ContractContext(std::chrono::steady_clock::time_point deadline) : deadline_(deadline) {}

  void Interrupt(const Status& status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    interruption_ = status;
  }
  // Before the ranks run: `answer` answers instead, and may take its time.
  void AnswerWith(std::function<Status()> answer) { answer_ = std::move(answer); }
  Status Interrupted() override {
    if (answer_) return answer_();
    const std::lock_guard<std::mutex> lock(mutex_);
    ++questions_;
    if (!interruption_.ok() || std::chrono::steady_clock::now() < deadline_) return interruption_;
    return Status::DeadlineExceeded("the test's deadline has passed");
  }
  Status Scratch(std::size_t bytes, void** buffer) override {
    constexpr std::size_t kAlignment = 64;
    scratch_.resize(std::max(scratch_.size(), bytes + kAlignment));
    void* start = scratch_.data();
    std::size_t space = scratch_.size();
    *buffer = std::align(kAlignment, bytes, start, space);
    return Status::Ok();
  }
  void Activity(std::string_view name) override { activities_.emplace_back(name); }
  std::function<void(const Status&)> TakeCompletion() override {
    completion_ = std::promise<Status>();
    taken_ = true;
    return [this](const Status& status) { completion_.set_value(status); };
  }

  // The batch's outcome after Run has returned OK: waits if the backend took the completion over.
  Status Finish() {
    if (!taken_) return Status::Ok();
    taken_ = false;
    std::future<Status> outcome = completion_.get_future();
    if (outcome.wait_until(deadline_) == std::future_status::ready) return outcome.get();
    return Status::DeadlineExceeded("a completion that was taken was never called");
  }
  const std::vector<std::string>& activities() const { return activities_; }
  int questions() {  // how often Interrupted was asked
    const std::lock_guard<std::mutex> lock(mutex_);
    return questions_;
  }

 private:
  const std::chrono::steady_clock::time_point deadline_;
  std::function<Status()> answer_;
  std::mutex mutex_;
  Status interruption_;
  int questions_ = 0;
  std::vector<unsigned char> scratch_;
  std::vector<std::string> activities_;
  std::promise<Status> completion_;
  bool taken_ = false;
};

// One rank as a contract's test sees it, on the thread that plays its background thread.
struct ContractRank {
  int rank;
  CollectiveBackend& backend;
  ContractContext& context;

  Status Run(Batch& batch) {
    HVD_RETURN_IF_ERROR(backend.Supports(batch));
    HVD_RETURN_IF_ERROR(backend.Run(batch, context));
    return context.Finish();
  }
  void RunOk(Batch& batch) {
    const Status status = Run(batch);
    EXPECT_TRUE(status.ok()) << "rank " << rank << ": " << status;
  }
};

// Ranks that are driven by this process: all of them, or one of a job's.
class ContractWorld {
 public:
  virtual ~ContractWorld() = default;
  // Calls fn once per driven rank, each on a thread of its own, and returns when all have returned.
  virtual void Run(const std::function<void(ContractRank&)>& fn) = 0;
};

struct ContractWorldFactory {
  std::string name;
  std::function<std::unique_ptr<ContractWorld>(int size)> make;
};

// A world whose ranks are threads of this process.
class ThreadedWorld final : public ContractWorld {
 public:
  explicit ThreadedWorld(std::vector<std::unique_ptr<CollectiveBackend>> backends)
      : backends_(std::move(backends)) {
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    for (std::size_t i = 0; i < backends_.size(); ++i) {
      contexts_.push_back(std::make_unique<ContractContext>(deadline));
    }
  }

  void Run(const std::function<void(ContractRank&)>& fn) override {
    const Watchdog watchdog(kHang, "ranks of a contract test");
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < backends_.size(); ++i) {
      threads.emplace_back([this, i, &fn] {
        ContractRank rank{static_cast<int>(i), *backends_[i], *contexts_[i]};
        fn(rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  ContractContext& context(int rank) { return *contexts_[static_cast<std::size_t>(rank)]; }

 private:
  // Backends are told by their context that time is up; one that does not ask ends the process.
  static constexpr std::chrono::seconds kDeadline{60};
  static constexpr std::chrono::seconds kHang{90};

  std::vector<std::unique_ptr<CollectiveBackend>> backends_;
  std::vector<std::unique_ptr<ContractContext>> contexts_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_TEST_CPP_CONTRACT_CONTRACT_WORLD_H_
