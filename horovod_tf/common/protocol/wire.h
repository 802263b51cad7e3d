// Bounds-checked primitives of the wire format: little-endian fixed integers, LEB128 varints,
// strings with a length. Bytes from a peer are hostile: a Reader never reads past its end, never
// allocates more than the bytes that are there, and reports the first problem as a sticky failure.
#ifndef HOROVOD_TF_COMMON_PROTOCOL_WIRE_H_
#define HOROVOD_TF_COMMON_PROTOCOL_WIRE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "horovod_tf/common/base/status.h"

namespace horovod_tf {

// Thread rule: one thread at a time (both classes).
class WireWriter {
 public:
  void U8(std::uint8_t value) { bytes_.push_back(static_cast<char>(value)); }
  void U16(std::uint16_t value);
  void U32(std::uint32_t value);
  void F64(double value);
  void Varint(std::uint64_t value);
  void SignedVarint(std::int64_t value);  // zigzag
  void String(std::string_view value);    // varint length, bytes
  void Raw(std::string_view value) { bytes_.append(value); }

  std::size_t size() const { return bytes_.size(); }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  // After a failure all of these return 0 or empty; look at ok() once at the end of a record.
  std::uint8_t U8();
  std::uint16_t U16();
  std::uint32_t U32();
  double F64();
  std::uint64_t Varint();
  std::int64_t SignedVarint();
  std::string_view String();
  std::string_view Raw(std::size_t size);
  // A varint that counts things which take at least `min_bytes_each` bytes in what is left; fails
  // if they cannot be there, so that a hostile count never makes us allocate.
  std::size_t Count(std::size_t min_bytes_each);

  std::size_t remaining() const { return bytes_.size() - position_; }
  bool AtEnd() const { return remaining() == 0; }
  bool ok() const { return error_.empty(); }
  // Keeps the first failure. `what` says what was being read.
  void Fail(std::string_view what);
  // OK, or InvalidArgument with the first failure and the offset where it happened.
  Status status() const;

 private:
  std::string_view bytes_;
  std::size_t position_ = 0;
  std::string error_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_PROTOCOL_WIRE_H_
