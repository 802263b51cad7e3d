// A RankExchange between threads, and the threads.
#ifndef HOROVOD_TF_TEST_CPP_SUPPORT_THREAD_EXCHANGE_H_
#define HOROVOD_TF_TEST_CPP_SUPPORT_THREAD_EXCHANGE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "horovod_tf/common/base/mutex.h"
#include "horovod_tf/common/shm/rank_exchange.h"

namespace horovod_tf {

// Where they meet. Thread rule: safe for any thread.
class ExchangeHub {
 public:
  explicit ExchangeHub(std::size_t size) : size_(size), brought_(size) {}

  std::size_t size() const { return size_; }

  std::vector<std::string> Gather(std::size_t rank, const std::string& mine) HVD_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    brought_[rank] = mine;
    const std::size_t round = round_;
    if (++arrived_ == size_) {
      arrived_ = 0;
      gathered_ = brought_;
      ++round_;
      changed_.NotifyAll();
    }
    // Nobody can be a round further before all have taken this one's.
    while (round_ == round) changed_.Wait(mutex_);
    return gathered_;
  }

 private:
  const std::size_t size_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> brought_ HVD_GUARDED_BY(mutex_);
  std::vector<std::string> gathered_ HVD_GUARDED_BY(mutex_);
  std::size_t arrived_ HVD_GUARDED_BY(mutex_) = 0;
  std::size_t round_ HVD_GUARDED_BY(mutex_) = 0;
};

// Fails at its call number `fails_at`, counted from 0.
class ThreadExchange final : public RankExchange {
 public:
  ThreadExchange(std::shared_ptr<ExchangeHub> hub, int rank, int fails_at = -1)
      : hub_(std::move(hub)), rank_(rank), fails_at_(fails_at) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hub_->size()); }
  Status Gather(const std::string& mine, std::vector<std::string>* all) override {
    *all = hub_->Gather(static_cast<std::size_t>(rank_), mine);
    return calls_++ == fails_at_ ? Status::Unavailable("the wire is cut") : Status::Ok();
  }
  int calls() const { return calls_; }

 private:
  const std::shared_ptr<ExchangeHub> hub_;
  const int rank_;
  const int fails_at_;
  int calls_ = 0;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_TEST_CPP_SUPPORT_THREAD_EXCHANGE_H_
