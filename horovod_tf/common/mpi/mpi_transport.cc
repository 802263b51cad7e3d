#include "horovod_tf/common/mpi/mpi_transport.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <iterator>
#include <limits>
#include <list>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "horovod_tf/common/base/check.h"
#include "horovod_tf/common/base/mutex.h"
#include "horovod_tf/common/mpi/mpi_error.h"
#include "horovod_tf/common/protocol/wire.h"

namespace horovod_tf {
namespace {

// The last byte of what is sent: what it is. One tag for both, so that an abort does not overtake
// what was said before it.
constexpr char kMessage = 'm';
constexpr char kAbort = 'a';

// A failed rank stays this long to see its abort messages off.
constexpr auto kFarewell = std::chrono::milliseconds(500);

// A rank that ended well gives its last messages that long to be taken.
constexpr auto kLongFarewell = std::chrono::seconds(30);

// How Wait polls. A step that is under way gets its answer in microseconds; a peer that is late
// costs a few per cent of a core; a process with nothing to do costs next to nothing.
constexpr auto kSpin = std::chrono::microseconds(50);
constexpr auto kFirstPause = std::chrono::microseconds(20);
constexpr auto kLongestPauseExpecting = std::chrono::microseconds(500);
constexpr auto kLongestPauseIdle = std::chrono::milliseconds(10);

struct Outgoing {
  std::string bytes;
  MPI_Request request = MPI_REQUEST_NULL;
};

// Thread rule: as Transport.
class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(std::shared_ptr<MpiGroup> group) : group_(std::move(group)) {}
  ~MpiTransport() override;

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  const std::string& host() const override { return group_->host(); }

  Status Send(int to, std::string bytes) override;
  Status Receive(Incoming* message, bool* got) override;
  void Wait(TimePoint deadline, Expectation expectation) override;
  void Wake() override;
  void Abort(const Status& cause) override;
  Status health() const override;
  Status Poll() override;

 private:
  Status Post(int to, char kind, std::string bytes);
  Status ReapSends();
  Status TakeArrivals();
  Status Take(MPI_Message* handle, const MPI_Status& envelope);
  void OnPeerAbort(int from, const std::string& bytes);
  void Fail(const Status& status);
  void SendAborts();
  // The first call's thread is the driving one.
  void IsDriven() {
    if (driver_.load(std::memory_order_relaxed) == std::thread::id()) {
      driver_.store(std::this_thread::get_id(), std::memory_order_release);
    }
  }
  bool TakeWake();
  bool Pause(TimePoint until);

  const std::shared_ptr<MpiGroup> group_;

  // For the driving thread.
  std::list<Outgoing> outgoing_;
  std::deque<Incoming> inbox_;

  std::atomic<std::thread::id> driver_{};
  std::atomic<bool> failed_{false};
  mutable Mutex mutex_;
  CondVar woken_;
  bool wake_ HVD_GUARDED_BY(mutex_) = false;
  Status failure_ HVD_GUARDED_BY(mutex_);    // first one, as told here
  Status own_cause_ HVD_GUARDED_BY(mutex_);  // not OK: to be told to the peers
};

// The driving thread has ended: what it did not come to is done here. Where there never was one,
// as another transport took its place, MPI is not called: perhaps only one thread may do that.
MpiTransport::~MpiTransport() {
  if (driver_.load(std::memory_order_acquire) == std::thread::id() && health().ok()) return;
  const Clock& clock = Clock::Real();
  const TimePoint start = clock.Now();
  Duration pause = kFirstPause;
  while (true) {
    const bool failed = !Poll().ok();
    if (outgoing_.empty() || !ReapSends().ok()) break;
    const Duration limit = failed ? Duration(kFarewell) : Duration(kLongFarewell);
    if (clock.Now() - start >= limit) break;
    std::this_thread::sleep_for(pause);
    pause = std::min<Duration>(pause * 2, kLongestPauseExpecting);
  }
  if (outgoing_.empty() && health().ok()) return;
  group_->MarkFailed();
  // MPI may still read these buffers: they are left, where they are, to the process's end.
  for (Outgoing& send : outgoing_) MPI_Request_free(&send.request);
  static_cast<void>(std::make_unique<std::list<Outgoing>>(std::move(outgoing_)).release());
}

Status MpiTransport::Post(int to, char kind, std::string bytes) {
  bytes.push_back(kind);
  if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    return Status::ResourceExhausted("a control message of " + std::to_string(bytes.size()) +
                                     " bytes is longer than MPI can send at once");
  }
  outgoing_.push_back({std::move(bytes), MPI_REQUEST_NULL});
  Outgoing& send = outgoing_.back();
  const MpiChannel channel = group_->control();
  const Status status =
      FromMpi(MPI_Isend(send.bytes.data(), static_cast<int>(send.bytes.size()), MPI_BYTE,
                        channel.InComm(to), channel.tag, channel.comm, &send.request),
              "MPI_Isend");
  if (!status.ok()) outgoing_.pop_back();
  return status.WithContext("sending to rank " + std::to_string(to));
}

Status MpiTransport::Send(int to, std::string bytes) {
  HVD_CHECK(to >= 0 && to < size() && to != rank(), "a message goes to another rank");
  IsDriven();
  HVD_RETURN_IF_ERROR(health());
  HVD_RETURN_IF_ERROR(ReapSends());
  return Post(to, kMessage, std::move(bytes));
}

Status MpiTransport::ReapSends() {
  for (auto send = outgoing_.begin(); send != outgoing_.end();) {
    int done = 0;
    HVD_MPI_RETURN_IF_ERROR(MPI_Test, &send->request, &done, MPI_STATUS_IGNORE);
    send = done != 0 ? outgoing_.erase(send) : std::next(send);
  }
  return Status::Ok();
}

