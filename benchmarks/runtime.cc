// Benchmark of the runtime: what an idle one costs, and how long a small tensor takes from Enqueue
// to its callback. One JSON object a line; PASS or MISS where there is a target.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "horovod_tf/common/collectives/local_backend.h"
#include "horovod_tf/common/runtime/runtime.h"
#include "horovod_tf/common/transport/local_transport.h"

namespace horovod_tf {
namespace {

constexpr double kIdleSeconds = 5;
constexpr double kIdleTargetCpuSeconds = 0.005;
constexpr int kOperations = 20000;
constexpr int kPausedOperations = 2000;  // each pauses for a millisecond
constexpr double kTargetMedianUs = 20;

using Job = std::vector<std::unique_ptr<Runtime>>;

Job StartJob(int ranks) {
  Job job;
  auto transports =
      MakeLocalTransports(std::vector<std::string>(static_cast<std::size_t>(ranks), "host"));
  const auto meeting = MakeLocalMeeting(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    RuntimeOptions options;
    options.config = Config::Defaults();
    options.transport = std::move(transports[static_cast<std::size_t>(rank)]);
    options.backends.Add(MakeLocalBackend(rank, meeting));
    job.push_back(std::make_unique<Runtime>(std::move(options)));
  }
  std::vector<std::thread> threads;
  std::atomic<bool> started{true};
  for (auto& runtime : job) {
    threads.emplace_back([&] {
      if (!runtime->Start().ok()) started = false;
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!started) job.clear();
  return job;
}

void StopJob(Job job) {
  std::vector<std::thread> threads;
  for (auto& runtime : job) threads.emplace_back([&] { (void)runtime->Stop("measured"); });
  for (std::thread& thread : threads) thread.join();
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double NowUs() {
  return 1e6 *
         std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// One four-byte tensor of one rank, submitted again and again.
struct Small {
  float input = 1.5F;
  float output = 0;
  std::atomic<int> ended{0};
  double ended_us = 0;  // written before `ended`

  TensorEntry Entry() {
    TensorEntry entry;
    entry.request.name = "gradient/of/some/layer";
    entry.request.shape = TensorShape{1};
    entry.input = {DataType::kFloat32, entry.request.shape, &input};
    entry.output = {DataType::kFloat32, entry.request.shape, &output};
    entry.done = Completion([this](const Status& status) {
      ended_us = NowUs();
      ended.store(status.ok() ? 1 : -1, std::memory_order_release);
    });
    return entry;
  }
};

void Submit(Runtime& runtime, Small& small) {
  std::vector<TensorEntry> group;
  group.push_back(small.Entry());
  small.ended.store(0, std::memory_order_relaxed);
  runtime.Enqueue(std::move(group));
}

bool Report(const std::string& what, const std::string& fields, bool has_target, bool met) {
  std::printf("{\"benchmark\": \"runtime\", \"case\": \"%s\", %s%s}\n", what.c_str(),
              fields.c_str(),
              !has_target ? ""
              : met       ? ", \"target\": \"PASS\""
                          : ", \"target\": \"MISS\"");
  std::fflush(stdout);
  return !has_target || met;
}

bool Idle(int ranks) {
  Job job = StartJob(ranks);
  if (job.empty()) return false;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = CpuSeconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(kIdleSeconds));
  const double used = CpuSeconds() - before;
  StopJob(std::move(job));
  char fields[128];
  std::snprintf(fields, sizeof(fields), "\"ranks\": %d, \"seconds\": %g, \"cpu_seconds\": %.6f",
                ranks, kIdleSeconds, used);
  return Report("idle", fields, true, used < kIdleTargetCpuSeconds);
}

// From before Enqueue to the callback, on rank 0; the other ranks have submitted before. `pause`
// lets the background threads go to sleep in between.
bool Latency(int ranks, bool pause, bool has_target) {
  Job job = StartJob(ranks);
  if (job.empty()) return false;
  std::vector<Small> tensors(static_cast<std::size_t>(ranks));
  const int operations = pause ? kPausedOperations : kOperations;
  std::vector<double> samples;
  for (int i = 0; i < operations; ++i) {
    if (pause) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const double start = NowUs();
    for (int rank = ranks - 1; rank >= 0; --rank) {
      Submit(*job[static_cast<std::size_t>(rank)], tensors[static_cast<std::size_t>(rank)]);
    }
    for (Small& small : tensors) {
      // Yields: a spinning waiter would take the core that the work needs.
      while (small.ended.load(std::memory_order_acquire) == 0) std::this_thread::yield();
      if (small.ended < 0) return false;
    }
    samples.push_back(tensors[0].ended_us - start);
  }
  StopJob(std::move(job));
  std::sort(samples.begin(), samples.end());
  const double median = samples[samples.size() / 2];
  char fields[256];
  std::snprintf(fields, sizeof(fields),
                "\"ranks\": %d, \"mode\": \"%s\", \"bytes\": 4, \"operations\": %d, "
                "\"median_us\": %.2f, \"p99_us\": %.2f",
                ranks, pause ? "after 1 ms pause" : "back to back", operations, median,
                samples[samples.size() * 99 / 100]);
  return Report("latency", fields, has_target, median < kTargetMedianUs);
}

int Main() {
  bool met = Idle(1);
  met = Idle(4) && met;
  met = Latency(1, false, true) && met;
  met = Latency(1, true, true) && met;
  met = Latency(2, false, false) && met;
  met = Latency(2, true, false) && met;
  return met ? 0 : 1;
}

}  // namespace
}  // namespace horovod_tf

int main() { return horovod_tf::Main(); }
