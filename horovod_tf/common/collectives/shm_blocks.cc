#include "horovod_tf/common/collectives/shm_blocks.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "horovod_tf/common/base/check.h"
#include "horovod_tf/common/collectives/batch_row.h"

namespace horovod_tf {
namespace {

// Places in a slot begin at cache lines.
constexpr std::size_t kLineBytes = 64;
// The longest block is cut into so many pieces at least, so that ranks write and read at the same
// time, unless all ranks' pieces together would become shorter than a chunk is worth.
constexpr std::size_t kFewestPieces = 4;
constexpr std::size_t kShortestChunk = 32 << 10;

// Lengths of blocks for each rank, one after the other in one buffer.
class Blocks {
 public:
  void Add(std::size_t bytes) {
    begins_.push_back(end_);
    end_ += bytes;
    ends_.push_back(end_);
  }
  ByteRange operator[](int rank) const {
    return {begins_[static_cast<std::size_t>(rank)], ends_[static_cast<std::size_t>(rank)]};
  }
  std::size_t bytes() const { return end_; }

 private:
  std::vector<std::size_t> begins_;
  std::vector<std::size_t> ends_;
  std::size_t end_ = 0;
};

// A slot is divided into a place for each rank. In chunk c a rank writes piece c of each block to
// the place of the rank that it is for, so that all ranks have something to read in every chunk.
// Its own block it never writes.
//
// Thread rule: as CollectiveBackend.
class BlockExchange {
 public:
  // `longest`: of all ranks' blocks but those for themselves.
  BlockExchange(ShmMeeting& meeting, std::uint64_t* next_chunk, std::size_t longest)
      : meeting_(meeting),
        place_(meeting.segment().slot_bytes() / static_cast<std::size_t>(meeting.size()) /
               kLineBytes * kLineBytes),
        piece_(PieceBytes(longest)),
        count_((longest + piece_ - 1) / piece_),
        first_chunk_(*next_chunk) {
    *next_chunk += count_;
  }

  // Calls take(range, chunk) for each piece of this rank's blocks, when all ranks have published
  // it: bytes [range.begin, range.end) of each block, as far as it goes, lie at Place(rank, chunk).
  template <typename Take>
  Status Run(const unsigned char* input, const Blocks& blocks, RunContext& context, Take&& take) {
    for (std::size_t i = 0; i < count_ + 1; ++i) {
      if (i < count_) HVD_RETURN_IF_ERROR(Publish(i, input, blocks, context));
      if (i == 0) continue;
      const std::uint64_t chunk = first_chunk_ + i - 1;
      HVD_RETURN_IF_ERROR(meeting_.AwaitPublished(chunk, context));
      take(ByteRange{(i - 1) * piece_, i * piece_}, chunk);
      meeting_.Release(chunk);
    }
    return Status::Ok();
  }

  // Where `rank` writes what is for this one.
  const unsigned char* Place(int rank, std::uint64_t chunk) const {
    return meeting_.segment().slot(rank, chunk) + PlaceOf(meeting_.rank());
  }

 private:
  std::size_t PlaceOf(int rank) const { return static_cast<std::size_t>(rank) * place_; }

  std::size_t PieceBytes(std::size_t longest) const {
    HVD_CHECK(place_ > 0, "a slot with a line for every rank");
    const auto lines = [](std::size_t bytes) {
      return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
    };
    const std::size_t shortest = lines(kShortestChunk / static_cast<std::size_t>(meeting_.size()));
    return std::clamp(lines(longest / kFewestPieces), std::min(shortest, place_), place_);
  }

  Status Publish(std::size_t i, const unsigned char* input, const Blocks& blocks,
                 RunContext& context) {
    const std::uint64_t chunk = first_chunk_ + i;
    unsigned char* const slot = meeting_.segment().slot(meeting_.rank(), chunk);
    HVD_RETURN_IF_ERROR(meeting_.AwaitSlot(chunk, context));
    for (int rank = 0; rank < meeting_.size(); ++rank) {
      const ByteRange block = blocks[rank];
      const std::size_t begin = std::min(i * piece_, block.size());
      const std::size_t end = std::min(begin + piece_, block.size());
      if (rank == meeting_.rank() || begin == end) continue;
      std::memcpy(slot + PlaceOf(rank), input + block.begin + begin, end - begin);
    }
    meeting_.Publish(chunk);
    return Status::Ok();
  }

