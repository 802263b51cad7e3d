#include "horovod_tf/common/runtime/timeline.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "horovod_tf/common/base/mutex.h"
#include "horovod_tf/common/runtime/json_array_file.h"
#include "horovod_tf/common/runtime/timeline_rows.h"

namespace horovod_tf {
namespace {

// While records keep coming, the writer takes them in lots that have gathered for this long. So a
// busy program wakes it a few hundred times a second, whatever the number of records.
constexpr Duration kGatherTime = std::chrono::milliseconds(3);

// Room in the queue for each record it may hold, on average: a name and a shape.
constexpr std::size_t kBytesPerRecord = 256;
constexpr std::size_t kSmallestQueueBytes = 64 << 10;

// Records one after the other as plain bytes, so that putting one in is a copy: no allocation. Room
// is reserved once, and touched only as far as it is used.
//
// Thread rule: one thread at a time.
class RecordBuffer {
 public:
  explicit RecordBuffer(std::size_t capacity)
      : capacity_(capacity),
        capacity_bytes_(std::max(capacity * kBytesPerRecord, kSmallestQueueBytes)) {
    bytes_.reserve(capacity_bytes_);
  }

  // False, and nothing is changed, if there is no room.
  bool Put(const TimelineRecord& record, std::string_view name, const TensorShape& shape) {
    const Header header{record, name.size(), shape.rank()};
    const std::size_t dims_bytes = shape.rank() * sizeof(std::int64_t);
    if (count_ == capacity_ ||
        bytes_.size() + sizeof(header) + name.size() + dims_bytes > capacity_bytes_) {
      return false;
    }
    Append(&header, sizeof(header));
    Append(name.data(), name.size());
    Append(shape.data(), dims_bytes);
    ++count_;
    return true;
  }

  // Calls visit(record, name, shape) for all in order.
  template <typename Visitor>
  void ForEach(const Visitor& visit) const {
    std::string_view rest = bytes_;
    for (std::size_t i = 0; i < count_; ++i) {
      Header header;
      std::memcpy(&header, rest.data(), sizeof(header));
      rest.remove_prefix(sizeof(header));
      const std::string_view name = rest.substr(0, header.name_size);
      rest.remove_prefix(name.size());
      std::vector<std::int64_t> dims(header.dims);
      const std::size_t dims_bytes = dims.size() * sizeof(std::int64_t);
      if (dims_bytes > 0) std::memcpy(dims.data(), rest.data(), dims_bytes);
      rest.remove_prefix(dims_bytes);
      visit(header.record, name, TensorShape(dims));
    }
  }

  std::size_t count() const { return count_; }
  bool half_full() const { return count_ * 2 >= capacity_ || bytes_.size() * 2 >= capacity_bytes_; }
  void Clear() {
    bytes_.clear();
    count_ = 0;
  }
  void Swap(RecordBuffer& other) {
    bytes_.swap(other.bytes_);
    std::swap(count_, other.count_);
  }

 private:
  struct Header {
    TimelineRecord record;
    std::size_t name_size = 0;
    std::size_t dims = 0;
  };
  static_assert(std::is_trivially_copyable_v<Header>, "records are copied as bytes");

  void Append(const void* data, std::size_t size) {
    bytes_.append(static_cast<const char*>(data), size);
  }

  const std::size_t capacity_;
  const std::size_t capacity_bytes_;
  std::string bytes_;
  std::size_t count_ = 0;
};

TimelineRecord Record(TimelineEvent event) {
  TimelineRecord record;
  record.event = event;
  return record;
}

// Starts a thread that gets none of the process's signals: they are for the program's own threads,
// and one that a write provokes (a file size limit) shall be an error of the write instead.
Status StartThreadWithoutSignals(std::thread* thread, const std::function<void()>& main) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Status status;
  try {
    *thread = std::thread(main);
  } catch (const std::system_error& error) {
    status = Status::ResourceExhausted(std::string("cannot start the timeline's writer: ") +
                                       error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

std::string StartEvent() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(since_epoch).count();
  return "{\"name\":\"trace_start\",\"ph\":\"M\",\"pid\":0,\"args\":{"
         "\"start_time_since_epoch_in_micros\":" +
         std::to_string(micros) + "}}";
}

}  // namespace

// The queue between the threads that report and the writer, and the writer.
//
// Thread rule: Report, Flush and dropped are for any thread.
class Timeline::Impl {
 public:
  Impl(const TimelineOptions& options, const Clock& clock)
      : clock_(clock),
        start_(clock.Now()),
        logger_(options.logger != nullptr ? options.logger : std::make_shared<Logger>()),
        taken_(options.queue_capacity),
        queue_(options.queue_capacity) {}

