#include "horovod_tf/common/runtime/executor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <limits>
#include <string>
#include <thread>
#include <utility>

#include "horovod_tf/common/base/check.h"

namespace horovod_tf {
namespace {

constexpr std::size_t kScratchAlignment = 64;
constexpr auto kFirstNap = std::chrono::microseconds(10);
constexpr auto kLongestNap = std::chrono::milliseconds(1);

// Runs somebody else's code: what it throws becomes a Status.
template <typename Call>
Status Guarded(const std::string& who, Call&& call) {
  try {
    return call();
  } catch (const std::exception& e) {
    return Status::Unknown(who + " threw an exception: " + e.what());
  } catch (...) {
    return Status::Unknown(who + " threw an exception of a type not derived from std::exception");
  }
}

// "allreduce of tensor 'x'", "allreduce of 3 tensors, the first is 'x'".
std::string DescribeWork(const std::vector<TensorEntry>& entries) {
  const Request& first = entries.front().request;
  const std::string kind(Info(first.kind).name);
  if (entries.size() == 1) return kind + " of tensor '" + first.name + "'";
  return kind + " of " + std::to_string(entries.size()) + " tensors, the first is '" + first.name +
         "'";
}

// The entries of one batch until they are finished, exactly once and all alike.
//
// Thread rule: one thread at a time, but for Finish, which any thread may call at any time.
class Work {
 public:
  Work(std::vector<TensorEntry> entries, Timeline* timeline)
      : entries_(std::move(entries)), timeline_(timeline) {
    if (timeline_ == nullptr) return;
    for (const TensorEntry& entry : entries_) {
      timeline_->Start(entry.request.name, entry.request.kind);
    }
  }
  ~Work() {
    if (finished_.load(std::memory_order_acquire)) return;
    (void)Finish(Status::Aborted("the backend dropped it before it was finished"));
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  std::vector<TensorEntry>& entries() { return entries_; }

  // Only the first call counts. Returns what the entries were told.
  Status Finish(const Status& result) {
    if (finished_.exchange(true, std::memory_order_acq_rel)) return result;
    Status status = result.ok() ? result : result.WithContext(DescribeWork(entries_));
    for (TensorEntry& entry : entries_) {
      if (timeline_ != nullptr) Report(entry, status);
      // Before the callback: after it, the framework may free what these refer to, and a backend
      // may keep its function, and with it this object, for longer.
      entry.context.reset();
      entry.ready.reset();
      entry.done.Finish(status);
    }
    return status;
  }

  // The activity of one tensor, or of all.
  void StartActivity(const TensorEntry& entry, std::string_view activity) {
    if (timeline_ != nullptr) timeline_->ActivityStart(entry.request.name, activity);
  }
  void EndActivity(const TensorEntry& entry) {
    if (timeline_ != nullptr) timeline_->ActivityEnd(entry.request.name);
  }
  void StartActivity(std::string_view activity) {
    if (timeline_ == nullptr) return;
    for (const TensorEntry& entry : entries_) StartActivity(entry, activity);
  }
  void EndActivity() {
    if (timeline_ == nullptr) return;
    for (const TensorEntry& entry : entries_) EndActivity(entry);
  }

 private:
  void Report(const TensorEntry& entry, const Status& status) {
    if (status.ok()) {
      timeline_->End(entry.request.name, entry.output.dtype, entry.output.shape);
    } else {
      timeline_->EndWithError(entry.request.name);
    }
  }

  std::vector<TensorEntry> entries_;
  Timeline* const timeline_;
  std::atomic<bool> finished_{false};
};

// A buffer that only grows. Thread rule: one thread.
class ScratchBuffer {
 public:
  bool Holds(std::size_t bytes) const { return buffer_ != nullptr && bytes <= capacity_; }

  Status Grow(std::size_t bytes) {
    if (bytes > std::numeric_limits<std::size_t>::max() / 2) return NoMemory(bytes);
    // By half at least, so that slowly growing batches do not allocate every time.
    const std::size_t wanted = std::max({bytes, capacity_ + capacity_ / 2, kScratchAlignment});
    const std::size_t rounded = (wanted + kScratchAlignment - 1) / kScratchAlignment;
    capacity_ = 0;
    buffer_.reset();  // first, so that there are never two of them
    buffer_.reset(std::aligned_alloc(kScratchAlignment, rounded * kScratchAlignment));
    if (buffer_ == nullptr) return NoMemory(bytes);
    capacity_ = rounded * kScratchAlignment;
    return Status::Ok();
  }

