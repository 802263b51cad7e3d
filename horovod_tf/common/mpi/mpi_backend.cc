#include "horovod_tf/common/mpi/mpi_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace horovod_tf {
namespace {

// A tensor up to this size goes whole to every rank, which all reduce it: one round of messages
// instead of two.
constexpr std::size_t kSmallBytes = 8 << 10;
// How much of a rank's part is under way at once: bounds the memory for peers' parts, which is one
// segment a rank, and keeps it in the cache.
constexpr std::size_t kLongestSegment = 1 << 20;
constexpr std::size_t kShortestSegment = 64 << 10;
constexpr std::size_t kAllSegments = 16 << 20;

char* At(void* buffer, std::size_t offset) { return static_cast<char*>(buffer) + offset; }
const char* At(const void* buffer, std::size_t offset) {
  return static_cast<const char*>(buffer) + offset;
}

// Elements [begin, end) that `rank` reduces of `elements`.
struct Part {
  std::size_t begin;
  std::size_t end;
};
Part PartOf(std::size_t elements, int rank, int size) {
  const auto n = static_cast<std::size_t>(size);
  const auto r = static_cast<std::size_t>(rank);
  return {elements / n * r + std::min(r, elements % n),
          elements / n * (r + 1) + std::min(r + 1, elements % n)};
}

std::size_t SegmentBytes(int size) {
  return std::clamp(kAllSegments / static_cast<std::size_t>(size), kShortestSegment,
                    kLongestSegment);
}

// Thread rule: as CollectiveBackend.
class MpiBackend final : public CollectiveBackend {
 public:
  MpiBackend(std::shared_ptr<MpiGroup> group, std::size_t longest)
      : world_(std::move(group)), longest_(longest) {}

  std::string_view name() const override { return "mpi"; }
  int score() const override { return 10; }
  Status Supports(const Batch& batch) const override {
    if (batch.device != kCpuDevice) return Status::Unimplemented("it moves host memory only");
    return batch.CheckArithmetic();
  }
  Status Run(Batch& batch, RunContext& context) override;

 private:
  Status Allreduce(Batch& batch, RunContext& context);
  Status ReduceBuffer(const Reduction& reduction, const void* input, std::size_t elements,
                      void* output, RunContext& context);
  Status ReduceSmall(const Reduction& reduction, const void* input, std::size_t elements,
                     void* output, RunContext& context);
  Status ReduceParts(const Reduction& reduction, const void* input, std::size_t elements,
                     void* output, RunContext& context);
  Status Allgather(const BatchTensor& tensor, RunContext& context);
  Status Broadcast(const BatchTensor& tensor, int root, RunContext& context);
  Status Alltoall(const BatchTensor& tensor, RunContext& context);
  Status Reducescatter(const Reduction& reduction, const BatchTensor& tensor, RunContext& context);
  char* Received(std::size_t bytes) {
    if (received_.size() < bytes) received_.resize(bytes);
    return received_.data();
  }
  Status Tree(void* buffer, std::size_t bytes, int root, RunContext& context);
  Status ScatterAndGather(void* buffer, std::size_t bytes, int root, RunContext& context);

