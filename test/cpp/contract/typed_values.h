// Values of any data type for tests: small integers that every type holds exactly.
#ifndef HOROVOD_TF_TEST_CPP_CONTRACT_TYPED_VALUES_H_
#define HOROVOD_TF_TEST_CPP_CONTRACT_TYPED_VALUES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "horovod_tf/common/base/types.h"
#include "horovod_tf/common/collectives/half.h"

namespace horovod_tf {

using Bytes = std::vector<unsigned char>;

template <typename T>
void StoreAs(T value, Bytes* bytes, std::size_t index) {
  std::memcpy(bytes->data() + index * sizeof(T), &value, sizeof(T));
}

// Writes `value` as element `index` of a buffer of `dtype`; integers too small for it wrap around.
inline void StoreValue(DataType dtype, std::int64_t value, Bytes* bytes, std::size_t index) {
  switch (dtype) {
    case DataType::kUInt8:
    case DataType::kInt8:
      return StoreAs(static_cast<std::uint8_t>(value), bytes, index);
    case DataType::kUInt16:
    case DataType::kInt16:
      return StoreAs(static_cast<std::uint16_t>(value), bytes, index);
    case DataType::kUInt32:
    case DataType::kInt32:
      return StoreAs(static_cast<std::uint32_t>(value), bytes, index);
    case DataType::kUInt64:
    case DataType::kInt64:
      return StoreAs(value, bytes, index);
    case DataType::kComplex64:  // products of real numbers are as easy as sums
      return StoreAs(std::array<float, 2>{static_cast<float>(value), 0}, bytes, index);
    case DataType::kComplex128:
      return StoreAs(std::array<double, 2>{static_cast<double>(value), 0}, bytes, index);
    case DataType::kFloat16:
      return StoreAs(FloatToHalf(static_cast<float>(value)), bytes, index);
    case DataType::kBFloat16:
      return StoreAs(FloatToBFloat16(static_cast<float>(value)), bytes, index);
    case DataType::kFloat32:
      return StoreAs(static_cast<float>(value), bytes, index);
    case DataType::kFloat64:
      return StoreAs(static_cast<double>(value), bytes, index);
    case DataType::kBool:
      return StoreAs(static_cast<std::uint8_t>(value & 1), bytes, index);
  }
}

// A buffer of `elements` values, element i being value(i).
inline Bytes MakeBuffer(DataType dtype, std::size_t elements,
                        const std::function<std::int64_t(std::size_t)>& value) {
  Bytes bytes(elements * Info(dtype).size);
  for (std::size_t i = 0; i < elements; ++i) StoreValue(dtype, value(i), &bytes, i);
  return bytes;
}

// Where two buffers of `dtype` differ first; empty if nowhere.
inline std::string FirstDifference(DataType dtype, const Bytes& actual, const Bytes& expected) {
  if (actual.size() != expected.size()) {
    return std::to_string(actual.size()) + " bytes instead of " + std::to_string(expected.size());
  }
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i]) continue;
    const std::size_t size = Info(dtype).size;
    std::string text = std::string(Info(dtype).name) + " element " + std::to_string(i / size) +
                       " of " + std::to_string(actual.size() / size) + ": bytes";
    for (const Bytes* bytes : {&actual, &expected}) {
      for (std::size_t b = i / size * size; b < (i / size + 1) * size; ++b) {
        text += " " + std::to_string((*bytes)[b]);
      }
      if (bytes == &actual) text += " instead of";
    }
    return text;
  }
  return "";
}

}  // namespace horovod_tf

#endif  // HOROVOD_TF_TEST_CPP_CONTRACT_TYPED_VALUES_H_
