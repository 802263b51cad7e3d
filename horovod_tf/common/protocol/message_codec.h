// What the encoder and the decoder of messages share: the numbers that stand for types and flags.
// Encoding is canonical: a message has exactly one encoding, and the decoder accepts no other, so
// decoding and encoding again gives the very same bytes.
#ifndef HOROVOD_TF_COMMON_PROTOCOL_MESSAGE_CODEC_H_
#define HOROVOD_TF_COMMON_PROTOCOL_MESSAGE_CODEC_H_

#include <cstddef>
#include <cstdint>

#include "horovod_tf/common/protocol/message.h"

namespace horovod_tf {

// A type's number on the wire is its place in `Message` or `LogRecord`, counted from 1, so that a
// zeroed byte is never a type.
inline constexpr std::size_t kFirstType = 1;

// Bits of a request's flags.
inline constexpr std::uint8_t kHasFactors = 1;  // else both are 1
inline constexpr std::uint8_t kHasDevice = 2;   // else the CPU
// Bits of an announcement's flags.
inline constexpr std::uint8_t kAsksShutdown = 1;
inline constexpr std::uint8_t kJoins = 2;
inline constexpr std::uint8_t kWithdraws = 4;
// Bits of a withdrawal's flags.
inline constexpr std::uint8_t kWasAnnounced = 1;

inline bool HasFactors(const Request& request) {
  return request.prescale != 1.0 || request.postscale != 1.0;
}

// Whether a request of this kind has splits; not of a number that no table knows.
inline bool SplitsRows(CollectiveKind kind) {
  const auto known = CollectiveKindFromInt(static_cast<std::uint64_t>(kind));
  return known.has_value() && Info(*known).splits_rows;
}

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_PROTOCOL_MESSAGE_CODEC_H_
