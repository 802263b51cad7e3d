#include "horovod_tf/common/protocol/wire.h"

#include <cstring>

namespace horovod_tf {
namespace {

constexpr unsigned kVarintBits = 7;
constexpr std::uint8_t kVarintMore = 0x80;
constexpr std::size_t kMaxVarintBytes = 10;

// The lowest `size` bytes of `value`, lowest first.
void AppendLittleEndian(std::uint64_t value, std::size_t size, std::string* bytes) {
  for (std::size_t i = 0; i < size; ++i) bytes->push_back(static_cast<char>(value >> (8 * i)));
}

// An integer of all of `bytes`, lowest first; 0 if there are none.
std::uint64_t LittleEndian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    value |= std::uint64_t{static_cast<std::uint8_t>(bytes[i])} << (8 * i);
  }
  return value;
}

}  // namespace

void WireWriter::U16(std::uint16_t value) { AppendLittleEndian(value, sizeof(value), &bytes_); }
void WireWriter::U32(std::uint32_t value) { AppendLittleEndian(value, sizeof(value), &bytes_); }

void WireWriter::F64(double value) {
  std::uint64_t bits = 0;
  static_assert(sizeof(bits) == sizeof(value));
  std::memcpy(&bits, &value, sizeof(bits));
  AppendLittleEndian(bits, sizeof(bits), &bytes_);
}

void WireWriter::Varint(std::uint64_t value) {
  while (value >= kVarintMore) {
    U8(static_cast<std::uint8_t>(value | kVarintMore));
    value >>= kVarintBits;
  }
  U8(static_cast<std::uint8_t>(value));
}

void WireWriter::SignedVarint(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  Varint(value < 0 ? ~(bits << 1) : bits << 1);
}

void WireWriter::String(std::string_view value) {
  Varint(value.size());
  Raw(value);
}

void WireReader::Fail(std::string_view what) {
  if (!ok()) return;
  error_ = std::string(what) + " at byte " + std::to_string(position_);
}

Status WireReader::status() const { return ok() ? Status::Ok() : Status::InvalidArgument(error_); }

std::string_view WireReader::Raw(std::size_t size) {
  if (!ok()) return {};
  if (size > remaining()) {
    Fail("truncated: " + std::to_string(size) + " bytes are needed and " +
         std::to_string(remaining()) + " are left");
    return {};
  }
  const std::string_view bytes = bytes_.substr(position_, size);
  position_ += size;
  return bytes;
}

std::uint8_t WireReader::U8() { return static_cast<std::uint8_t>(LittleEndian(Raw(1))); }
std::uint16_t WireReader::U16() { return static_cast<std::uint16_t>(LittleEndian(Raw(2))); }
std::uint32_t WireReader::U32() { return static_cast<std::uint32_t>(LittleEndian(Raw(4))); }

double WireReader::F64() {
  const std::uint64_t bits = LittleEndian(Raw(sizeof(double)));
  double value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

std::uint64_t WireReader::Varint() {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < kMaxVarintBytes; ++i) {
    const std::uint8_t byte = U8();
    if (!ok()) return 0;
    value |= std::uint64_t{static_cast<std::uint8_t>(byte & ~kVarintMore)} << (kVarintBits * i);
    if ((byte & kVarintMore) != 0) continue;
    if (byte == 0 && i > 0) {
      Fail("a varint with needless bytes");
    } else if (i + 1 == kMaxVarintBytes && byte > 1) {
      Fail("a varint of more than 64 bits");
    }
    return ok() ? value : 0;
  }
  Fail("a varint without an end");
  return 0;
}

std::int64_t WireReader::SignedVarint() {
  const std::uint64_t bits = Varint();
  return static_cast<std::int64_t>((bits & 1) != 0 ? ~(bits >> 1) : bits >> 1);
}

std::string_view WireReader::String() { return Raw(Count(1)); }

std::size_t WireReader::Count(std::size_t min_bytes_each) {
  const std::uint64_t count = Varint();
  if (count > remaining() / min_bytes_each) {
    Fail("truncated: a count of " + std::to_string(count) + " with " + std::to_string(remaining()) +
         " bytes left");
    return 0;
  }
  return static_cast<std::size_t>(count);
}

}  // namespace horovod_tf
