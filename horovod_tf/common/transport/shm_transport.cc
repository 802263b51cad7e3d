#include "horovod_tf/common/transport/shm_transport.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <string_view>
#include <utility>
#include <vector>

#include "horovod_tf/common/base/check.h"
#include "horovod_tf/common/shm/shm_bell.h"
#include "horovod_tf/common/shm/shm_mailbox.h"

namespace horovod_tf {
namespace {

// A step that is under way gets its answer in microseconds.
constexpr auto kSpin = std::chrono::microseconds(50);
// Whoever waits in vain for so long looks whether its peers are still there, and then again after
// twice as long, up to the limit.
constexpr auto kFirstLook = std::chrono::milliseconds(50);
constexpr auto kLongestBetweenLooks = std::chrono::milliseconds(500);
// A rank that leaves gives its last messages that long to be taken.
constexpr auto kFarewell = std::chrono::seconds(30);

// Messages to one rank that its mailbox has no room for yet.
class Outbox {
 public:
  void Add(std::string bytes) { messages_.push_back(std::move(bytes)); }
  void Clear() {
    messages_.clear();
    sent_ = 0;
  }
  bool empty() const { return messages_.empty(); }

  // Whether something went.
  bool Flush(int from, ShmMailbox& mailbox) {
    bool went = false;
    while (!empty() && PutNext(from, mailbox)) went = true;
    return went;
  }

 private:
  bool PutNext(int from, ShmMailbox& mailbox) {
    const std::string_view rest = std::string_view(messages_.front()).substr(sent_);
    const std::string_view part = rest.substr(0, Letter::kMostBytes);
    const bool last = part.size() == rest.size();
    if (!PutLetter(mailbox, from, last, part)) return false;
    sent_ += part.size();
    if (last) {
      messages_.pop_front();
      sent_ = 0;
    }
    return true;
  }

  std::deque<std::string> messages_;
  std::size_t sent_ = 0;  // of the first
};

// Thread rule: as Transport.
class ShmTransport final : public Transport {
 public:
  ShmTransport(std::string host, ShmMembership membership, std::function<void()> abandon)
      : member_(std::move(membership)),
        host_(std::move(host)),
        abandon_(std::move(abandon)),
        bell_(member_.segment->bell(member_.rank)),
        mailbox_(member_.segment->mailbox(member_.rank)),
        outboxes_(static_cast<std::size_t>(size())),
        begun_(static_cast<std::size_t>(size())) {}
  ~ShmTransport() override;

  int rank() const override { return member_.rank; }
  int size() const override { return member_.size(); }
  const std::string& host() const override { return host_; }

  Status Send(int to, std::string bytes) override;
  Status Receive(Incoming* message, bool* got) override;
  void Wait(TimePoint deadline, Expectation expectation) override;
  void Wake() override {
    wake_.store(true, std::memory_order_release);
    Ring(bell_);
  }
  void Close() override { mailbox_.closed.store(1, std::memory_order_release); }
  void Abort(const Status& cause) override {
    HVD_CHECK(!cause.ok(), "an abort needs a cause");
    member_.failures->Tell(ShmFailureBoard::Subject::kThisRank, cause);
  }
  Status health() const override { return member_.failures->failure(); }
  Status Poll() override {
    FlushAll();
    return health();
  }

 private:
  ShmMailbox& mailbox(int rank) const { return member_.segment->mailbox(rank); }
  // Whether it takes messages no more; and whether it owes none, so that its end is no failure.
  bool IsClosed(int rank) const {
    return mailbox(rank).closed.load(std::memory_order_acquire) != 0;
  }
  bool HasLeft(int rank) const { return mailbox(rank).left.load(std::memory_order_acquire) != 0; }
  bool Sent(int to);
  bool FlushAll();
  void TakeLetters();
  bool IsTimeToLook(TimePoint now, bool expects);
  void LookForTheDead();

  const ShmMembership member_;
  const std::string host_;
  const std::function<void()> abandon_;
  ShmBell& bell_;
  ShmMailbox& mailbox_;
  std::atomic<bool> wake_{false};

