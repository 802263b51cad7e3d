#include "horovod_tf/common/collectives/shm_doorbells.h"

#include <utility>

#include "horovod_tf/common/base/check.h"
#include "horovod_tf/common/collectives/shm_futex.h"

namespace horovod_tf {
namespace {

// Thread rule: as Doorbells.
class ShmDoorbells final : public Doorbells {
 public:
  ShmDoorbells(int rank, std::shared_ptr<ShmSegment> segment)
      : segment_(std::move(segment)), rank_(rank) {
    HVD_CHECK(0 <= rank_ && rank_ < segment_->ranks(), "a rank out of range");
  }

  // Whoever is about to sleep says so before it looks at the count for the last time, and whoever
  // rings counts before it looks whether somebody sleeps: one of them sees the other.
  void Ring(int rank) override {
    ShmBell& bell = segment_->bell(rank);
    bell.rung.fetch_add(1, std::memory_order_seq_cst);
    if (bell.asleep.load(std::memory_order_seq_cst) != 0) FutexWakeAll(bell.rung);
  }

  std::uint32_t count() const override { return own().rung.load(std::memory_order_acquire); }

  void WaitForRing(std::uint32_t seen, Duration limit) override {
    if (limit <= Duration::zero()) return;
    ShmBell& bell = own();
    bell.asleep.store(1, std::memory_order_seq_cst);
    if (bell.rung.load(std::memory_order_seq_cst) == seen) FutexWait(bell.rung, seen, limit);
    bell.asleep.store(0, std::memory_order_relaxed);
  }

 private:
  ShmBell& own() const { return segment_->bell(rank_); }

  const std::shared_ptr<ShmSegment> segment_;
  const int rank_;
};

}  // namespace

std::shared_ptr<Doorbells> MakeShmDoorbells(int rank, std::shared_ptr<ShmSegment> segment) {
  return std::make_shared<ShmDoorbells>(rank, std::move(segment));
}

}  // namespace horovod_tf