  const std::shared_ptr<MpiGroup> world_;  // the ranks that take part
  const std::size_t longest_;
  std::vector<int> absent_;     // from the batch that runs
  std::vector<char> received_;  // peers' inputs: a segment of each at most; only grows
};

Status MpiBackend::Run(Batch& batch, RunContext& context) {
  absent_ = batch.absent;
  switch (batch.kind) {
    case CollectiveKind::kAllreduce:
      context.Activity("MPI_ALLREDUCE");
      return Allreduce(batch, context);
    case CollectiveKind::kAllgather:
      context.Activity("MPI_ALLGATHER");
      return Allgather(batch.tensors.front(), context);
    case CollectiveKind::kBroadcast:
      context.Activity("MPI_BCAST");
      return Broadcast(batch.tensors.front(), batch.root_rank, context);
    case CollectiveKind::kAlltoall:
      context.Activity("MPI_ALLTOALL");
      return Alltoall(batch.tensors.front(), context);
    case CollectiveKind::kReducescatter:
      context.Activity("MPI_REDUCESCATTER");
      return Reducescatter(batch.reduction(world_->size()), batch.tensors.front(), context);
  }
  return Status::Internal("a kind of collective that the MPI backend does not know");
}

Status MpiBackend::Allreduce(Batch& batch, RunContext& context) {
  const Reduction reduction = batch.reduction(world_->size());
  if (batch.tensors.size() == 1) {
    const BatchTensor& tensor = batch.tensors.front();
    return ReduceBuffer(reduction, tensor.input.data,
                        static_cast<std::size_t>(tensor.input.shape.elements()), tensor.output.data,
                        context);
  }
  const std::size_t bytes = batch.input_bytes();
  void* fused = nullptr;
  HVD_RETURN_IF_ERROR(context.Scratch(bytes, &fused));
  context.Activity("MEMCPY_IN_FUSION_BUFFER");
  PackInputs(batch, fused);
  context.Activity("MPI_ALLREDUCE");
  HVD_RETURN_IF_ERROR(
      ReduceBuffer(reduction, fused, bytes / Info(batch.dtype).size, fused, context));
  context.Activity("MEMCPY_OUT_FUSION_BUFFER");
  UnpackOutputs(batch, fused);
  return Status::Ok();
}

Status MpiBackend::ReduceBuffer(const Reduction& reduction, const void* input, std::size_t elements,
                                void* output, RunContext& context) {
  if (elements == 0) return Status::Ok();
  const bool small = elements * Info(reduction.dtype).size <= kSmallBytes;
  return small ? ReduceSmall(reduction, input, elements, output, context)
               : ReduceParts(reduction, input, elements, output, context);
}

// Everybody sends everything to everybody, and all reduce all of it.
Status MpiBackend::ReduceSmall(const Reduction& reduction, const void* input, std::size_t elements,
                               void* output, RunContext& context) {
  const int size = world_->size();
  const std::size_t bytes = elements * Info(reduction.dtype).size;
  char* const received = Received(bytes * static_cast<std::size_t>(size));
  std::vector<const void*> inputs(static_cast<std::size_t>(size));
  Exchange exchange(world_->data(), context, longest_);
  for (int peer = 0; peer < size; ++peer) {
    char* slot = received + bytes * static_cast<std::size_t>(peer);
    inputs[static_cast<std::size_t>(peer)] = peer == world_->rank() ? input : slot;
    if (peer == world_->rank()) continue;
    HVD_RETURN_IF_ERROR(exchange.Receive(peer, slot, bytes));
    HVD_RETURN_IF_ERROR(exchange.Send(peer, input, bytes));
  }
  HVD_RETURN_IF_ERROR(exchange.Finish());
  DropAbsent(absent_, &inputs);
  Reduce(reduction, inputs, elements, output);
  return Status::Ok();
}

// Rank r reduces part r of the elements and gives the result to everybody. In segments, so that a
// segment's results travel while the next one's inputs do.
Status MpiBackend::ReduceParts(const Reduction& reduction, const void* input, std::size_t elements,
                               void* output, RunContext& context) {
  const int size = world_->size();
  const int self = world_->rank();
  const std::size_t item = Info(reduction.dtype).size;
  const std::size_t longest = PartOf(elements, 0, size).end;  // part 0 is never shorter than others
  const std::size_t segment = std::min(longest, SegmentBytes(size) / item);
  const std::size_t segments = (longest + segment - 1) / segment;
  char* const received = Received(segment * item * static_cast<std::size_t>(size));
  // Segment `s` of `rank`'s part; empty where a part is shorter.
  const auto piece = [&](int rank, std::size_t s) {
    const Part part = PartOf(elements, rank, size);
    return Part{std::min(part.begin + s * segment, part.end),
                std::min(part.begin + (s + 1) * segment, part.end)};
  };
  const auto slot = [&](int peer) {
    return received + segment * item * static_cast<std::size_t>(peer);
  };
  for (std::size_t s = 0; s <= segments; ++s) {
    Exchange exchange(world_->data(), context, longest_);
    const Part mine = piece(self, s);
    for (int peer = 0; peer < size; ++peer) {
      if (peer == self) continue;
      if (s < segments) {
        const Part theirs = piece(peer, s);
        HVD_RETURN_IF_ERROR(exchange.Receive(peer, slot(peer), (mine.end - mine.begin) * item));
        HVD_RETURN_IF_ERROR(exchange.Send(peer, At(input, theirs.begin * item),
                                          (theirs.end - theirs.begin) * item));
      }
      if (s > 0) {
        const Part done = piece(self, s - 1);
        const Part result = piece(peer, s - 1);
        HVD_RETURN_IF_ERROR(exchange.Receive(peer, At(output, result.begin * item),
                                             (result.end - result.begin) * item));
        HVD_RETURN_IF_ERROR(
            exchange.Send(peer, At(output, done.begin * item), (done.end - done.begin) * item));
      }
    }
    HVD_RETURN_IF_ERROR(exchange.Finish());
    if (s == segments) break;
    std::vector<const void*> inputs(static_cast<std::size_t>(size));
    for (int peer = 0; peer < size; ++peer) {
      inputs[static_cast<std::size_t>(peer)] =
          peer == self ? At(input, mine.begin * item) : slot(peer);
    }
    DropAbsent(absent_, &inputs);
    Reduce(reduction, inputs, mine.end - mine.begin, At(output, mine.begin * item));
  }
  return Status::Ok();
}

Status MpiBackend::Allgather(const BatchTensor& tensor, RunContext& context) {
  const std::size_t row =
      static_cast<std::size_t>(tensor.input.shape.row_elements()) * Info(tensor.input.dtype).size;
  Exchange exchange(world_->data(), context, longest_);
  std::size_t offset = 0;
  std::size_t own_offset = 0;
  for (int peer = 0; peer < world_->size(); ++peer) {
    const std::size_t bytes =
        row * static_cast<std::size_t>(tensor.first_dims[static_cast<std::size_t>(peer)]);
    if (peer == world_->rank()) {
      own_offset = offset;
    } else {
      HVD_RETURN_IF_ERROR(exchange.Receive(peer, At(tensor.output.data, offset), bytes));
      HVD_RETURN_IF_ERROR(exchange.Send(peer, tensor.input.data, tensor.input.bytes()));
    }
    offset += bytes;
  }
  if (tensor.input.bytes() > 0) {
    std::memcpy(At(tensor.output.data, own_offset), tensor.input.data, tensor.input.bytes());
  }
  return exchange.Finish();
}

// A small tensor goes down a binomial tree. Of a large one the root gives each rank a part, and all
// exchange their parts: nobody sends more than two tensors' worth, however many ranks there are.
Status MpiBackend::Broadcast(const BatchTensor& tensor, int root, RunContext& context) {
  const std::size_t bytes = tensor.input.bytes();
  const bool is_root = world_->rank() == root;
  void* const output = tensor.output.data;
  if (is_root && bytes > 0 && output != tensor.input.data) {
    std::memcpy(output, tensor.input.data, bytes);
  }
  if (bytes <= kSmallBytes || world_->size() == 2) return Tree(output, bytes, root, context);
  return ScatterAndGather(output, bytes, root, context);
}

Status MpiBackend::Tree(void* buffer, std::size_t bytes, int root, RunContext& context) {
  const int size = world_->size();
  const int place = (world_->rank() - root + size) % size;  // in the tree; the root's is 0
  const auto rank_at = [&](int p) { return (p + root) % size; };
  int step = 1;
  while (step < size && (place & step) == 0) step *= 2;  // the lowest set bit leads to the parent
  if (place != 0) {
    Exchange exchange(world_->data(), context, longest_);
    HVD_RETURN_IF_ERROR(exchange.Receive(rank_at(place - step), buffer, bytes));
    HVD_RETURN_IF_ERROR(exchange.Finish());
  }
  Exchange exchange(world_->data(), context, longest_);
  for (step /= 2; step > 0; step /= 2) {
    if (place + step < size) {
      HVD_RETURN_IF_ERROR(exchange.Send(rank_at(place + step), buffer, bytes));
    }
  }
  return exchange.Finish();
}

Status MpiBackend::ScatterAndGather(void* buffer, std::size_t bytes, int root,
                                    RunContext& context) {
  const int size = world_->size();
  const int self = world_->rank();
  const Part mine = PartOf(bytes, self, size);
  if (self == root) {
    Exchange scatter(world_->data(), context, longest_);
    for (int peer = 0; peer < size; ++peer) {
      const Part part = PartOf(bytes, peer, size);
      if (peer == self) continue;
      HVD_RETURN_IF_ERROR(scatter.Send(peer, At(buffer, part.begin), part.end - part.begin));
    }
    HVD_RETURN_IF_ERROR(scatter.Finish());
  } else {
    Exchange scatter(world_->data(), context, longest_);
    HVD_RETURN_IF_ERROR(scatter.Receive(root, At(buffer, mine.begin), mine.end - mine.begin));
    HVD_RETURN_IF_ERROR(scatter.Finish());
  }
  Exchange gather(world_->data(), context, longest_);
  for (int peer = 0; peer < size; ++peer) {
    if (peer == self) continue;
    const Part part = PartOf(bytes, peer, size);
    if (self != root) {
      HVD_RETURN_IF_ERROR(gather.Receive(peer, At(buffer, part.begin), part.end - part.begin));
    }
    if (peer != root) {
      HVD_RETURN_IF_ERROR(gather.Send(peer, At(buffer, mine.begin), mine.end - mine.begin));
    }
  }
  return gather.Finish();
}

Status MpiBackend::Alltoall(const BatchTensor& tensor, RunContext& context) {
  const std::size_t row = tensor.row_bytes();
  const auto self = static_cast<std::size_t>(world_->rank());
  Exchange exchange(world_->data(), context, longest_);
  std::size_t from = 0;
  std::size_t to = 0;
  for (int peer = 0; peer < world_->size(); ++peer) {
    const auto other = static_cast<std::size_t>(peer);
    const std::size_t sent = row * static_cast<std::size_t>(tensor.splits[self][other]);
    const std::size_t received = row * static_cast<std::size_t>(tensor.splits[other][self]);
    if (peer != world_->rank()) {
      HVD_RETURN_IF_ERROR(exchange.Receive(peer, At(tensor.output.data, to), received));
      HVD_RETURN_IF_ERROR(exchange.Send(peer, At(tensor.input.data, from), sent));
    } else if (sent > 0) {
      std::memcpy(At(tensor.output.data, to), At(tensor.input.data, from), sent);
    }
    from += sent;
    to += received;
  }
  return exchange.Finish();
}

// The first half of ReduceParts, whose parts are whole rows here: in segments, which bound the
// memory for what peers send.
Status MpiBackend::Reducescatter(const Reduction& reduction, const BatchTensor& tensor,
                                 RunContext& context) {
  const int size = world_->size();
  const int self = world_->rank();
  const std::size_t item = Info(reduction.dtype).size;
  const auto row = static_cast<std::size_t>(tensor.input.shape.row_elements());
  const auto part_of = [&](int rank) {
    const std::int64_t rows = tensor.input.shape.dim(0);
    return Part{static_cast<std::size_t>(BeginOfShare(rows, rank, size)) * row,
                static_cast<std::size_t>(BeginOfShare(rows, rank + 1, size)) * row};
  };
  const std::size_t longest = part_of(0).end;  // part 0 is never shorter than others
  if (longest == 0) return Status::Ok();
  const std::size_t segment = std::min(longest, SegmentBytes(size) / item);
  char* const received = Received(segment * item * static_cast<std::size_t>(size));
  for (std::size_t done = 0; done < longest; done += segment) {
    const auto piece_of = [&](int rank) {
      const Part part = part_of(rank);
      return Part{std::min(part.begin + done, part.end),
                  std::min(part.begin + done + segment, part.end)};
    };
    const Part mine = piece_of(self);
    std::vector<const void*> inputs(static_cast<std::size_t>(size));
    Exchange exchange(world_->data(), context, longest_);
    for (int peer = 0; peer < size; ++peer) {
      char* const slot = received + segment * item * static_cast<std::size_t>(peer);
      inputs[static_cast<std::size_t>(peer)] =
          peer == self ? At(std::as_const(tensor.input.data), mine.begin * item) : slot;
      if (peer == self) continue;
      const Part theirs = piece_of(peer);
      HVD_RETURN_IF_ERROR(exchange.Receive(peer, slot, (mine.end - mine.begin) * item));
      HVD_RETURN_IF_ERROR(exchange.Send(peer, At(tensor.input.data, theirs.begin * item),
                                        (theirs.end - theirs.begin) * item));
    }
    HVD_RETURN_IF_ERROR(exchange.Finish());
    if (mine.end > mine.begin) {
      DropAbsent(absent_, &inputs);
      Reduce(reduction, inputs, mine.end - mine.begin, At(tensor.output.data, done * item));
    }
  }
  return Status::Ok();
}

}  // namespace

std::unique_ptr<CollectiveBackend> MakeMpiBackend(std::shared_ptr<MpiGroup> group,
                                                  std::size_t longest) {
  return std::make_unique<MpiBackend>(std::move(group), longest);
}

std::unique_ptr<CollectiveBackend> MakeMpiBackend(std::shared_ptr<MpiWorld> world,
                                                  std::size_t longest) {
  return MakeMpiBackend(std::make_shared<MpiGroup>(std::move(world)), longest);
}

}  // namespace horovod_tf
