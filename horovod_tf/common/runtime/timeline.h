// Timeline: a Chrome trace of what every tensor is doing, written by a thread of its own. The hot
// path only puts a small record into a bounded queue; when that is full, records are dropped and
// counted, and the trace says where. The file is valid JSON between the writer's steps and
// after a kill; who looks during a step may have to read again.
#ifndef HOROVOD_TF_COMMON_RUNTIME_TIMELINE_H_
#define HOROVOD_TF_COMMON_RUNTIME_TIMELINE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/logging.h"
#include "horovod_tf/common/base/mutex.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/base/types.h"
#include "horovod_tf/common/protocol/coordinator.h"

namespace horovod_tf {

struct TimelineRecord;

struct TimelineOptions {
  std::string path;
  std::size_t queue_capacity = 1 << 16;  // records
  // Told, once, when the file cannot be written any more; null: standard error.
  std::shared_ptr<const Logger> logger;
};

// One row per tensor (pid), in order of first appearance: NEGOTIATE_<KIND> with a tick per rank
// that became ready, then <KIND> with its activities nested in it, closed with type and shape.
// Ranks that are ready for a tensor's next round while its operation runs are shown at its end.
//
// A failure to write ends the recording and nothing else: what is reported later is thrown away.
//
// Thread rule: safe for use from any thread; the events of one tensor must not be reported from two
// threads at once.
class Timeline : public NegotiationObserver {
  class Impl;

 public:
  // Closed: what is reported is thrown away, at next to no cost.
  Timeline();
  // Fails if the file cannot be made; the text names the path and the system's reason. An existing
  // file is replaced. `clock` gives the events' times and outlives the timeline.
  static Status Open(const TimelineOptions& options, const Clock& clock,
                     std::unique_ptr<Timeline>* timeline);
  // For Open: nobody else has an Impl.
  explicit Timeline(std::unique_ptr<Impl> impl);
  // Writes what is queued, closes spans that are still open, and joins the writer.
  ~Timeline() override;

  // From now on what is reported goes to this file. A file before it is finished, as by Close; if
  // it is the same one, nothing happens. After an error nothing has changed. What is under way now
  // may lack its beginning.
  Status Reopen(const TimelineOptions& options, const Clock& clock) HVD_EXCLUDES(mutex_);
  // Finishes the file, if there is one.
  void Close() HVD_EXCLUDES(mutex_);

  // Negotiation. The first OnRankReady of a round opens NEGOTIATE_<KIND>.
  void OnRankReady(const std::string& name, CollectiveKind kind, int rank) override;
  void OnNegotiated(const std::string& name) override;

  // Execution. `activity` is a constant like "MPI_ALLREDUCE" that outlives the timeline.
  void Start(const std::string& name, CollectiveKind kind);
  void ActivityStart(const std::string& name, std::string_view activity);
  void ActivityEnd(const std::string& name);
  // Also closes activities that are still open. `shape` of the result; an error has no type and
  // shape.
  void End(const std::string& name, DataType dtype, const TensorShape& shape);
  void EndWithError(const std::string& name);

  std::uint64_t dropped() const;
  // Returns when everything reported before is in the file, or at the deadline, which is a time of
  // the real clock. REQUIRES: nobody closes or reopens it meanwhile. For tests.
  void Flush(TimePoint deadline);

 private:
  void Report(const TimelineRecord& record, std::string_view name, const TensorShape& shape = {})
      HVD_EXCLUDES(mutex_);

  std::atomic<bool> open_{false};
  // Held while a record is put into the queue, so that none comes after the file has been finished.
  mutable Mutex mutex_;
  std::unique_ptr<Impl> impl_ HVD_GUARDED_BY(mutex_);  // null: closed
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_TIMELINE_H_