  void* data() const { return buffer_.get(); }

  void Drop() {
    buffer_.reset();
    capacity_ = 0;
  }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  static Status NoMemory(std::size_t bytes) {
    return Status::ResourceExhausted("no memory for a buffer of " + std::to_string(bytes) +
                                     " bytes");
  }

  std::unique_ptr<void, Free> buffer_;
  std::size_t capacity_ = 0;
};

// An output that nobody wants. Thread rule: one thread.
class UnwantedOutput final : public OpContext {
 public:
  UnwantedOutput(DataType dtype, void* data) : dtype_(dtype), data_(data) {}
  Status AllocateOutput(const TensorShape& shape, TensorView* output) override {
    *output = {dtype_, shape, data_};
    return Status::Ok();
  }

 private:
  const DataType dtype_;
  void* const data_;
};

// Thread rule: as RunContext.
class BatchContext final : public RunContext {
 public:
  BatchContext(Transport& transport, OperationWatch& watch, ScratchBuffer& scratch,
               std::shared_ptr<Work> work)
      : transport_(transport), watch_(watch), scratch_(scratch), work_(std::move(work)) {
    watch_.Restart();
  }

  Status Interrupted() override {
    HVD_RETURN_IF_ERROR(transport_.Poll());
    return watch_.Look([this] { return DescribeWork(work_->entries()); });
  }

  Status Scratch(std::size_t bytes, void** buffer) override {
    *buffer = nullptr;
    if (!scratch_.Holds(bytes)) {
      // Inside the backend's activity, not in place of it.
      if (!taken_) work_->StartActivity("INIT_FUSION_BUFFER");
      const Status grown = scratch_.Grow(bytes);
      if (!taken_) work_->EndActivity();
      HVD_RETURN_IF_ERROR(grown);
    }
    *buffer = scratch_.data();
    return Status::Ok();
  }

  void Activity(std::string_view name) override {
    // After TakeCompletion the timeline's rows belong to whoever finishes them.
    if (taken_) return;
    EndActivity();
    work_->StartActivity(name);
    active_ = true;
  }

  std::function<void(const Status&)> TakeCompletion() override {
    taken_ = true;
    return [work = work_](const Status& status) { (void)work->Finish(status); };
  }

  void EndActivity() {
    if (active_ && !taken_) work_->EndActivity();
    active_ = false;
  }
  bool taken() const { return taken_; }

 private:
  Transport& transport_;
  OperationWatch& watch_;
  ScratchBuffer& scratch_;
  const std::shared_ptr<Work> work_;
  bool active_ = false;
  bool taken_ = false;
};

// What each rank contributes to dimension 0 of the output of `rank`, or all of it in one number.
std::vector<std::int64_t> OutputRows(const Request& request, const TensorDefinition& definition,
                                     int rank, int ranks) {
  if (Info(request.kind).gathers_rows) return definition.first_dims;
  if (Info(request.kind).splits_rows) return RowsReceived(definition.splits, rank);
  return {RowsOfShare(request.shape.dim(0), rank, ranks)};
}

// The shape of the output of `rank`. Internal if the definition cannot be one of its entry's.
Status OutputShape(const Request& request, const TensorDefinition& definition, int rank, int ranks,
                   TensorShape* shape) {
  *shape = request.shape;
  if (!Info(request.kind).changes_rows) return Status::Ok();
  const auto expected = static_cast<std::size_t>(ranks);
  std::int64_t rows = 0;
  bool valid = request.shape.rank() >= 1 &&
               (!Info(request.kind).gathers_rows || definition.first_dims.size() == expected) &&
               (!Info(request.kind).splits_rows || definition.splits.size() == expected);
  if (valid) {
    for (std::int64_t dim : OutputRows(request, definition, rank, ranks)) {
      valid = valid && dim >= 0 && !__builtin_add_overflow(rows, dim, &rows);
    }
  }
  if (valid) {
    shape->set_dim(0, rows);
    valid = shape->CheckedElements().has_value();
  }
  if (valid) return Status::Ok();
  return Status::Internal("the ranks' numbers of rows do not add up to an output for shape " +
                          request.shape.ToString());
}

Status CheckAllocated(const TensorView& output, DataType dtype, const TensorShape& shape) {
  if (output.dtype == dtype && output.shape == shape &&
      (output.data != nullptr || shape.elements() == 0)) {
    return Status::Ok();
  }
  return Status::Internal(
      "the framework allocated " +
      (output.data == nullptr
           ? "no buffer"
           : std::string(Info(output.dtype).name) + " " + output.shape.ToString()) +
      " for an output of " + std::string(Info(dtype).name) + " " + shape.ToString());
}

}  // namespace

// Thread rule: as Executor.
class Executor::Impl {
 public:
  Impl(const BackendRegistry& backends, Transport& transport, const OperationWatch& watch,
       Timeline* timeline)
      : backends_(backends), transport_(transport), watch_(watch), timeline_(timeline) {}

