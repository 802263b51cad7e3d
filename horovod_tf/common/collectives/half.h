// float16 and bfloat16 as bits: conversion from and to float32. Widening is exact; narrowing rounds
// to nearest even, keeps infinities and subnormal numbers, and keeps NaN a NaN (made quiet).
//
// float16's formulas are templates over "one value" (std::uint32_t, float) and "several values"
// (vectors of them), so that portable vector code and the scalar functions are the same code.
#ifndef HOROVOD_TF_COMMON_COLLECTIVES_HALF_H_
#define HOROVOD_TF_COMMON_COLLECTIVES_HALF_H_

#include <cstdint>
#include <cstring>

namespace horovod_tf {
namespace half_internal {

template <typename To, typename From>
inline To BitCast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "bits of the same number");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// A float's exponent field has 127 for 2^0, a half's has 15; a float's mantissa is 13 bits longer.
constexpr std::uint32_t kRebias = (127U - 15U) << 23;
constexpr std::uint32_t kFloatInfinity = 0x7f800000U;
constexpr std::uint32_t kFloatQuietBit = 0x00400000U;
constexpr std::uint32_t kSmallestNormalHalf = 113U << 23;  // 2^-14 as a float's bits
constexpr std::uint32_t kAboveAllHalves = 143U << 23;      // 2^16
// 0.5: a float added to it has the weight 2^-24, the smallest half, in its last bit. So the adder
// does the rounding of subnormal halves.
constexpr std::uint32_t kSubnormalMagic = 126U << 23;

// `half` has the 16 bits in its low half. UInts and Floats are 32 bits (per lane).
template <typename UInts, typename Floats>
inline Floats HalfBitsToFloat(const UInts& half) {
  const UInts zero = half ^ half;
  const UInts magnitude = (half & 0x7fffU) << 13;
  const UInts exponent = magnitude & 0x0f800000U;
  const UInts normal = magnitude + kRebias;
  const UInts infinity = magnitude | kFloatInfinity;
  const UInts nan = infinity | kFloatQuietBit;
  // Pretends an exponent one too high and subtracts what that adds: normalises without a loop.
  const UInts subnormal =
      BitCast<UInts>(BitCast<Floats>(static_cast<UInts>(normal + (1U << 23))) -
                     BitCast<Floats>(static_cast<UInts>(zero + kSmallestNormalHalf)));
  UInts bits = exponent == zero ? subnormal : normal;
  bits = magnitude >= zero + 0x0f800000U ? infinity : bits;
  bits = magnitude > zero + 0x0f800000U ? nan : bits;
  return BitCast<Floats>(static_cast<UInts>(bits | (half & 0x8000U) << 16));
}

template <typename UInts, typename Floats>
inline UInts FloatToHalfBits(const Floats& value) {
  const UInts bits = BitCast<UInts>(value);
  const UInts zero = bits ^ bits;
  const UInts magnitude = bits & 0x7fffffffU;
  // Rounds half up, and a tie down where the kept part is even. A carry out of the mantissa raises
  // the exponent, up to infinity, as it should.
  const UInts normal = (magnitude - kRebias + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  const UInts subnormal = BitCast<UInts>(static_cast<Floats>(
                              BitCast<Floats>(magnitude) +
                              BitCast<Floats>(static_cast<UInts>(zero + kSubnormalMagic)))) -
                          kSubnormalMagic;
  const UInts nan = ((magnitude >> 13) & 0x3ffU) | 0x7e00U;
  UInts half = magnitude < zero + kSmallestNormalHalf ? subnormal : normal;
  half = magnitude >= zero + kAboveAllHalves ? static_cast<UInts>(zero + 0x7c00U) : half;
  half = magnitude > zero + kFloatInfinity ? nan : half;
  return half | (bits >> 16 & 0x8000U);
}

}  // namespace half_internal

inline float HalfToFloat(std::uint16_t half) {
  return half_internal::HalfBitsToFloat<std::uint32_t, float>(half);
}
inline std::uint16_t FloatToHalf(float value) {
  return static_cast<std::uint16_t>(half_internal::FloatToHalfBits<std::uint32_t>(value));
}
inline float BFloat16ToFloat(std::uint16_t bits) {
  return half_internal::BitCast<float>(static_cast<std::uint32_t>(bits) << 16);
}
inline std::uint16_t FloatToBFloat16(float value) {
  const std::uint32_t bits = half_internal::BitCast<std::uint32_t>(value);
  // Rounding could carry a NaN's mantissa into its sign, so NaN is cut off instead.
  const bool nan = (bits & 0x7fffffffU) > half_internal::kFloatInfinity;
  const std::uint32_t rounded =
      nan ? bits | half_internal::kFloatQuietBit : bits + 0x7fffU + (bits >> 16 & 1U);
  return static_cast<std::uint16_t>(rounded >> 16);
}

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_COLLECTIVES_HALF_H_
