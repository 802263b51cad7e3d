// IdSet: a strictly increasing list of small tensor ids, and its compact encoding: runs when they
// are contiguous (a steady step is one run), a bitmap when they are dense with gaps, whichever is
// smaller.
#ifndef HOROVOD_TF_COMMON_PROTOCOL_ID_SET_H_
#define HOROVOD_TF_COMMON_PROTOCOL_ID_SET_H_

#include <cstdint>
#include <vector>

#include "horovod_tf/common/protocol/wire.h"

namespace horovod_tf {

using TensorId = std::uint32_t;

// No id may be this large or larger; a decoder refuses it, so that ids can index arrays.
inline constexpr TensorId kMaxTensorIds = 1u << 24;

// REQUIRES: `ids` strictly increasing and all < kMaxTensorIds.
void WriteIdSet(const std::vector<TensorId>& ids, WireWriter* writer);
// Strictly increasing by construction; fails the reader if the bytes say something else, or name
// more than `max_ids` ids.
std::vector<TensorId> ReadIdSet(std::size_t max_ids, WireReader* reader);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_PROTOCOL_ID_SET_H_
