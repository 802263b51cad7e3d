// The end of the process while the library is at work: exit() destroys what has a destructor, and
// the background thread goes on until the process is gone.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "horovod_tf/common/base/types.h"
#include "horovod_tf/common/runtime/process_runtime.h"

namespace horovod_tf {
namespace {

constexpr std::size_t kNames = 32;
// Without destructors, for they are used while exit() destroys.
std::atomic<int> g_finished{0};
std::atomic<int> g_failed{0};
std::array<std::atomic<bool>, kNames> g_in_flight{};
std::array<double, kNames> g_in{};
std::array<double, kNames> g_out{};

void Submit(std::size_t i) {
  std::vector<TensorEntry> group(1);
  TensorEntry& entry = group[0];
  entry.request.name = "tensor " + std::to_string(i);
  entry.request.dtype = i % 2 == 0 ? DataType::kFloat64 : DataType::kInt64;
  entry.request.shape = TensorShape({1});
  entry.input = {entry.request.dtype, entry.request.shape, &g_in[i]};
  entry.output = {entry.request.dtype, entry.request.shape, &g_out[i]};
  entry.done = Completion([i](const Status& status) {
    if (!status.ok() && ++g_failed == 1) std::fprintf(stderr, "%s\n", status.message().c_str());
    ++g_finished;
    g_in_flight[i] = false;
  });
  ProcessEnqueue(std::move(group));
}

void SubmitForEver() {
  for (std::size_t i = 0;; i = (i + 1) % kNames) {
    if (!g_in_flight[i].exchange(true)) Submit(i);
    if (i == 0) std::this_thread::yield();
  }
}

// Takes memory of all the sizes that a small table may have had and fills it with rubbish, so that
// what still reads a destroyed one finds the rubbish there.
void FillFreedMemory() {
  for (std::size_t size = 1; size <= 4096; size += size < 1024 ? 8 : 64) {
    for (int i = 0; i < 8; ++i) {
      // Leaked, so that the next round gets other memory.
      static_cast<void>(std::make_unique<std::string>(size, '\x5a').release());
    }
  }
}

// The first that was registered, so what was made later has been destroyed when it runs.
void AfterEverythingIsDestroyed() {
  constexpr int kMore = 200;
  FillFreedMemory();
  const int before = g_finished;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (g_finished < before + kMore && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  std::_Exit(g_failed > 0 ? 3 : g_finished < before + kMore ? 4 : 0);
}

void ExitUnderLoad() {
  if (std::atexit(AfterEverythingIsDestroyed) != 0 || !ProcessInit().ok()) std::_Exit(1);
  std::thread(SubmitForEver).detach();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (g_finished < 100) {
    if (std::chrono::steady_clock::now() > deadline) std::_Exit(2);
    std::this_thread::yield();
  }
  std::exit(0);
}

TEST(Exit, UnderLoad_WorkGoesOnUntilTheProcessIsGone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ExitUnderLoad(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace horovod_tf