  ShmMeeting& meeting_;
  const std::size_t place_;  // bytes of each place
  const std::size_t piece_;
  const std::size_t count_;
  const std::uint64_t first_chunk_;
};

Blocks BlocksOfRows(const std::vector<std::int64_t>& rows, std::size_t row_bytes) {
  Blocks blocks;
  for (std::int64_t count : rows) blocks.Add(static_cast<std::size_t>(count) * row_bytes);
  return blocks;
}

// Of all blocks that go from one rank to another.
std::size_t LongestSent(const SplitsOfRanks& splits, std::size_t row_bytes) {
  std::int64_t rows = 0;
  for (std::size_t from = 0; from < splits.size(); ++from) {
    for (std::size_t to = 0; to < splits.size(); ++to) {
      if (from != to) rows = std::max(rows, splits[from][to]);
    }
  }
  return static_cast<std::size_t>(rows) * row_bytes;
}

ByteRange Within(ByteRange piece, ByteRange block) {
  return {std::min(piece.begin, block.size()), std::min(piece.end, block.size())};
}

}  // namespace

Status SlotsHavePlaces(const ShmMeeting& meeting) {
  const std::size_t needed = kLineBytes * static_cast<std::size_t>(meeting.size());
  if (meeting.segment().slot_bytes() >= needed) return Status::Ok();
  return Status::Unimplemented("its chunks of " + std::to_string(meeting.segment().slot_bytes()) +
                               " bytes have no room for " + std::to_string(meeting.size()) +
                               " ranks");
}

Status ShmAlltoall(const BatchTensor& tensor, ShmMeeting& meeting, std::uint64_t* next_chunk,
                   RunContext& context) {
  const std::size_t row = tensor.row_bytes();
  const int self = meeting.rank();
  const Blocks sent = BlocksOfRows(tensor.splits[static_cast<std::size_t>(self)], row);
  const Blocks received = BlocksOfRows(RowsReceived(tensor.splits, self), row);
  HVD_CHECK(sent.bytes() == tensor.input.bytes() && received.bytes() == tensor.output.bytes(),
            "an input or output of another size");
  const auto* const input = static_cast<const unsigned char*>(tensor.input.data);
  auto* const output = static_cast<unsigned char*>(tensor.output.data);
  if (sent[self].size() > 0) {
    std::memcpy(output + received[self].begin, input + sent[self].begin, sent[self].size());
  }
  BlockExchange exchange(meeting, next_chunk, LongestSent(tensor.splits, row));
  return exchange.Run(input, sent, context, [&](ByteRange piece, std::uint64_t chunk) {
    for (int rank = 0; rank < meeting.size(); ++rank) {
      const ByteRange range = Within(piece, received[rank]);
      if (rank == self || range.size() == 0) continue;
      std::memcpy(output + received[rank].begin + range.begin, exchange.Place(rank, chunk),
                  range.size());
    }
  });
}

Status ShmReducescatter(const BatchTensor& tensor, const Reduction& reduction,
                        const std::vector<int>& absent, ShmMeeting& meeting,
                        std::uint64_t* next_chunk, RunContext& context) {
  const int self = meeting.rank();
  Blocks shares;
  std::size_t longest = 0;
  for (int rank = 0; rank < meeting.size(); ++rank) {
    const std::int64_t rows = RowsOfShare(tensor.input.shape.dim(0), rank, meeting.size());
    shares.Add(static_cast<std::size_t>(rows) * tensor.row_bytes());
    longest = std::max(longest, shares[rank].size());
  }
  HVD_CHECK(shares.bytes() == tensor.input.bytes() && shares[self].size() == tensor.output.bytes(),
            "an input or output of another size");
  const auto* const input = static_cast<const unsigned char*>(tensor.input.data);
  auto* const output = static_cast<unsigned char*>(tensor.output.data);
  std::vector<const void*> inputs(static_cast<std::size_t>(meeting.size()));
  BlockExchange exchange(meeting, next_chunk, longest);
  return exchange.Run(input, shares, context, [&](ByteRange piece, std::uint64_t chunk) {
    const ByteRange range = Within(piece, shares[self]);
    if (range.size() == 0) return;
    for (int rank = 0; rank < meeting.size(); ++rank) {
      inputs[static_cast<std::size_t>(rank)] =
          rank == self ? input + shares[self].begin + range.begin : exchange.Place(rank, chunk);
    }
    std::vector<const void*> present = inputs;
    DropAbsent(absent, &present);
    Reduce(reduction, present, range.size() / Info(reduction.dtype).size, output + range.begin);
  });
}

}  // namespace horovod_tf