  ~Impl() {
    if (!writer_.joinable()) return;
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    wake_.NotifyOne();
    writer_.join();
  }

  const std::string& path() const { return path_; }

  Status Start(const std::string& path) {
    path_ = path;
    HVD_RETURN_IF_ERROR(file_.Open(path, StartEvent()).WithContext("timeline"));
    return StartThreadWithoutSignals(&writer_, [this] { WriterMain(); });
  }

  void Report(TimelineRecord record, std::string_view name, const TensorShape& shape = {})
      HVD_EXCLUDES(mutex_);
  std::uint64_t dropped() const HVD_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return dropped_;
  }
  void Flush(TimePoint deadline) HVD_EXCLUDES(mutex_);

 private:
  // Records that were dropped one after the other.
  struct Gap {
    std::uint64_t count = 0;
    std::int64_t micros = 0;  // of the first
  };

  std::int64_t MicrosNow() const {
    return std::chrono::duration_cast<std::chrono::microseconds>(clock_.Now() - start_).count();
  }
  bool HasWork() const HVD_REQUIRES(mutex_) { return queue_.count() > 0 || gap_.count > 0; }
  // Whether the writer must not wait for more to gather.
  bool Urgent() const HVD_REQUIRES(mutex_) {
    return stopping_ || flushes_ > 0 || gap_.count > 0 || queue_.half_full();
  }
  void WriterMain() HVD_EXCLUDES(mutex_);
  void WriteUntilStopped() HVD_EXCLUDES(mutex_);
  // Sleeps until there is something, then moves it to taken_ and *gap. False at the end.
  bool TakeQueue(Gap* gap) HVD_EXCLUDES(mutex_);
  void WriteTaken(const Gap& gap);
  void CommitFile();

  // Constant after Start.
  const Clock& clock_;
  const TimePoint start_;
  const std::shared_ptr<const Logger> logger_;
  std::string path_;
  std::thread writer_;

  // The writer's, once it runs.
  JsonArrayFile file_;
  TimelineRows rows_{file_};
  RecordBuffer taken_;
  bool failed_ = false;