Status MpiTransport::TakeArrivals() {
  const MpiChannel channel = group_->control();
  while (true) {
    int arrived = 0;
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status envelope;
    HVD_MPI_RETURN_IF_ERROR(MPI_Improbe, MPI_ANY_SOURCE, channel.tag, channel.comm, &arrived,
                            &handle, &envelope);
    if (arrived == 0) return Status::Ok();
    HVD_RETURN_IF_ERROR(Take(&handle, envelope));
  }
}

Status MpiTransport::Take(MPI_Message* handle, const MPI_Status& envelope) {
  int length = 0;
  HVD_MPI_RETURN_IF_ERROR(MPI_Get_count, &envelope, MPI_BYTE, &length);
  std::string bytes(static_cast<std::size_t>(length), '\0');
  HVD_MPI_RETURN_IF_ERROR(MPI_Mrecv, bytes.data(), length, MPI_BYTE, handle, MPI_STATUS_IGNORE);
  const int from = group_->RankOf(envelope.MPI_SOURCE);
  if (bytes.empty() || from < 0) return Status::Internal("a message that none of our ranks sends");
  const char kind = bytes.back();
  bytes.pop_back();
  if (kind == kAbort) {
    OnPeerAbort(from, bytes);
  } else {
    inbox_.push_back({from, std::move(bytes)});
  }
  return Status::Ok();
}

// A peer's failure as it travels: code, then text.
void MpiTransport::OnPeerAbort(int from, const std::string& bytes) {
  WireReader reader(bytes);
  const std::optional<StatusCode> code = StatusCodeFromInt(reader.U8());
  const std::string text(reader.String());
  const bool understood = reader.ok() && code.has_value() && *code != StatusCode::kOk;
  Fail(Status::FromCode(understood ? *code : StatusCode::kUnknown,
                        "rank " + std::to_string(from) + " failed: " + text));
}

void MpiTransport::Fail(const Status& status) {
  MutexLock lock(mutex_);
  if (!failure_.ok()) return;
  failure_ = status;
  failed_.store(true, std::memory_order_release);
}

void MpiTransport::Abort(const Status& cause) {
  HVD_CHECK(!cause.ok(), "an abort needs a cause");
  {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = cause;
    own_cause_ = cause;
    failed_.store(true, std::memory_order_release);
  }
  Wake();
  if (driver_.load(std::memory_order_acquire) == std::this_thread::get_id()) SendAborts();
}

// Peers must hear of it even if this rank never communicates again: the destructor sees them off.
void MpiTransport::SendAborts() {
  Status cause;
  {
    MutexLock lock(mutex_);
    cause = std::exchange(own_cause_, Status::Ok());
  }
  if (cause.ok()) return;
  WireWriter writer;
  writer.U8(static_cast<std::uint8_t>(cause.code()));
  writer.String(cause.message());
  const std::string bytes = writer.Take();
  for (int to = 0; to < size(); ++to) {
    // A peer that cannot be reached has its own reason; the others are still to be told.
    if (to != rank()) static_cast<void>(Post(to, kAbort, bytes));
  }
}

Status MpiTransport::health() const {
  if (!failed_.load(std::memory_order_acquire)) return Status::Ok();
  MutexLock lock(mutex_);
  return failure_;
}

Status MpiTransport::Poll() {
  if (failed_.load(std::memory_order_acquire)) SendAborts();
  Status status = TakeArrivals();
  if (status.ok() && !outgoing_.empty()) status = ReapSends();
  if (!status.ok()) Abort(status);
  return health();
}

Status MpiTransport::Receive(Incoming* message, bool* got) {
  IsDriven();
  if (inbox_.empty()) static_cast<void>(Poll());  // its answer is health()'s, below
  *got = !inbox_.empty();
  if (!*got) return health();
  *message = std::move(inbox_.front());
  inbox_.pop_front();
  return Status::Ok();
}

void MpiTransport::Wake() {
  {
    MutexLock lock(mutex_);
    wake_ = true;
  }
  woken_.NotifyOne();
}

bool MpiTransport::TakeWake() {
  MutexLock lock(mutex_);
  return std::exchange(wake_, false);
}

// Until `until` or a Wake; true if there was one.
bool MpiTransport::Pause(TimePoint until) {
  MutexLock lock(mutex_);
  if (!wake_) woken_.WaitUntil(mutex_, until);
  return std::exchange(wake_, false);
}

void MpiTransport::Wait(TimePoint deadline, Expectation expectation) {
  IsDriven();
  const Clock& clock = Clock::Real();
  const TimePoint start = clock.Now();
  const bool expects = expectation == Expectation::kAnswer;
  const Duration longest = expects ? Duration(kLongestPauseExpecting) : Duration(kLongestPauseIdle);
  Duration pause = expects ? Duration(kFirstPause) : longest;
  while (true) {
    if (!Poll().ok() || !inbox_.empty()) return;
    const TimePoint now = clock.Now();
    if (now >= deadline) return;
    if (expects && now - start < kSpin) {
      if (TakeWake()) return;
      sched_yield();
      continue;
    }
    if (Pause(std::min(deadline, AfterDelay(now, pause)))) return;
    pause = std::min(pause * 2, longest);
  }
}

}  // namespace

std::unique_ptr<Transport> MakeMpiTransport(std::shared_ptr<MpiGroup> group) {
  return std::make_unique<MpiTransport>(std::move(group));
}

std::unique_ptr<Transport> MakeMpiTransport(std::shared_ptr<MpiWorld> world) {
  return MakeMpiTransport(std::make_shared<MpiGroup>(std::move(world)));
}

}  // namespace horovod_tf