  Status Execute(std::vector<TensorEntry> entries,
                 const std::vector<const TensorDefinition*>& definitions) {
    HVD_CHECK(!entries.empty() && entries.size() == definitions.size(),
              "a batch has tensors, each with its definition");
    const auto work = std::make_shared<Work>(std::move(entries), timeline_);
    Batch batch;
    const Status made = MakeBatch(*work, definitions, &batch);
    if (!made.ok()) return work->Finish(made);
    CollectiveBackend* backend = nullptr;
    const Status selected = backends_.Select(batch, &backend);
    if (!selected.ok()) {
      (void)work->Finish(selected);
      return Status::Ok();
    }
    Status status = Guarded("the framework's ready event", [&] { return WaitForData(*work); });
    if (status.ok()) status = AllocateOutputs(*work, &batch);
    if (!status.ok()) return work->Finish(status);
    return Run(*backend, &batch, work);
  }

  Status ExecuteAbsent(const TensorDefinition& definition) {
    const auto bytes = static_cast<std::size_t>(definition.bytes());
    if (!unwanted_.Holds(bytes)) HVD_RETURN_IF_ERROR(unwanted_.Grow(bytes));
    std::vector<TensorEntry> entries(1);
    TensorEntry& entry = entries.front();
    entry.request = definition.RequestOf(transport_.rank());
    entry.input = {entry.request.dtype, entry.request.shape, unwanted_.data()};
    entry.output = entry.input;
    entry.context = std::make_shared<UnwantedOutput>(entry.request.dtype, unwanted_.data());
    entry.done = Completion([](const Status&) {});
    return Execute(std::move(entries), {&definition});
  }
  void EndAbsence() { unwanted_.Drop(); }

 private:
  Status MakeBatch(Work& work, const std::vector<const TensorDefinition*>& definitions,
                   Batch* batch) const {
    const Request& common = definitions.front()->common;
    batch->kind = common.kind;
    batch->dtype = common.dtype;
    batch->reduce_op = common.reduce_op;
    batch->prescale = common.prescale;
    batch->postscale = common.postscale;
    batch->root_rank = common.root_rank;
    batch->device = work.entries().front().request.device;
    for (const std::uint32_t rank : definitions.front()->absent) {
      batch->absent.push_back(static_cast<int>(rank));
    }
    batch->tensors.reserve(definitions.size());
    for (std::size_t i = 0; i < definitions.size(); ++i) {
      TensorEntry& entry = work.entries()[i];
      if (Info(common.kind).changes_rows) {
        entry.output.dtype = entry.request.dtype;
        HVD_RETURN_IF_ERROR(OutputShape(entry.request, *definitions[i], transport_.rank(),
                                        transport_.size(), &entry.output.shape));
      }
      batch->tensors.push_back({entry.request.name, std::move(entry.input), entry.output,
                                definitions[i]->first_dims, definitions[i]->splits});
    }
    return Status::Ok();
  }

