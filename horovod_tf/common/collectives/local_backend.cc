#include "horovod_tf/common/collectives/local_backend.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "horovod_tf/common/base/check.h"
#include "horovod_tf/common/base/mutex.h"
#include "horovod_tf/common/collectives/host_reduce.h"

namespace horovod_tf {
namespace {

// How often a waiting rank asks whether the job has failed meanwhile.
constexpr std::chrono::milliseconds kPatience{50};

// "allreduce Sum of 2 float32 tensors on CPU: a [3], b [2, 2]".
std::string Describe(const Batch& batch) {
  constexpr std::size_t kMostTensors = 3;
  const CollectiveKindInfo& kind = Info(batch.kind);
  std::string text(kind.name);
  if (kind.reduces) text += " " + std::string(Info(batch.reduce_op).name);
  if (kind.has_root) text += " from rank " + std::to_string(batch.root_rank);
  text += " of " + std::to_string(batch.tensors.size()) + " " +
          std::string(Info(batch.dtype).name) +
          (batch.tensors.size() == 1 ? " tensor" : " tensors");
  for (std::size_t i = 0; i < std::min(kMostTensors, batch.tensors.size()); ++i) {
    const BatchTensor& tensor = batch.tensors[i];
    text += (i == 0 ? ": " : ", ") + tensor.name + " " + tensor.input.shape.ToString();
  }
  if (batch.tensors.size() > kMostTensors) text += ", ...";
  return text;
}

bool SameTensor(const CollectiveKindInfo& kind, const BatchTensor& a, const BatchTensor& b) {
  if (a.name != b.name || a.first_dims != b.first_dims || a.splits != b.splits) return false;
  if (!kind.rows_differ()) return a.input.shape == b.input.shape;
  // Rows differ between ranks; first_dims or splits, the same everywhere, say how many there are.
  TensorShape a_shape = a.input.shape;
  TensorShape b_shape = b.input.shape;
  if (a_shape.rank() == 0 || b_shape.rank() == 0) return false;
  a_shape.set_dim(0, 0);
  b_shape.set_dim(0, 0);
  return a_shape == b_shape;
}

bool SameBatch(const Batch& a, const Batch& b) {
  const CollectiveKindInfo& kind = Info(a.kind);
  return a.kind == b.kind && a.dtype == b.dtype && a.reduce_op == b.reduce_op &&
         a.prescale == b.prescale && a.postscale == b.postscale && a.root_rank == b.root_rank &&
         a.absent == b.absent &&
         std::equal(a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(),
                    [&kind](const BatchTensor& x, const BatchTensor& y) {
                      return SameTensor(kind, x, y);
                    });
}

}  // namespace

// Where the ranks of one process meet, twice per operation: every rank brings its batch and leaves
// with everybody's (Begin), and no rank goes on before all have finished with everybody's buffers
// (End). The first failure stays: after it no operation begins any more.
//
// Thread rule: safe for use from any thread, by one thread per rank.
class LocalMeeting {
 public:
  explicit LocalMeeting(int size) : size_(size), posted_(static_cast<std::size_t>(size)) {}

  int size() const { return size_; }

  // Waits until all ranks have begun the same operation; `batches` gets theirs, by rank. After an
  // error no rank touches any buffer; after OK, End must follow.
  Status Begin(int rank, const Batch& batch, RunContext& context,
               std::vector<const Batch*>* batches) HVD_EXCLUDES(mutex_);
  // Waits until all ranks have got here. The same result on all.
  Status End(RunContext& context) HVD_EXCLUDES(mutex_);

 private:
  // Counted from 0 for ever: in even phases ranks gather, in odd ones they work.
  static bool Gathering(std::uint64_t phase) { return phase % 2 == 0; }

  // Waits for the end of `phase`. While ranks work, a failure does not end the wait: they read this
  // rank's buffers, and they do not wait for anything, so it is short.
  Status AwaitEndOf(std::uint64_t phase, RunContext& context) HVD_EXCLUDES(mutex_);
  bool Settled(std::uint64_t phase) const HVD_REQUIRES(mutex_);
  void EnterNextPhase() HVD_REQUIRES(mutex_);
  void Fail(const Status& status) HVD_REQUIRES(mutex_);

