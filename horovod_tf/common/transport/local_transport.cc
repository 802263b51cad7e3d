#include "horovod_tf/common/transport/local_transport.h"

#include <atomic>
#include <utility>

#include "horovod_tf/common/base/check.h"
#include "horovod_tf/common/base/mutex.h"

namespace horovod_tf {
namespace {

// What others may put before one endpoint. Thread rule: any thread.
class Mailbox {
 public:
  // Drops the message if the owner has left.
  void Put(Incoming message) HVD_EXCLUDES(mutex_) {
    bool notify = false;
    {
      MutexLock lock(mutex_);
      if (closed_) return;
      arrived_.push_back(std::move(message));
      notify = std::exchange(sleeping_, false);
    }
    // After the lock, so that the sleeper does not wake up into it.
    if (notify) condition_.NotifyOne();
  }

  void Wake() HVD_EXCLUDES(mutex_) {
    bool notify = false;
    {
      MutexLock lock(mutex_);
      woken_ = true;
      notify = std::exchange(sleeping_, false);
    }
    if (notify) condition_.NotifyOne();
  }

  // Exchanges what has arrived for `*empty`, whose memory is used again.
  void TakeAll(std::vector<Incoming>* empty) HVD_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    arrived_.swap(*empty);
  }

  // Until something has arrived, Wake, `failed`, or the deadline.
  void Wait(const std::atomic<bool>& failed, const Clock& clock, TimePoint deadline)
      HVD_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (!woken_ && arrived_.empty() && !failed.load(std::memory_order_acquire) &&
           (deadline == kNever || clock.Now() < deadline)) {
      sleeping_ = true;
      clock.WaitUntil(condition_, mutex_, deadline);
      sleeping_ = false;
    }
    woken_ = false;
  }

  void Close() HVD_EXCLUDES(mutex_) {
    std::vector<Incoming> dropped;
    MutexLock lock(mutex_);
    closed_ = true;
    arrived_.swap(dropped);
  }

 private:
  Mutex mutex_;
  CondVar condition_;
  std::vector<Incoming> arrived_ HVD_GUARDED_BY(mutex_);
  bool woken_ HVD_GUARDED_BY(mutex_) = false;
  bool sleeping_ HVD_GUARDED_BY(mutex_) = false;  // the owner waits, and nobody has notified it yet
  bool closed_ HVD_GUARDED_BY(mutex_) = false;
};

// What the endpoints share. Thread rule: any thread.
//
// Lock order: departures_mutex_, then one mailbox's mutex; failure_mutex_ is taken alone.
class Hub {
 public:
  explicit Hub(std::size_t size) : mailboxes_(size) {}

  int size() const { return static_cast<int>(mailboxes_.size()); }
  Mailbox& mailbox(int rank) { return mailboxes_[static_cast<std::size_t>(rank)]; }
  const std::atomic<bool>& failed() const { return failed_; }
  // The rank that left first; -1 while all are there.
  int first_left() const { return first_left_.load(std::memory_order_acquire); }

  void Broadcast(int from, const std::string& bytes) HVD_EXCLUDES(departures_mutex_) {
    MutexLock lock(departures_mutex_);
    for (int to = 0; to < size(); ++to) {
      if (to != from) mailbox(to).Put({from, bytes});
    }
  }

  void Leave(int rank) HVD_EXCLUDES(departures_mutex_) {
    {
      MutexLock lock(departures_mutex_);
      int nobody = -1;
      first_left_.compare_exchange_strong(nobody, rank, std::memory_order_acq_rel);
    }
    mailbox(rank).Close();
    WakeAll();
  }

  void Fail(int rank, const Status& cause) HVD_EXCLUDES(failure_mutex_) {
    {
      MutexLock lock(failure_mutex_);
      if (failed_.load(std::memory_order_relaxed)) return;
      failed_rank_ = rank;
      failure_ = cause;
      failure_on_peers_ = cause.WithContext("rank " + std::to_string(rank) + " failed");
      failed_.store(true, std::memory_order_release);
    }
    WakeAll();
  }