  // Until every input's bytes are there. A device that never finishes is left when the job fails.
  Status WaitForData(Work& work) const {
    std::vector<TensorEntry*> waiting;
    for (TensorEntry& entry : work.entries()) {
      if (!IsReady(entry)) waiting.push_back(&entry);
    }
    if (waiting.empty()) return Status::Ok();
    StartWaiting(work, waiting);
    Status status;
    for (auto nap = kFirstNap; !waiting.empty();
         nap = std::min<decltype(nap)>(2 * nap, kLongestNap)) {
      status = transport_.Poll();
      if (!status.ok()) break;
      std::this_thread::sleep_for(nap);
      waiting.erase(std::remove_if(waiting.begin(), waiting.end(),
                                   [&work](const TensorEntry* entry) {
                                     if (!IsReady(*entry)) return false;
                                     work.EndActivity(*entry);
                                     work.StartActivity(*entry, "WAIT_FOR_OTHER_TENSOR_DATA");
                                     return true;
                                   }),
                    waiting.end());
    }
    work.EndActivity();
    return status;
  }

  static bool IsReady(const TensorEntry& entry) {
    return entry.ready == nullptr || entry.ready->Ready();
  }

  // Marks those in `waiting`, which are in order, and the others of the batch.
  static void StartWaiting(Work& work, const std::vector<TensorEntry*>& waiting) {
    auto next = waiting.begin();
    for (TensorEntry& entry : work.entries()) {
      const bool waits = next != waiting.end() && *next == &entry;
      work.StartActivity(entry, waits ? "WAIT_FOR_DATA" : "WAIT_FOR_OTHER_TENSOR_DATA");
      if (waits) ++next;
    }
  }

  Status AllocateOutputs(Work& work, Batch* batch) const {
    if (!Info(batch->kind).changes_rows) return Status::Ok();
    Status status;
    work.StartActivity("ALLOCATE_OUTPUT");
    for (std::size_t i = 0; i < batch->tensors.size() && status.ok(); ++i) {
      TensorEntry& entry = work.entries()[i];
      const TensorShape shape = entry.output.shape;
      status = Guarded("the framework's allocation of the output", [&] {
        if (Info(batch->kind).splits_rows) {
          HVD_RETURN_IF_ERROR(entry.context->TakeReceivedRows(
              RowsReceived(batch->tensors[i].splits, transport_.rank())));
        }
        return entry.context->AllocateOutput(shape, &entry.output);
      });
      if (status.ok()) status = CheckAllocated(entry.output, batch->dtype, shape);
      batch->tensors[i].output = entry.output;
    }
    work.EndActivity();
    return status;
  }

  Status Run(CollectiveBackend& backend, Batch* batch, const std::shared_ptr<Work>& work) {
    BatchContext context(transport_, watch_, scratch_, work);
    const Status status = Guarded("backend '" + std::string(backend.name()) + "'", [&] {
      HVD_RETURN_IF_ERROR(backend.Run(*batch, context));
      if (Info(batch->kind).gathers_rows) DivideGathered(*batch);
      return Status::Ok();
    });
    context.EndActivity();
    if (status.ok() && context.taken()) return Status::Ok();
    return work->Finish(status);
  }

  // The average of sparse rows: their sum is all of them, and each is divided by the ranks that
  // were there, as dense ones are.
  void DivideGathered(const Batch& batch) const {
    if (batch.reduce_op != ReduceOp::kAverage) return;
    const Reduction division = batch.reduction(transport_.size());
    for (const BatchTensor& tensor : batch.tensors) {
      Reduce(division, {tensor.output.data},
             static_cast<std::size_t>(tensor.output.shape.elements()), tensor.output.data);
    }
  }

  const BackendRegistry& backends_;
  Transport& transport_;
  OperationWatch watch_;
  Timeline* const timeline_;
  ScratchBuffer scratch_;
  ScratchBuffer unwanted_;  // while this rank is absent
};

Executor::Executor(const BackendRegistry& backends, Transport& transport,
                   const OperationWatch& watch, Timeline* timeline)
    : impl_(std::make_unique<Impl>(backends, transport, watch, timeline)) {}

Executor::~Executor() = default;

Status Executor::Execute(std::vector<TensorEntry> entries,
                         const std::vector<const TensorDefinition*>& definitions) {
  return impl_->Execute(std::move(entries), definitions);
}

Status Executor::ExecuteAbsent(const TensorDefinition& definition) {
  return impl_->ExecuteAbsent(definition);
}

void Executor::EndAbsence() { impl_->EndAbsence(); }

}  // namespace horovod_tf
