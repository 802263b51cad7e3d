#include "horovod_tf/common/protocol/id_set.h"

#include <numeric>
#include <string>

#include "horovod_tf/common/base/check.h"

namespace horovod_tf {
namespace {

// Ids from `first` up to, not including, `end`.
struct Run {
  std::uint64_t first;
  std::uint64_t end;
};

std::vector<Run> RunsOf(const std::vector<TensorId>& ids) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < ids.size();) {
    std::size_t end = i + 1;
    while (end < ids.size() && ids[end] == ids[end - 1] + 1) ++end;
    runs.push_back({ids[i], std::uint64_t{ids[end - 1]} + 1});
    i = end;
  }
  return runs;
}

std::size_t VarintSize(std::uint64_t value) {
  std::size_t size = 1;
  while (value >= 0x80) {
    value >>= 7;
    ++size;
  }
  return size;
}

// What is written for a run: how far it is from the run before, then its length. A gap and a length
// are at least 1, so they are written less 1.
struct RunCode {
  std::uint64_t distance;
  std::uint64_t length;
};
RunCode CodeOf(const std::vector<Run>& runs, std::size_t i) {
  const Run& run = runs[i];
  return {i == 0 ? run.first : run.first - runs[i - 1].end - 1, run.end - run.first - 1};
}

// Bytes of a bitmap from the first id to the last. REQUIRES: runs is not empty.
std::uint64_t BitmapBytes(const std::vector<Run>& runs) {
  return (runs.back().end - runs.front().first + 7) / 8;
}

// Whether the bitmap is the smaller form; equal sizes go to the runs. The reader asks the same, so
// that each set has exactly one encoding. REQUIRES: runs is not empty.
bool PrefersBitmap(const std::vector<Run>& runs) {
  const std::uint64_t bytes = BitmapBytes(runs);
  const std::uint64_t bitmap = VarintSize(bytes << 1) + VarintSize(runs.front().first) + bytes;
  std::uint64_t size = VarintSize(std::uint64_t{runs.size()} << 1);
  for (std::size_t i = 0; i < runs.size() && size <= bitmap; ++i) {
    const RunCode code = CodeOf(runs, i);
    size += VarintSize(code.distance) + VarintSize(code.length);
  }
  return size > bitmap;
}

std::string Bitmap(const std::vector<TensorId>& ids, std::uint64_t bytes) {
  std::vector<std::uint8_t> bitmap(bytes, 0);
  for (TensorId id : ids) {
    const TensorId bit = id - ids.front();
    bitmap[bit / 8] = static_cast<std::uint8_t>(bitmap[bit / 8] | 1u << bit % 8);
  }
  return std::string(bitmap.begin(), bitmap.end());
}

bool CheckCount(std::uint64_t count, std::size_t max_ids, WireReader* reader) {
  if (count > max_ids) {
    reader->Fail("a set of at least " + std::to_string(count) + " tensor ids, of which at most " +
                 std::to_string(max_ids) + " are allowed");
  }
  return reader->ok();
}

bool CheckEnd(std::uint64_t end, WireReader* reader) {
  if (end > kMaxTensorIds) {
    reader->Fail("tensor id " + std::to_string(end - 1) + ", of which the largest allowed is " +
                 std::to_string(kMaxTensorIds - 1));
  }
  return reader->ok();
}

std::vector<TensorId> ReadRuns(std::uint64_t count, std::size_t max_ids, WireReader* reader,
                               std::vector<Run>* runs) {
  std::uint64_t total = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t distance = reader->Varint();
    const std::uint64_t length = reader->Varint();
    if (!reader->ok()) return {};
    // Each part is bounded before the sum, which therefore cannot wrap.
    if (!CheckEnd(distance, reader) || !CheckEnd(length, reader)) return {};
    const std::uint64_t first = (runs->empty() ? 0 : runs->back().end + 1) + distance;
    const std::uint64_t end = first + length + 1;
    total += length + 1;
    if (!CheckEnd(end, reader) || !CheckCount(total, max_ids, reader)) return {};
    runs->push_back({first, end});
  }
  std::vector<TensorId> ids(total);
  auto next = ids.begin();
  for (const Run& run : *runs) {
    const auto end = next + static_cast<std::ptrdiff_t>(run.end - run.first);
    std::iota(next, end, static_cast<TensorId>(run.first));
    next = end;
  }
  return ids;
}

std::vector<TensorId> ReadBitmap(std::uint64_t bytes, std::size_t max_ids, WireReader* reader,
                                 std::vector<Run>* runs) {
  const std::uint64_t first = reader->Varint();
  const std::string_view bitmap = reader->Raw(bytes);
  if (!reader->ok() || !CheckEnd(first, reader) || !CheckEnd(first + bytes * 8 - 7, reader)) {
    return {};
  }
  if ((bitmap.front() & 1) == 0 || bitmap.back() == 0) {
    reader->Fail("a bitmap of tensor ids that is longer than needed");
    return {};
  }
  std::vector<TensorId> ids;
  for (std::uint64_t i = 0; i < bytes; ++i) {
    for (auto rest = static_cast<std::uint8_t>(bitmap[i]); rest != 0;
         rest = static_cast<std::uint8_t>(rest & (rest - 1))) {
      const auto bit = static_cast<std::uint64_t>(__builtin_ctz(rest));
      ids.push_back(static_cast<TensorId>(first + i * 8 + bit));
    }
    if (!CheckCount(ids.size(), max_ids, reader)) return {};
  }
  if (!CheckEnd(std::uint64_t{ids.back()} + 1, reader)) return {};
  *runs = RunsOf(ids);
  return ids;
}

}  // namespace

void WriteIdSet(const std::vector<TensorId>& ids, WireWriter* writer) {
  if (ids.empty()) {
    writer->Varint(0);
    return;
  }
  HVD_CHECK(ids.back() < kMaxTensorIds, "a tensor id that no decoder accepts");
  const std::vector<Run> runs = RunsOf(ids);
  if (PrefersBitmap(runs)) {
    const std::uint64_t bytes = BitmapBytes(runs);
    writer->Varint(bytes << 1 | 1);
    writer->Varint(ids.front());
    writer->Raw(Bitmap(ids, bytes));
    return;
  }
  writer->Varint(std::uint64_t{runs.size()} << 1);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunCode code = CodeOf(runs, i);
    writer->Varint(code.distance);
    writer->Varint(code.length);
  }
}

std::vector<TensorId> ReadIdSet(std::size_t max_ids, WireReader* reader) {
  const std::uint64_t head = reader->Varint();
  if (!reader->ok() || head == 0) return {};
  const bool bitmap = (head & 1) != 0;
  const std::uint64_t size = head >> 1;
  // A run takes two bytes at least, a bitmap's byte one.
  if (size == 0 || size > reader->remaining() / (bitmap ? 1 : 2)) {
    reader->Fail("truncated: a set of tensor ids in " + std::to_string(size) +
                 (bitmap ? " bitmap bytes" : " runs") + " with " +
                 std::to_string(reader->remaining()) + " bytes left");
    return {};
  }
  std::vector<Run> runs;
  std::vector<TensorId> ids =
      bitmap ? ReadBitmap(size, max_ids, reader, &runs) : ReadRuns(size, max_ids, reader, &runs);
  if (reader->ok() && PrefersBitmap(runs) != bitmap) {
    reader->Fail("a set of tensor ids in the larger of its two forms");
  }
  return reader->ok() ? ids : std::vector<TensorId>();
}

}  // namespace horovod_tf
