#include "horovod_tf/common/collectives/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace horovod_tf {
namespace {

constexpr std::uint32_t kPatterns = 1U << 16;
constexpr double kInf = std::numeric_limits<double>::infinity();

std::uint32_t BitsOf(float value) { return half_internal::BitCast<std::uint32_t>(value); }
float FloatOf(std::uint32_t bits) { return half_internal::BitCast<float>(bits); }

// What a 16-bit pattern means, from the definition of the format and nothing else.
struct Format {
  int exponent_bits;
  int mantissa_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  double Value(std::uint16_t bits) const {
    const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == (1 << exponent_bits) - 1) {
      return mantissa == 0 ? sign * kInf : std::numeric_limits<double>::quiet_NaN();
    }
    const int implicit = exponent == 0 ? 0 : 1 << mantissa_bits;
    const int scale = (exponent == 0 ? 1 : exponent) - bias() - mantissa_bits;
    return sign * std::ldexp(implicit + mantissa, scale);
  }
};

constexpr Format kHalf{5, 10};
constexpr Format kBFloat16{8, 7};

template <typename Widen>
void ExpectEveryPatternWidens(const Format& format, Widen widen) {
  for (std::uint32_t i = 0; i < kPatterns; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const double expected = format.Value(bits);
    const double actual = static_cast<double>(widen(bits));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(actual)) << i;
    } else {
      ASSERT_EQ(actual, expected) << i;
    }
    ASSERT_EQ(std::signbit(actual), (bits & 0x8000) != 0) << i;
  }
}

TEST(Half, EveryPatternWidened_HasTheFormatsValue) { ExpectEveryPatternWidens(kHalf, HalfToFloat); }
TEST(BFloat16, EveryPatternWidened_HasTheFormatsValue) {
  ExpectEveryPatternWidens(kBFloat16, BFloat16ToFloat);
}

template <typename Widen, typename Narrow>
void ExpectEveryPatternSurvives(const Format& format, Widen widen, Narrow narrow) {
  const auto quiet = static_cast<std::uint16_t>(1 << (format.mantissa_bits - 1));
  for (std::uint32_t i = 0; i < kPatterns; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const bool nan = std::isnan(format.Value(bits));
    ASSERT_EQ(narrow(widen(bits)), nan ? bits | quiet : bits) << i;
  }
}

TEST(Half, EveryPatternThereAndBack_IsTheSame) {
  ExpectEveryPatternSurvives(kHalf, HalfToFloat, FloatToHalf);
}
TEST(BFloat16, EveryPatternThereAndBack_IsTheSame) {
  ExpectEveryPatternSurvives(kBFloat16, BFloat16ToFloat, FloatToBFloat16);
}

// Between every finite pattern and the next one: just below the middle, the middle, just above.
template <typename Narrow>
void ExpectRoundingToNearestEven(const Format& format, Narrow narrow) {
  const std::uint32_t infinity = ((1U << format.exponent_bits) - 1) << format.mantissa_bits;
  for (std::uint32_t low = 0; low < infinity; ++low) {
    const std::uint32_t high = low + 1;
    const std::uint32_t even = low % 2 == 0 ? low : high;
    // The step from the largest finite number to infinity counts as if the format went on.
    const double low_value = format.Value(static_cast<std::uint16_t>(low));
    const double below = format.Value(static_cast<std::uint16_t>(low - (low == 0 ? 0 : 1)));
    const double high_value =
        high == infinity ? 2 * low_value - below : format.Value(static_cast<std::uint16_t>(high));
    const auto middle = static_cast<float>((low_value + high_value) / 2);
    ASSERT_EQ(static_cast<double>(middle), (low_value + high_value) / 2);
    for (std::uint32_t sign : {0U, 0x8000U}) {
      const std::uint32_t float_sign = sign << 16;
      ASSERT_EQ(narrow(FloatOf(BitsOf(middle) | float_sign)), even | sign) << low;
      ASSERT_EQ(narrow(FloatOf((BitsOf(middle) - 1) | float_sign)), low | sign) << low;
      ASSERT_EQ(narrow(FloatOf((BitsOf(middle) + 1) | float_sign)), high | sign) << low;
    }
  }
}

TEST(Half, FloatsAroundEveryMiddle_RoundToNearestEven) {
  ExpectRoundingToNearestEven(kHalf, FloatToHalf);
}
TEST(BFloat16, FloatsAroundEveryMiddle_RoundToNearestEven) {
  ExpectRoundingToNearestEven(kBFloat16, FloatToBFloat16);
}

TEST(Half, FloatsOutOfRange_BecomeInfinityOrZero) {
  EXPECT_EQ(FloatToHalf(65504.0F), 0x7bff);
  EXPECT_EQ(FloatToHalf(65519.996F), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0F), 0x7c00);
  EXPECT_EQ(FloatToHalf(-1e30F), 0xfc00);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(FloatToHalf(0x1p-25F), 0x0000);
  EXPECT_EQ(FloatToHalf(-0x1.8p-25F), 0x8001);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::denorm_min()), 0x0000);
  EXPECT_EQ(FloatToHalf(-0.0F), 0x8000);
}

TEST(BFloat16, FloatsOutOfRange_BecomeInfinity) {
  EXPECT_EQ(FloatToBFloat16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(FloatToBFloat16(-std::numeric_limits<float>::infinity()), 0xff80);
  EXPECT_EQ(FloatToBFloat16(-0.0F), 0x8000);
}

TEST(Half, EveryNanPayload_StaysNan) {
  for (std::uint32_t shift = 0; shift < 23; ++shift) {
    for (std::uint32_t sign : {0U, 0x80000000U}) {
      const float lowest = FloatOf(sign | 0x7f800000U | 1U << shift);
      const float all = FloatOf(sign | 0x7fffffffU >> shift | 0x7f800000U);
      for (float nan : {lowest, all}) {
        if (!std::isnan(nan)) continue;
        EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(nan))));
        EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(nan))));
        EXPECT_EQ(FloatToHalf(nan) >> 15, sign >> 31);
        EXPECT_EQ(FloatToBFloat16(nan) >> 15, sign >> 31);
      }
    }
  }
}

}  // namespace
}  // namespace horovod_tf