  const int size_;
  Mutex mutex_;
  CondVar changed_;
  std::uint64_t phase_ HVD_GUARDED_BY(mutex_) = 0;
  int arrived_ HVD_GUARDED_BY(mutex_) = 0;  // ranks that have done their part in this phase
  std::vector<const Batch*> posted_ HVD_GUARDED_BY(mutex_);  // by rank; null: not there yet
  Status failure_ HVD_GUARDED_BY(mutex_);                    // the first one
  Status outcome_ HVD_GUARDED_BY(mutex_);                    // of the last finished operation
};

void LocalMeeting::Fail(const Status& status) {
  if (!failure_.ok()) return;
  failure_ = status;
  changed_.NotifyAll();
}

bool LocalMeeting::Settled(std::uint64_t phase) const {
  return phase_ != phase || (Gathering(phase) && !failure_.ok());
}

void LocalMeeting::EnterNextPhase() {
  ++phase_;
  arrived_ = 0;
  if (Gathering(phase_)) {
    std::fill(posted_.begin(), posted_.end(), nullptr);
    outcome_ = failure_;
  }
  changed_.NotifyAll();
}

Status LocalMeeting::AwaitEndOf(std::uint64_t phase, RunContext& context) {
  while (true) {
    {
      MutexLock lock(mutex_);
      if (Settled(phase)) return phase_ != phase ? Status::Ok() : failure_;
    }
    const Status interrupted = context.Interrupted();  // not with the lock held
    MutexLock lock(mutex_);
    if (!interrupted.ok()) Fail(interrupted);
    if (!Settled(phase)) changed_.WaitUntil(mutex_, Clock::Real().Now() + kPatience);
  }
}

Status LocalMeeting::Begin(int rank, const Batch& batch, RunContext& context,
                           std::vector<const Batch*>* batches) {
  std::uint64_t phase = 0;
  {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    HVD_CHECK(posted_[static_cast<std::size_t>(rank)] == nullptr, "two backends for one rank");
    for (std::size_t peer = 0; peer < posted_.size(); ++peer) {
      if (posted_[peer] == nullptr || SameBatch(*posted_[peer], batch)) continue;
      Fail(Status::Internal("ranks are out of step: rank " + std::to_string(peer) + " runs " +
                            Describe(*posted_[peer]) + "; rank " + std::to_string(rank) + " runs " +
                            Describe(batch)));
      return failure_;
    }
    posted_[static_cast<std::size_t>(rank)] = &batch;
    phase = phase_;
    if (++arrived_ == size_) EnterNextPhase();
  }
  HVD_RETURN_IF_ERROR(AwaitEndOf(phase, context));
  MutexLock lock(mutex_);
  *batches = posted_;
  return Status::Ok();
}

Status LocalMeeting::End(RunContext& context) {
  std::uint64_t phase = 0;
  {
    MutexLock lock(mutex_);
    phase = phase_;
    if (++arrived_ == size_) EnterNextPhase();
  }
  HVD_RETURN_IF_ERROR(AwaitEndOf(phase, context));
  // The next operation cannot finish without this rank, so this is still the outcome of this one.
  MutexLock lock(mutex_);
  return outcome_;
}

std::shared_ptr<LocalMeeting> MakeLocalMeeting(int size) {
  HVD_CHECK(size >= 1, "a meeting of nobody");
  return std::make_shared<LocalMeeting>(size);
}

namespace {

void CopyBytes(void* to, const void* from, std::size_t bytes) {
  // In place there is nothing to do, and without bytes the pointers may be null.
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

void* At(const TensorView& view, std::size_t byte) {
  return static_cast<unsigned char*>(view.data) + byte;
}

// Thread rule: as CollectiveBackend.
class LocalBackend final : public CollectiveBackend {
 public:
  LocalBackend(int rank, std::shared_ptr<LocalMeeting> meeting)
      : rank_(rank), meeting_(std::move(meeting)) {}

  std::string_view name() const override { return "local"; }
  // Above all others: where it exists, all ranks are in this process.
  int score() const override { return 100; }
  Status Supports(const Batch& batch) const override;
  Status Run(Batch& batch, RunContext& context) override;

 private:
  using Batches = std::vector<const Batch*>;  // by rank

  std::size_t rank() const { return static_cast<std::size_t>(rank_); }
  void RunPart(const Batches& batches) const;
  // The elements that this rank reduces for all: its share of the batch's, taken as one row.
  void ReduceShare(const Batches& batches) const;
  // Elements [begin, end) of one tensor, to all ranks' outputs.
  static void ReduceRange(const Reduction& reduction, const Batches& batches, std::size_t tensor,
                          std::size_t begin, std::size_t end);
  void Gather(const Batches& batches) const;
  void Broadcast(const Batches& batches) const;
  // What every rank has for this one.
  void TakeRows(const Batches& batches) const;
  void ReduceRows(const Batches& batches) const;

  const int rank_;
  const std::shared_ptr<LocalMeeting> meeting_;
};

Status LocalBackend::Supports(const Batch& batch) const {
  if (batch.device != kCpuDevice) {
    return Status::Unimplemented("moves tensors on CPU only");
  }
  return batch.CheckArithmetic();
}

Status LocalBackend::Run(Batch& batch, RunContext& context) {
  switch (batch.kind) {
    case CollectiveKind::kAllreduce:
      context.Activity("LOCAL_ALLREDUCE");
      break;
    case CollectiveKind::kAllgather:
      context.Activity("LOCAL_ALLGATHER");
      break;
    case CollectiveKind::kBroadcast:
      context.Activity("LOCAL_BCAST");
      break;
    case CollectiveKind::kAlltoall:
      context.Activity("LOCAL_ALLTOALL");
      break;
    case CollectiveKind::kReducescatter:
      context.Activity("LOCAL_REDUCESCATTER");
      break;
  }
  if (meeting_->size() == 1) {
    RunPart({&batch});
    return Status::Ok();
  }
  Batches batches;
  HVD_RETURN_IF_ERROR(meeting_->Begin(rank_, batch, context, &batches));
  RunPart(batches);
  return meeting_->End(context);
}

void LocalBackend::RunPart(const Batches& batches) const {
  switch (batches[rank()]->kind) {
    case CollectiveKind::kAllreduce:
      return ReduceShare(batches);
    case CollectiveKind::kAllgather:
      return Gather(batches);
    case CollectiveKind::kBroadcast:
      return Broadcast(batches);
    case CollectiveKind::kAlltoall:
      return TakeRows(batches);
    case CollectiveKind::kReducescatter:
      return ReduceRows(batches);
  }
}

// Every element is reduced once, by one rank, which then hands it to all. So all ranks have the
// same bits, and outputs may be the inputs: nobody else reads the elements that it overwrites.
void LocalBackend::ReduceShare(const Batches& batches) const {
  const Batch& mine = *batches[rank()];
  const Reduction reduction = mine.reduction(meeting_->size());
  const std::size_t ranks = batches.size();
  const std::size_t total = mine.input_bytes() / Info(mine.dtype).size;
  // Quotient and remainder apart: total * ranks might overflow.
  const std::size_t begin = total / ranks * rank() + total % ranks * rank() / ranks;
  const std::size_t end = total / ranks * (rank() + 1) + total % ranks * (rank() + 1) / ranks;
  std::size_t first = 0;  // number of the tensor's first element
  for (std::size_t tensor = 0; tensor < mine.tensors.size(); ++tensor) {
    const TensorView& input = mine.tensors[tensor].input;
    const auto elements = static_cast<std::size_t>(input.shape.elements());
    HVD_CHECK(mine.tensors[tensor].output.bytes() == input.bytes(), "an output of another size");
    const std::size_t from = std::max(begin, first);
    const std::size_t to = std::min(end, first + elements);
    if (from < to) ReduceRange(reduction, batches, tensor, from - first, to - first);
    first += elements;
  }
}

void LocalBackend::ReduceRange(const Reduction& reduction, const Batches& batches,
                               std::size_t tensor, std::size_t begin, std::size_t end) {
  const std::size_t size = Info(reduction.dtype).size;
  std::vector<const void*> inputs;
  inputs.reserve(batches.size());
  for (const Batch* batch : batches) {
    inputs.push_back(At(batch->tensors[tensor].input, begin * size));
  }
  DropAbsent(batches[0]->absent, &inputs);
  void* const first_output = At(batches[0]->tensors[tensor].output, begin * size);
  Reduce(reduction, inputs, end - begin, first_output);
  for (std::size_t rank = 1; rank < batches.size(); ++rank) {
    CopyBytes(At(batches[rank]->tensors[tensor].output, begin * size), first_output,
              (end - begin) * size);
  }
}

void LocalBackend::Gather(const Batches& batches) const {
  const Batch& mine = *batches[rank()];
  for (std::size_t tensor = 0; tensor < mine.tensors.size(); ++tensor) {
    const TensorView& output = mine.tensors[tensor].output;
    std::size_t offset = 0;
    for (const Batch* batch : batches) {
      const TensorView& input = batch->tensors[tensor].input;
      HVD_CHECK(offset + input.bytes() <= output.bytes(), "an output without room for all rows");
      if (input.bytes() > 0) CopyBytes(At(output, offset), input.data, input.bytes());
      offset += input.bytes();
    }
    HVD_CHECK(offset == output.bytes(), "an output with room for rows that nobody has");
  }
}

void LocalBackend::Broadcast(const Batches& batches) const {
  const Batch& mine = *batches[rank()];
  HVD_CHECK(0 <= mine.root_rank && mine.root_rank < meeting_->size(), "a root out of range");
  const Batch& root = *batches[static_cast<std::size_t>(mine.root_rank)];
  for (std::size_t tensor = 0; tensor < mine.tensors.size(); ++tensor) {
    const TensorView& input = root.tensors[tensor].input;
    const TensorView& output = mine.tensors[tensor].output;
    HVD_CHECK(output.bytes() == input.bytes(), "an output of another size");
    CopyBytes(output.data, input.data, input.bytes());
  }
}

void LocalBackend::TakeRows(const Batches& batches) const {
  const BatchTensor& mine = batches[rank()]->tensors.front();
  const std::size_t row = mine.row_bytes();
  std::size_t to = 0;
  for (std::size_t peer = 0; peer < batches.size(); ++peer) {
    const std::vector<std::int64_t>& sent = mine.splits[peer];
    const auto own = sent.begin() + rank_;
    const auto rows_before =
        static_cast<std::size_t>(std::accumulate(sent.begin(), own, std::int64_t{0}));
    const std::size_t bytes = static_cast<std::size_t>(*own) * row;
    HVD_CHECK(to + bytes <= mine.output.bytes(), "an output without room for all rows");
    if (bytes > 0) {
      CopyBytes(At(mine.output, to), At(batches[peer]->tensors.front().input, rows_before * row),
                bytes);
    }
    to += bytes;
  }
  HVD_CHECK(to == mine.output.bytes(), "an output with room for rows that nobody has");
}

void LocalBackend::ReduceRows(const Batches& batches) const {
  const BatchTensor& mine = batches[rank()]->tensors.front();
  const std::int64_t rows = mine.input.shape.dim(0);
  const auto first = static_cast<std::size_t>(BeginOfShare(rows, rank_, meeting_->size()));
  const auto count = static_cast<std::size_t>(RowsOfShare(rows, rank_, meeting_->size()));
  HVD_CHECK(mine.output.bytes() == count * mine.row_bytes(), "an output of another size");
  if (mine.output.bytes() == 0) return;
  std::vector<const void*> inputs;
  for (const Batch* batch : batches) {
    inputs.push_back(At(batch->tensors.front().input, first * mine.row_bytes()));
  }
  DropAbsent(batches[rank()]->absent, &inputs);
  Reduce(batches[rank()]->reduction(meeting_->size()), inputs,
         static_cast<std::size_t>(mine.output.shape.elements()), mine.output.data);
}

}  // namespace

std::unique_ptr<CollectiveBackend> MakeLocalBackend(int rank,
                                                    std::shared_ptr<LocalMeeting> meeting) {
  HVD_CHECK(meeting != nullptr && 0 <= rank && rank < meeting->size(), "a rank out of range");
  return std::make_unique<LocalBackend>(rank, std::move(meeting));
}

}  // namespace horovod_tf
