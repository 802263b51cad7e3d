#include "horovod_tf/common/shm/shm_failure_board.h"

#include <optional>
#include <string>
#include <utility>

#include "horovod_tf/common/base/check.h"
#include "horovod_tf/common/base/utf8.h"
#include "horovod_tf/common/shm/shm_bell.h"
#include "horovod_tf/common/shm/shm_futex.h"

namespace horovod_tf {

ShmFailureBoard::ShmFailureBoard(int rank, std::shared_ptr<ShmSegment> segment)
    : segment_(std::move(segment)), rank_(rank) {
  HVD_CHECK(0 <= rank_ && rank_ < segment_->ranks(), "a rank out of range");
}

void ShmFailureBoard::Tell(Subject subject, const Status& cause) {
  HVD_CHECK(!cause.ok(), "a failure has a cause");
  bool first = false;
  {
    MutexLock lock(mutex_);
    if (written_) return;
    written_ = true;
    ShmFailure& place = segment_->failure(rank_);
    place.code = static_cast<std::int32_t>(cause.code());
    place.of_this_rank = subject == Subject::kThisRank ? 1 : 0;
    CopyUtf8(cause.message(), place.text, ShmFailure::kTextBytes - 1);
    // Under the lock: whoever comes second, and writes nothing, finds the failure.
    std::uint32_t nobody = 0;
    const auto mine = static_cast<std::uint32_t>(rank_) + 1;
    first = segment_->header().first_failed.compare_exchange_strong(nobody, mine);
  }
  if (first) WakeAll();
}

Status ShmFailureBoard::Read() const {
  const auto teller = static_cast<int>(segment_->header().first_failed.load()) - 1;
  const ShmFailure& place = segment_->failure(teller);
  const std::optional<StatusCode> code = StatusCodeFromInt(place.code);
  const bool known = code.has_value() && *code != StatusCode::kOk;
  Status status = Status::FromCode(known ? *code : StatusCode::kUnknown, place.text);
  if (teller == rank_ || place.of_this_rank == 0) return status;
  return status.WithContext("rank " + std::to_string(teller) + " failed");
}

void ShmFailureBoard::WakeAll() const {
  for (std::size_t i = 0; i < kShmSlots; ++i) {
    FutexWakeAll(segment_->header().published[i].arrived);
    FutexWakeAll(segment_->header().released[i].arrived);
  }
  RingAll(*segment_);
}

}  // namespace horovod_tf