  // For the driving thread; by rank.
  std::vector<Outbox> outboxes_;
  std::vector<std::string> begun_;  // messages whose last part has not come
  std::deque<Incoming> inbox_;
  // While an answer is expected, over any number of waits: kNever while none is.
  TimePoint next_look_ = kNever;
  Duration between_looks_ = kFirstLook;
};

// After a failure there is nothing to see off: all read it in the shared memory. Who gives up
// before everything was taken does not say that it has left: its end is the others' business.
ShmTransport::~ShmTransport() {
  ShmTransport::Close();
  const TimePoint deadline = AfterDelay(Clock::Real().Now(), kFarewell);
  while (true) {
    const std::uint32_t rings = bell_.rung.load(std::memory_order_acquire);
    if (!health().ok() || FlushAll()) {
      mailbox_.left.store(1, std::memory_order_release);
      break;
    }
    const TimePoint now = Clock::Real().Now();
    if (now >= deadline) break;
    WaitForRing(bell_, rings, std::min<Duration>(deadline - now, kFirstLook));
  }
  if (!health().ok() && abandon_) abandon_();
}

// To somebody who takes nothing any more everything is. Asked last, since it takes a system call.
bool ShmTransport::Sent(int to) {
  Outbox& outbox = outboxes_[static_cast<std::size_t>(to)];
  if (outbox.empty()) return true;
  if (outbox.Flush(rank(), mailbox(to))) Ring(member_.segment->bell(to));
  if (!outbox.empty() && (IsClosed(to) || member_.processes->Ended(to))) outbox.Clear();
  return outbox.empty();
}

bool ShmTransport::FlushAll() {
  bool all = true;
  for (int to = 0; to < size(); ++to) all = Sent(to) && all;
  return all;
}

Status ShmTransport::Send(int to, std::string bytes) {
  HVD_CHECK(to >= 0 && to < size() && to != rank(), "a message goes to another rank");
  HVD_RETURN_IF_ERROR(health());
  outboxes_[static_cast<std::size_t>(to)].Add(std::move(bytes));
  static_cast<void>(Sent(to));  // what is not goes later
  return Status::Ok();
}

void ShmTransport::TakeLetters() {
  Letter letter;
  bool somebody_waits = false;
  bool room_wanted = false;
  while (TakeLetter(mailbox_, &letter, &room_wanted)) {
    next_look_ = kNever;
    somebody_waits = somebody_waits || room_wanted;
    std::string& begun = begun_[static_cast<std::size_t>(letter.from)];
    if (letter.last && begun.empty()) {
      inbox_.push_back({letter.from, std::move(letter.bytes)});
      continue;
    }
    begun += letter.bytes;
    if (letter.last) inbox_.push_back({letter.from, std::exchange(begun, std::string())});
  }
  if (somebody_waits) RingAll(*member_.segment);
}

Status ShmTransport::Receive(Incoming* message, bool* got) {
  if (inbox_.empty()) {
    // Asked before looking: then all that came before the failure is seen to be there.
    Status before = Poll();
    TakeLetters();
    *got = !inbox_.empty();
    if (!*got) return before;
  }
  *got = true;
  *message = std::move(inbox_.front());
  inbox_.pop_front();
  return Status::Ok();
}

void ShmTransport::Wait(TimePoint deadline, Expectation expectation) {
  const Clock& clock = Clock::Real();
  const bool expects = expectation == Expectation::kAnswer;
  const TimePoint spin_end = clock.Now() + (expects ? Duration(kSpin) : Duration::zero());
  while (true) {
    if (IsTimeToLook(clock.Now(), expects)) LookForTheDead();
    const std::uint32_t rings = bell_.rung.load(std::memory_order_acquire);
    if (wake_.load(std::memory_order_relaxed) && wake_.exchange(false)) return;
    if (!Poll().ok() || !inbox_.empty() || HasLetter(mailbox_)) return;
    const TimePoint now = clock.Now();
    if (now >= deadline) return;
    if (now < spin_end) {
      sched_yield();
      continue;
    }
    WaitForRing(bell_, rings, std::min(deadline, next_look_) - now);
  }
}

// Counted over waits, which end whenever this rank itself has something new: or a rank that is kept
// busy would never look.
bool ShmTransport::IsTimeToLook(TimePoint now, bool expects) {
  if (!expects) {
    next_look_ = kNever;
    return false;
  }
  const bool armed = next_look_ != kNever;
  if (armed && now < next_look_) return false;
  between_looks_ =
      armed ? std::min<Duration>(2 * between_looks_, kLongestBetweenLooks) : Duration(kFirstLook);
  next_look_ = now + between_looks_;
  return armed;
}

// What a process had put into the mailbox before its end is looked at first.
void ShmTransport::LookForTheDead() {
  for (int peer = 0; peer < size(); ++peer) {
    if (!member_.processes->Ended(peer) || HasLeft(peer)) continue;
    if (HasLetter(mailbox_)) return;
    member_.failures->Tell(
        ShmFailureBoard::Subject::kTheJob,
        Status::Unknown("rank " + std::to_string(peer) +
                        " ended without hvd.shutdown() while others wait for it; its output, "
                        "or the launcher's, says why"));
    return;
  }
}

}  // namespace

std::unique_ptr<Transport> MakeShmTransport(std::string host, ShmMembership membership,
                                            std::function<void()> abandon) {
  HVD_CHECK(membership.segment != nullptr, "a membership has a segment");
  return std::make_unique<ShmTransport>(std::move(host), std::move(membership), std::move(abandon));
}

}  // namespace horovod_tf
