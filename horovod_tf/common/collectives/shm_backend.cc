#include "horovod_tf/common/collectives/shm_backend.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "horovod_tf/common/base/check.h"
#include "horovod_tf/common/collectives/batch_row.h"
#include "horovod_tf/common/collectives/cpu_hints.h"
#include "horovod_tf/common/collectives/host_reduce.h"
#include "horovod_tf/common/collectives/shm_blocks.h"

namespace horovod_tf {
namespace {

// Ranks share the elements of a chunk by whole cache lines.
constexpr std::size_t kLineBytes = 64;
// An allreduce of up to so many bytes of all ranks together is reduced by everybody: the copies of
// the arithmetic cost less than a second meeting.
constexpr std::size_t kSmallBytesOfAll = 128 << 10;
// A row is cut into so many chunks at least, so that ranks work at the same time, unless they would
// become shorter than a chunk is worth.
constexpr std::size_t kFewestChunks = 4;
constexpr std::size_t kShortestChunk = 32 << 10;
// What is reduced and then copied while it is in the first-level cache.
constexpr std::size_t kBlockBytes = 16 << 10;
// Outputs of all ranks together that are larger are written past the caches, which would not keep
// them anyhow: see docs/shared_memory.md for where that begins to win.
constexpr std::size_t kMostCachedBytesOfAll = 40 << 20;

std::size_t RoundUp(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

void CopyThroughCaches(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

BatchRow::Copy CopyFor(std::size_t bytes_of_all) {
  return bytes_of_all > kMostCachedBytesOfAll ? CopyPastCaches : CopyThroughCaches;
}

// One row of bytes, cut into chunks.
class Chunks {
 public:
  Chunks(std::size_t bytes, std::size_t longest)
      : bytes_(bytes),
        length_(std::clamp(RoundUp(bytes / kFewestChunks, kLineBytes),
                           std::min(kShortestChunk, longest), longest)),
        count_((bytes + length_ - 1) / length_) {}

  std::size_t count() const { return count_; }
  // Empty beyond the last one.
  ByteRange range(std::size_t index) const {
    return {std::min(bytes_, index * length_), std::min(bytes_, (index + 1) * length_)};
  }

 private:
  std::size_t bytes_;
  std::size_t length_;
  std::size_t count_;
};

// What `rank` reduces of a chunk.
ByteRange ShareOf(std::size_t bytes, int rank, int size) {
  const std::size_t lines = (bytes + kLineBytes - 1) / kLineBytes;
  const auto n = static_cast<std::size_t>(size);
  const auto r = static_cast<std::size_t>(rank);
  return {std::min(bytes, lines * r / n * kLineBytes),
          std::min(bytes, lines * (r + 1) / n * kLineBytes)};
}

// Bytes of one rank, and where they go in everybody's output.
struct Contribution {
  Chunks chunks;
  std::size_t offset;
};

// One allreduce whose chunks are reduced in shares, a share a rank. What this rank reduces itself
// never goes through its slot: it is read from the input and written to the output.
//
// Thread rule: as CollectiveBackend.
class SharedReduction {
 public:
  SharedReduction(const BatchRow& row, const Reduction& reduction, const std::vector<int>& absent,
                  ShmMeeting& meeting, std::uint64_t first_chunk)
      : row_(row),
        reduction_(reduction),
        absent_(absent),
        meeting_(meeting),
        first_chunk_(first_chunk),
        chunks_(row.bytes(), meeting.segment().slot_bytes()),
        copy_(CopyFor(row.bytes() * static_cast<std::size_t>(meeting.size()))) {}

  std::size_t count() const { return chunks_.count(); }

  // The peers' shares of the input.
  Status Publish(std::size_t i, RunContext& context) {
    const ByteRange range = chunks_.range(i);
    const ByteRange share = OwnShare(i);
    unsigned char* const slot = meeting_.segment().slot(meeting_.rank(), first_chunk_ + i);
    HVD_RETURN_IF_ERROR(meeting_.AwaitSlot(first_chunk_ + i, context));
    row_.CopyInputs({range.begin, share.begin}, slot);
    row_.CopyInputs({share.end, range.end}, slot + (share.end - range.begin));
    meeting_.Publish(first_chunk_ + i);
    return Status::Ok();
  }

  Status ReduceShare(std::size_t i, RunContext& context) {
    const ByteRange share = OwnShare(i);
    const std::size_t offset = share.begin - chunks_.range(i).begin;
    HVD_RETURN_IF_ERROR(meeting_.AwaitPublished(first_chunk_ + i, context));
    row_.ForEachPiece(share, [&](const BatchRow::Piece& piece) {
      for (std::size_t done = 0; done < piece.bytes; done += kBlockBytes) {
        const std::size_t bytes = std::min(kBlockBytes, piece.bytes - done);
        ReduceBlock(first_chunk_ + i, offset + piece.at + done, bytes, piece.input + done,
                    piece.output + done);
      }
    });
    meeting_.Release(first_chunk_ + i);
    return Status::Ok();
  }

  // The peers' shares of the output.
  Status TakeResults(std::size_t i, RunContext& context) {
    const ByteRange range = chunks_.range(i);
    const ByteRange share = OwnShare(i);
    const unsigned char* const result = meeting_.segment().result(first_chunk_ + i);
    HVD_RETURN_IF_ERROR(meeting_.AwaitReleased(first_chunk_ + i, context));
    row_.CopyToOutputs({range.begin, share.begin}, result, copy_);
    row_.CopyToOutputs({share.end, range.end}, result + (share.end - range.begin), copy_);
    return Status::Ok();
  }

 private:
  ByteRange OwnShare(std::size_t i) const {
    const ByteRange range = chunks_.range(i);
    const ByteRange share = ShareOf(range.size(), meeting_.rank(), meeting_.size());
    return {range.begin + share.begin, range.begin + share.end};
  }

  // `at` is from the beginning of the slots.
  void ReduceBlock(std::uint64_t chunk, std::size_t at, std::size_t bytes,
                   const unsigned char* input, unsigned char* output) {
    inputs_.resize(static_cast<std::size_t>(meeting_.size()));
    for (int rank = 0; rank < meeting_.size(); ++rank) {
      inputs_[static_cast<std::size_t>(rank)] =
          rank == meeting_.rank() ? input : meeting_.segment().slot(rank, chunk) + at;
    }
    DropAbsent(absent_, &inputs_);
    unsigned char* const result = meeting_.segment().result(chunk) + at;
    Reduce(reduction_, inputs_, bytes / Info(reduction_.dtype).size, result);
    if (output == input) {
      CopyThroughCaches(output, result, bytes);
    } else {
      copy_(output, result, bytes);
    }
  }

  const BatchRow& row_;
  const Reduction& reduction_;
  const std::vector<int>& absent_;
  ShmMeeting& meeting_;
  const std::uint64_t first_chunk_;
  const Chunks chunks_;
  const BatchRow::Copy copy_;
  std::vector<const void*> inputs_;  // by rank, without the absent ones
};

// Thread rule: as CollectiveBackend.
class ShmBackend final : public CollectiveBackend {
 public:
  explicit ShmBackend(ShmMembership membership) : meeting_(std::move(membership)) {}

  std::string_view name() const override { return "shm"; }
  // Above MPI's.
  int score() const override { return 20; }
  Status Supports(const Batch& batch) const override;
  Status Run(Batch& batch, RunContext& context) override;

 private:
  Status Allreduce(const Batch& batch, RunContext& context);
  Status ReduceByAll(const BatchRow& row, const Reduction& reduction, RunContext& context);
  Status ReduceInShares(const BatchRow& row, const Reduction& reduction, RunContext& context);
  Status Allgather(const BatchTensor& tensor, RunContext& context);
  Status Broadcast(const BatchTensor& tensor, int root, RunContext& context);
  Status Distribute(const unsigned char* input, const std::vector<Contribution>& contributions,
                    unsigned char* output, RunContext& context);
  Status PublishPart(const unsigned char* input, ByteRange range, std::uint64_t chunk,
                     RunContext& context);
  // The slots of all ranks that are not absent for a chunk, from byte `at` on.
  const std::vector<const void*>& SlotsAt(std::uint64_t chunk, std::size_t at);

  unsigned char* own_slot(std::uint64_t chunk) const {
    return meeting_.segment().slot(meeting_.rank(), chunk);
  }
  std::size_t slot_bytes() const { return meeting_.segment().slot_bytes(); }

  ShmMeeting meeting_;
  std::uint64_t next_chunk_ = 0;  // the same on all ranks between operations
  std::vector<int> absent_;       // from the batch that runs
  std::vector<const void*> inputs_;
};

Status ShmBackend::Supports(const Batch& batch) const {
  if (batch.device != kCpuDevice) return Status::Unimplemented("it moves host memory only");
  const bool in_blocks =
      batch.kind == CollectiveKind::kAlltoall || batch.kind == CollectiveKind::kReducescatter;
  if (in_blocks) HVD_RETURN_IF_ERROR(SlotsHavePlaces(meeting_));
  return batch.CheckArithmetic();
}

Status ShmBackend::Run(Batch& batch, RunContext& context) {
  HVD_RETURN_IF_ERROR(meeting_.failure());
  absent_ = batch.absent;
  switch (batch.kind) {
    case CollectiveKind::kAllreduce:
      context.Activity("SHM_ALLREDUCE");
      return Allreduce(batch, context);
    case CollectiveKind::kAllgather:
      context.Activity("SHM_ALLGATHER");
      return Allgather(batch.tensors.front(), context);
    case CollectiveKind::kBroadcast:
      context.Activity("SHM_BCAST");
      return Broadcast(batch.tensors.front(), batch.root_rank, context);
    case CollectiveKind::kAlltoall:
      context.Activity("SHM_ALLTOALL");
      return ShmAlltoall(batch.tensors.front(), meeting_, &next_chunk_, context);
    case CollectiveKind::kReducescatter:
      context.Activity("SHM_REDUCESCATTER");
      return ShmReducescatter(batch.tensors.front(), batch.reduction(meeting_.size()), absent_,
                              meeting_, &next_chunk_, context);
  }
  return Status::Internal("a kind of collective that the shared-memory backend does not know");
}

Status ShmBackend::Allreduce(const Batch& batch, RunContext& context) {
  const BatchRow row(batch);
  if (row.bytes() == 0) return Status::Ok();
  const Reduction reduction = batch.reduction(meeting_.size());
  const bool small = row.bytes() <= slot_bytes() &&
                     row.bytes() * static_cast<std::size_t>(meeting_.size()) <= kSmallBytesOfAll;
  return small ? ReduceByAll(row, reduction, context) : ReduceInShares(row, reduction, context);
}

const std::vector<const void*>& ShmBackend::SlotsAt(std::uint64_t chunk, std::size_t at) {
  inputs_.resize(static_cast<std::size_t>(meeting_.size()));
  for (std::size_t rank = 0; rank < inputs_.size(); ++rank) {
    inputs_[rank] = meeting_.segment().slot(static_cast<int>(rank), chunk) + at;
  }
  DropAbsent(absent_, &inputs_);
  return inputs_;
}

// One meeting: all publish all they have, and everybody reduces all of it.
Status ShmBackend::ReduceByAll(const BatchRow& row, const Reduction& reduction,
                               RunContext& context) {
  const std::uint64_t chunk = next_chunk_++;
  const ByteRange all{0, row.bytes()};
  HVD_RETURN_IF_ERROR(meeting_.AwaitSlot(chunk, context));
  row.CopyInputs(all, own_slot(chunk));
  meeting_.Publish(chunk);
  HVD_RETURN_IF_ERROR(meeting_.AwaitPublished(chunk, context));
  row.ForEachPiece(all, [&](const BatchRow::Piece& piece) {
    Reduce(reduction, SlotsAt(chunk, piece.at), piece.bytes / Info(reduction.dtype).size,
           piece.output);
  });
  meeting_.Release(chunk);
  return Status::Ok();
}

// Three stages, each for another chunk at a time, so that what a rank waits for was begun by its
// peers one stage ago. A result's slot needs no meeting of its own: whoever publishes a chunk has
// taken the results of the one that is three before it.
Status ShmBackend::ReduceInShares(const BatchRow& row, const Reduction& reduction,
                                  RunContext& context) {
  SharedReduction work(row, reduction, absent_, meeting_, next_chunk_);
  next_chunk_ += work.count();
  for (std::size_t i = 0; i < work.count() + 2; ++i) {
    if (i < work.count()) HVD_RETURN_IF_ERROR(work.Publish(i, context));
    if (i >= 1 && i - 1 < work.count()) HVD_RETURN_IF_ERROR(work.ReduceShare(i - 1, context));
    if (i >= 2) HVD_RETURN_IF_ERROR(work.TakeResults(i - 2, context));
  }
  return Status::Ok();
}

Status ShmBackend::Allgather(const BatchTensor& tensor, RunContext& context) {
  const std::size_t row =
      static_cast<std::size_t>(tensor.input.shape.row_elements()) * Info(tensor.input.dtype).size;
  std::vector<Contribution> contributions;
  std::size_t offset = 0;
  for (int rank = 0; rank < meeting_.size(); ++rank) {
    const std::size_t bytes =
        row * static_cast<std::size_t>(tensor.first_dims[static_cast<std::size_t>(rank)]);
    contributions.push_back({Chunks(bytes, slot_bytes()), offset});
    offset += bytes;
  }
  HVD_CHECK(offset == tensor.output.bytes(), "an output of another size");
  return Distribute(static_cast<const unsigned char*>(tensor.input.data), contributions,
                    static_cast<unsigned char*>(tensor.output.data), context);
}

Status ShmBackend::Broadcast(const BatchTensor& tensor, int root, RunContext& context) {
  const std::size_t bytes = tensor.input.bytes();
  HVD_CHECK(bytes == tensor.output.bytes(), "an output of another size");
  std::vector<Contribution> contributions(static_cast<std::size_t>(meeting_.size()),
                                          {Chunks(0, slot_bytes()), 0});
  contributions[static_cast<std::size_t>(root)].chunks = Chunks(bytes, slot_bytes());
  return Distribute(static_cast<const unsigned char*>(tensor.input.data), contributions,
                    static_cast<unsigned char*>(tensor.output.data), context);
}

Status ShmBackend::PublishPart(const unsigned char* input, ByteRange range, std::uint64_t chunk,
                               RunContext& context) {
  HVD_RETURN_IF_ERROR(meeting_.AwaitSlot(chunk, context));
  if (range.size() > 0) std::memcpy(own_slot(chunk), input + range.begin, range.size());
  meeting_.Publish(chunk);
  return Status::Ok();
}

// Everybody's bytes to everybody: a rank publishes its next chunk before it takes the others'.
Status ShmBackend::Distribute(const unsigned char* input,
                              const std::vector<Contribution>& contributions, unsigned char* output,
                              RunContext& context) {
  std::size_t count = 0;
  for (const Contribution& it : contributions) count = std::max(count, it.chunks.count());
  const Contribution& own = contributions[static_cast<std::size_t>(meeting_.rank())];
  const std::uint64_t first = next_chunk_;
  next_chunk_ += count;
  for (std::size_t i = 0; i < count + 1; ++i) {
    if (i < count) {
      HVD_RETURN_IF_ERROR(PublishPart(input, own.chunks.range(i), first + i, context));
    }
    if (i == 0) continue;
    const std::uint64_t chunk = first + i - 1;
    HVD_RETURN_IF_ERROR(meeting_.AwaitPublished(chunk, context));
    for (int rank = 0; rank < meeting_.size(); ++rank) {
      const Contribution& it = contributions[static_cast<std::size_t>(rank)];
      const ByteRange range = it.chunks.range(i - 1);
      const unsigned char* const from =
          rank == meeting_.rank() ? input + range.begin : meeting_.segment().slot(rank, chunk);
      unsigned char* const to = output + it.offset + range.begin;
      if (range.size() > 0 && to != from) std::memcpy(to, from, range.size());
    }
    meeting_.Release(chunk);
  }
  return Status::Ok();
}

}  // namespace

std::unique_ptr<CollectiveBackend> MakeShmBackend(ShmMembership membership) {
  HVD_CHECK(membership.segment != nullptr, "a membership has a segment");
  return std::make_unique<ShmBackend>(std::move(membership));
}

}  // namespace horovod_tf
