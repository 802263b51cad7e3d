// TestEntry: one submitted tensor with its buffers and a record of how it ended.
#ifndef TEST_CPP_SUPPORT_TEST_ENTRY_H_
#define TEST_CPP_SUPPORT_TEST_ENTRY_H_

#include <memory>
#include <string>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/mutex.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/runtime/tensor_entry.h"

namespace horovod_tf {

// How a completion ended, and how often. Thread rule: any thread.
class Outcome {
 public:
  void Record(const Status& status) {
    MutexLock lock(mutex_);
    ++calls_;
    status_ = status;
    changed_.NotifyAll();
  }
  int calls() const {
    MutexLock lock(mutex_);
    return calls_;
  }
  // Of the last call; OK before the first.
  Status status() const {
    MutexLock lock(mutex_);
    return status_;
  }
  // Whether it has been called, now or within ten seconds.
  bool Wait() {
    const TimePoint deadline = Clock::Real().Now() + std::chrono::seconds(10);
    MutexLock lock(mutex_);
    while (calls_ == 0 && Clock::Real().Now() < deadline) changed_.WaitUntil(mutex_, deadline);
    return calls_ > 0;
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  int calls_ HVD_GUARDED_BY(mutex_) = 0;
  Status status_ HVD_GUARDED_BY(mutex_);
};

// A completion that is recorded in `outcome`, which it keeps alive.
inline Completion RecordIn(std::shared_ptr<Outcome> outcome) {
  return Completion([outcome](const Status& status) { outcome->Record(status); });
}

// An allreduce of `elements` float32 that are base, base + 1, ... The buffers live here and outlive
// the entry.
struct TestEntry {
  TestEntry(std::string name, std::size_t elements, float base = 1.0F)
      : outcome(std::make_shared<Outcome>()), input(elements), output(elements) {
    for (std::size_t i = 0; i < elements; ++i) input[i] = base + static_cast<float>(i);
    request.name = std::move(name);
    request.shape = TensorShape({static_cast<std::int64_t>(elements)});
  }

  TensorEntry Make() {
    TensorEntry entry;
    entry.request = request;
    entry.input = {request.dtype, request.shape, input.data()};
    entry.output = {request.dtype, request.shape, output.data()};
    entry.done = RecordIn(outcome);
    return entry;
  }

  std::shared_ptr<Outcome> outcome;
  std::vector<float> input;
  std::vector<float> output;
  Request request;
};

// A group of entries, in order.
template <typename... Entries>
std::vector<TensorEntry> Group(Entries&&... entries) {
  std::vector<TensorEntry> group;
  (group.push_back(std::forward<Entries>(entries)), ...);
  return group;
}

}  // namespace horovod_tf

#endif  // TEST_CPP_SUPPORT_TEST_ENTRY_H_