  // Why the job has failed, in the words for `rank`. It is asked in waiting loops: no lock while
  // there is no failure.
  Status Health(int rank) const HVD_EXCLUDES(failure_mutex_) {
    if (!failed_.load(std::memory_order_acquire)) return Status::Ok();
    MutexLock lock(failure_mutex_);
    return rank == failed_rank_ ? failure_ : failure_on_peers_;
  }

 private:
  void WakeAll() {
    for (Mailbox& box : mailboxes_) box.Wake();
  }

  std::vector<Mailbox> mailboxes_;

  // Held through a broadcast, so that no endpoint can act on its copy and leave while others have
  // none yet.
  Mutex departures_mutex_;
  std::atomic<int> first_left_{-1};  // written under departures_mutex_

  std::atomic<bool> failed_{false};  // written under failure_mutex_
  mutable Mutex failure_mutex_;
  int failed_rank_ HVD_GUARDED_BY(failure_mutex_) = -1;
  Status failure_ HVD_GUARDED_BY(failure_mutex_);
  Status failure_on_peers_ HVD_GUARDED_BY(failure_mutex_);
};

// Thread rule: as Transport.
class LocalTransport final : public Transport {
 public:
  LocalTransport(int rank, std::string host, const Clock& clock, std::shared_ptr<Hub> hub)
      : rank_(rank),
        host_(std::move(host)),
        clock_(clock),
        hub_(std::move(hub)),
        mailbox_(hub_->mailbox(rank)) {}
  ~LocalTransport() override { hub_->Leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  const std::string& host() const override { return host_; }

  Status Send(int to, std::string bytes) override {
    HVD_CHECK(to >= 0 && to < size() && to != rank_, "a message goes to another rank");
    HVD_RETURN_IF_ERROR(health());
    hub_->mailbox(to).Put({rank_, std::move(bytes)});
    return Status::Ok();
  }

  Status Broadcast(const std::string& bytes) override {
    HVD_RETURN_IF_ERROR(health());
    hub_->Broadcast(rank_, bytes);
    return Status::Ok();
  }

  Status Receive(Incoming* message, bool* got) override {
    *got = false;
    if (next_ == taken_.size()) {
      // Asked before looking for messages: then all that came before the end is seen to be there.
      const bool failed = hub_->failed().load(std::memory_order_acquire);
      const int left = hub_->first_left();
      taken_.clear();
      next_ = 0;
      mailbox_.TakeAll(&taken_);
      if (taken_.empty()) {
        if (failed) return health();
        if (left >= 0) return LeftStatus(left);
        return Status::Ok();
      }
    }
    *message = std::move(taken_[next_++]);
    *got = true;
    return Status::Ok();
  }

  void Wait(TimePoint deadline, Expectation) override {
    if (next_ < taken_.size()) return;
    mailbox_.Wait(hub_->failed(), clock_, deadline);
  }
  void Wake() override { mailbox_.Wake(); }

  void Abort(const Status& cause) override {
    HVD_CHECK(!cause.ok(), "an abort needs a cause");
    hub_->Fail(rank_, cause);
  }
  Status health() const override { return hub_->Health(rank_); }

 private:
  static Status LeftStatus(int rank) {
    return Status::Unavailable("rank " + std::to_string(rank) +
                               " has left: nothing more can come from it");
  }

  // Constant after construction.
  const int rank_;
  const std::string host_;
  const Clock& clock_;
  const std::shared_ptr<Hub> hub_;
  Mailbox& mailbox_;  // the hub's, for this rank

  // The driving thread's only: taken from the mailbox, handed out up to next_.
  std::vector<Incoming> taken_;
  std::size_t next_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> MakeLocalTransports(const std::vector<std::string>& hosts,
                                                            const Clock& clock) {
  const auto hub = std::make_shared<Hub>(hosts.size());
  std::vector<std::unique_ptr<Transport>> endpoints;
  endpoints.reserve(hosts.size());
  for (const std::string& host : hosts) {
    const int rank = static_cast<int>(endpoints.size());
    endpoints.push_back(std::make_unique<LocalTransport>(rank, host, clock, hub));
  }
  return endpoints;
}

}  // namespace horovod_tf