  mutable Mutex mutex_;
  CondVar wake_;     // for the writer
  CondVar written_;  // for Flush
  RecordBuffer queue_ HVD_GUARDED_BY(mutex_);
  // Behind the last record in the queue. While it is not empty nothing is put in, so that a gap has
  // one place.
  Gap gap_ HVD_GUARDED_BY(mutex_);
  std::uint64_t dropped_ HVD_GUARDED_BY(mutex_) = 0;
  bool asleep_ HVD_GUARDED_BY(mutex_) = false;  // the writer must be notified
  bool stopping_ HVD_GUARDED_BY(mutex_) = false;
  int flushes_ HVD_GUARDED_BY(mutex_) = 0;  // callers that wait in Flush
  std::uint64_t reported_count_ HVD_GUARDED_BY(mutex_) = 0;
  std::uint64_t taken_count_ HVD_GUARDED_BY(mutex_) = 0;
  std::uint64_t written_count_ HVD_GUARDED_BY(mutex_) = 0;
};

void Timeline::Impl::Report(TimelineRecord record, std::string_view name,
                            const TensorShape& shape) {
  record.micros = MicrosNow();
  bool wake = false;
  {
    MutexLock lock(mutex_);
    ++reported_count_;
    const bool was_urgent = Urgent();
    if (gap_.count > 0 || !queue_.Put(record, name, shape)) {
      if (gap_.count == 0) gap_.micros = record.micros;
      ++gap_.count;
      ++dropped_;
    }
    // A system call only where the writer sleeps without a limit, or need not gather any longer.
    wake = asleep_ || (!was_urgent && Urgent());
    asleep_ = false;
  }
  if (wake) wake_.NotifyOne();
}

void Timeline::Impl::Flush(TimePoint deadline) {
  MutexLock lock(mutex_);
  const std::uint64_t wanted = reported_count_;
  ++flushes_;
  wake_.NotifyOne();
  while (written_count_ < wanted && Clock::Real().Now() < deadline) {
    written_.WaitUntil(mutex_, deadline);
  }
  --flushes_;
}

void Timeline::Impl::WriterMain() {
  try {
    WriteUntilStopped();
  } catch (const std::exception& error) {
    // Out of memory. The file is as the last write left it, and the queue fills up and drops.
    logger_->Log(LogLevel::kError, std::string("timeline: the writer ended: ") + error.what());
  }
}

void Timeline::Impl::WriteUntilStopped() {
  Gap gap;
  while (TakeQueue(&gap)) {
    if (!failed_) WriteTaken(gap);
    {
      MutexLock lock(mutex_);
      written_count_ = taken_count_;
    }
    written_.NotifyAll();
  }
  rows_.CloseAll(MicrosNow());
  CommitFile();
}

bool Timeline::Impl::TakeQueue(Gap* gap) {
  MutexLock lock(mutex_);
  const TimePoint gathered = AfterDelay(Clock::Real().Now(), kGatherTime);
  while (!Urgent() && Clock::Real().Now() < gathered) {
    wake_.WaitUntil(mutex_, gathered);
  }
  while (!HasWork() && !stopping_) {
    asleep_ = true;
    wake_.Wait(mutex_);
  }
  asleep_ = false;
  if (!HasWork()) return false;
  taken_.Clear();
  taken_.Swap(queue_);
  *gap = std::exchange(gap_, {});
  taken_count_ = reported_count_;
  return true;
}

void Timeline::Impl::WriteTaken(const Gap& gap) {
  taken_.ForEach([this](const TimelineRecord& record, std::string_view name,
                        const TensorShape& shape) { rows_.Apply(record, name, shape); });
  if (gap.count > 0) rows_.OnLost(gap.micros, gap.count);
  CommitFile();
}

void Timeline::Impl::CommitFile() {
  const Status status = file_.Commit();
  if (status.ok() || failed_) return;
  failed_ = true;
  logger_->Log(LogLevel::kError, "timeline: " + status.message() + "; nothing more is recorded");
}

Status Timeline::Open(const TimelineOptions& options, const Clock& clock,
                      std::unique_ptr<Timeline>* timeline) {
  auto impl = std::make_unique<Impl>(options, clock);
  HVD_RETURN_IF_ERROR(impl->Start(options.path));
  *timeline = std::make_unique<Timeline>(std::move(impl));
  return Status::Ok();
}

Timeline::Timeline() = default;

Timeline::Timeline(std::unique_ptr<Impl> impl) : open_(true), impl_(std::move(impl)) {}

Timeline::~Timeline() = default;

Status Timeline::Reopen(const TimelineOptions& options, const Clock& clock) {
  {
    MutexLock lock(mutex_);
    if (impl_ != nullptr && impl_->path() == options.path) return Status::Ok();
  }
  auto impl = std::make_unique<Impl>(options, clock);
  HVD_RETURN_IF_ERROR(impl->Start(options.path));
  {
    MutexLock lock(mutex_);
    impl_.swap(impl);
    open_.store(true, std::memory_order_release);
  }
  // The one before finishes its file here, without the lock.
  return Status::Ok();
}

void Timeline::Close() {
  std::unique_ptr<Impl> last;
  MutexLock lock(mutex_);
  open_.store(false, std::memory_order_release);
  last.swap(impl_);
}

void Timeline::Report(const TimelineRecord& record, std::string_view name,
                      const TensorShape& shape) {
  if (!open_.load(std::memory_order_acquire)) return;
  MutexLock lock(mutex_);
  if (impl_ != nullptr) impl_->Report(record, name, shape);
}

void Timeline::OnRankReady(const std::string& name, CollectiveKind kind, int rank) {
  TimelineRecord record = Record(TimelineEvent::kRankReady);
  record.kind = kind;
  record.rank = rank;
  Report(record, name);
}

void Timeline::OnNegotiated(const std::string& name) {
  Report(Record(TimelineEvent::kNegotiated), name);
}

void Timeline::Start(const std::string& name, CollectiveKind kind) {
  TimelineRecord record = Record(TimelineEvent::kStart);
  record.kind = kind;
  Report(record, name);
}

void Timeline::ActivityStart(const std::string& name, std::string_view activity) {
  TimelineRecord record = Record(TimelineEvent::kActivityStart);
  record.activity = activity;
  Report(record, name);
}

void Timeline::ActivityEnd(const std::string& name) {
  Report(Record(TimelineEvent::kActivityEnd), name);
}

void Timeline::End(const std::string& name, DataType dtype, const TensorShape& shape) {
  TimelineRecord record = Record(TimelineEvent::kEnd);
  record.dtype = dtype;
  Report(record, name, shape);
}

void Timeline::EndWithError(const std::string& name) {
  Report(Record(TimelineEvent::kEndWithError), name);
}

std::uint64_t Timeline::dropped() const {
  MutexLock lock(mutex_);
  return impl_ == nullptr ? 0 : impl_->dropped();
}

void Timeline::Flush(TimePoint deadline) {
  Impl* impl = nullptr;
  {
    MutexLock lock(mutex_);
    impl = impl_.get();
  }
  if (impl != nullptr) impl->Flush(deadline);
}

}  // namespace horovod_tf
