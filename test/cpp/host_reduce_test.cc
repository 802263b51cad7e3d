#include "horovod_tf/common/collectives/host_reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "horovod_tf/common/collectives/half.h"
#include "test/cpp/contract/typed_values.h"

namespace horovod_tf {
namespace {

// Around vectors, around blocks, odd ones.
constexpr std::size_t kSizes[] = {0,  1,  2,  3,   7,   8,    15,   16,   17,   31,   32,
                                  33, 63, 64, 127, 129, 1000, 1023, 1024, 1025, 2047, 2049};
constexpr std::size_t kMostElements = 2049;

struct Arithmetic {
  ReduceOp op;
  double prescale;
  double postscale;
  int divisor;
};
constexpr Arithmetic kArithmetics[] = {
    {ReduceOp::kSum, 1, 1, 3},         {ReduceOp::kAverage, 1, 1, 1},
    {ReduceOp::kAverage, 1, 1, 3},     {ReduceOp::kAverage, 1, 1, 8},
    {ReduceOp::kMin, 1, 1, 3},         {ReduceOp::kMax, 1, 1, 3},
    {ReduceOp::kProduct, 1, 1, 3},     {ReduceOp::kSum, 0.3, 1, 1},
    {ReduceOp::kSum, 1, -1.7, 1},      {ReduceOp::kAverage, 0.75, 1.3, 5},
    {ReduceOp::kMin, -0.5, 1, 1},      {ReduceOp::kMax, 2.5, 0.1, 1},
    {ReduceOp::kProduct, 1.5, 0.5, 1}, {ReduceOp::kAverage, 1, 1.3, 4},
};

Reduction MakeReduction(DataType dtype, const Arithmetic& arithmetic) {
  Reduction reduction;
  reduction.dtype = dtype;
  reduction.op = arithmetic.op;
  reduction.prescale = arithmetic.prescale;
  reduction.postscale = arithmetic.postscale;
  reduction.divisor = arithmetic.divisor;
  return reduction;
}

// The definition in host_reduce.h, word by word, one element at a time.
template <typename Float>
Float Canonical(Float value) {
  return std::isnan(value) ? std::numeric_limits<Float>::quiet_NaN() : value;
}

template <typename Float>
Float DefineFloat(const Reduction& r, const std::vector<Float>& inputs) {
  const auto prescale = static_cast<Float>(r.prescale);
  Float result = inputs[0] * prescale;
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    const Float x = inputs[i] * prescale;
    if (r.op == ReduceOp::kMin || r.op == ReduceOp::kMax) {
      const bool better = r.op == ReduceOp::kMin ? x < result : x > result;
      if (better || std::isnan(x)) result = x;
    } else {
      result = r.op == ReduceOp::kProduct ? result * x : result + x;
    }
  }
  if (r.op == ReduceOp::kAverage) result /= static_cast<Float>(r.divisor);
  return Canonical(result * static_cast<Float>(r.postscale));
}

template <typename Integer>
Integer DefineScaled(Integer value, double factor) {
  if (factor == 1.0) return value;
  const double scaled = std::trunc(static_cast<double>(value) * factor);
  if (scaled >= std::ldexp(1.0, std::numeric_limits<Integer>::digits)) {
    return std::numeric_limits<Integer>::max();
  }
  if (scaled < static_cast<double>(std::numeric_limits<Integer>::min())) {
    return std::numeric_limits<Integer>::min();
  }
  return static_cast<Integer>(scaled);
}

template <typename Integer>
Integer DefineInteger(const Reduction& r, const std::vector<Integer>& inputs) {
  Integer result = DefineScaled(inputs[0], r.prescale);
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    const Integer x = DefineScaled(inputs[i], r.prescale);
    const auto a = static_cast<std::uint64_t>(result);
    const auto b = static_cast<std::uint64_t>(x);
    switch (r.op) {
      case ReduceOp::kMin:
        result = std::min(result, x);
        break;
      case ReduceOp::kMax:
        result = std::max(result, x);
        break;
      case ReduceOp::kProduct:
        result = static_cast<Integer>(a * b);
        break;
      default:
        result = static_cast<Integer>(a + b);
    }
  }
  using Widest = std::conditional_t<std::is_signed_v<Integer>, std::int64_t, std::uint64_t>;
  if (r.op == ReduceOp::kAverage) {
    result = static_cast<Integer>(static_cast<Widest>(result) / static_cast<Widest>(r.divisor));
  }
  return DefineScaled(result, r.postscale);
}

template <typename T>
T ElementAs(const Bytes& bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

template <typename T, typename Define>
Bytes DefineAll(const std::vector<Bytes>& inputs, Define define) {
  Bytes expected(inputs[0].size());
  std::vector<T> elements;
  for (std::size_t i = 0; i < expected.size() / sizeof(T); ++i) {
    elements.clear();
    for (const Bytes& input : inputs) elements.push_back(ElementAs<T>(input, i));
    StoreAs<T>(define(elements), &expected, i);
  }
  return expected;
}

template <typename T>
Bytes DefineIntegers(const Reduction& r, const std::vector<Bytes>& inputs) {
  return DefineAll<T>(inputs, [&r](const std::vector<T>& x) { return DefineInteger<T>(r, x); });
}
template <typename T>
Bytes DefineFloats(const Reduction& r, const std::vector<Bytes>& inputs) {
  return DefineAll<T>(inputs, [&r](const std::vector<T>& x) { return DefineFloat<T>(r, x); });
}
Bytes DefineHalves(const Reduction& r, const std::vector<Bytes>& inputs,
                   float (*widen)(std::uint16_t), std::uint16_t (*narrow)(float)) {
  return DefineAll<std::uint16_t>(inputs, [&](const std::vector<std::uint16_t>& halves) {
    std::vector<float> floats;
    for (std::uint16_t half : halves) floats.push_back(widen(half));
    return narrow(DefineFloat<float>(r, floats));
  });
}

template <typename Float>
Bytes DefineComplex(const Reduction& r, const std::vector<Bytes>& inputs) {
  using Complex = std::array<Float, 2>;  // real, imaginary
  if (r.op != ReduceOp::kProduct) return DefineFloats<Float>(r, inputs);
  return DefineAll<Complex>(inputs, [&r](const std::vector<Complex>& x) {
    const auto prescale = static_cast<Float>(r.prescale);
    const auto postscale = static_cast<Float>(r.postscale);
    Complex result = {x[0][0] * prescale, x[0][1] * prescale};
    for (std::size_t i = 1; i < x.size(); ++i) {
      const Complex y = {x[i][0] * prescale, x[i][1] * prescale};
      result = {result[0] * y[0] - result[1] * y[1], result[0] * y[1] + result[1] * y[0]};
    }
    return Complex{Canonical(result[0] * postscale), Canonical(result[1] * postscale)};
  });
}

Bytes Define(const Reduction& r, const std::vector<Bytes>& inputs) {
  const bool factors =
      r.prescale != 1.0 || r.postscale != 1.0 || (r.op == ReduceOp::kAverage && r.divisor != 1);
  if (inputs.size() == 1 && !factors) return inputs[0];
  switch (r.dtype) {
    case DataType::kUInt8:
      return DefineIntegers<std::uint8_t>(r, inputs);
    case DataType::kInt8:
      return DefineIntegers<std::int8_t>(r, inputs);
    case DataType::kUInt16:
      return DefineIntegers<std::uint16_t>(r, inputs);
    case DataType::kInt16:
      return DefineIntegers<std::int16_t>(r, inputs);
    case DataType::kUInt32:
      return DefineIntegers<std::uint32_t>(r, inputs);
    case DataType::kUInt64:
      return DefineIntegers<std::uint64_t>(r, inputs);
    case DataType::kComplex64:
      return DefineComplex<float>(r, inputs);
    case DataType::kComplex128:
      return DefineComplex<double>(r, inputs);
    case DataType::kInt32:
      return DefineIntegers<std::int32_t>(r, inputs);
    case DataType::kInt64:
      return DefineIntegers<std::int64_t>(r, inputs);
    case DataType::kFloat16:
      return DefineHalves(r, inputs, HalfToFloat, FloatToHalf);
    case DataType::kBFloat16:
      return DefineHalves(r, inputs, BFloat16ToFloat, FloatToBFloat16);
    case DataType::kFloat32:
      return DefineFloats<float>(r, inputs);
    default:
      return DefineFloats<double>(r, inputs);
  }
}

bool IsFloat(DataType dtype) {
  return dtype == DataType::kFloat16 || dtype == DataType::kBFloat16 ||
         dtype == DataType::kFloat32 || dtype == DataType::kFloat64 || Info(dtype).is_complex;
}

// Three quarters ordinary numbers, one quarter any bits at all (NaN, infinities, subnormals).
Bytes MixedBuffer(DataType dtype, std::size_t elements, unsigned seed) {
  std::mt19937 random(seed);
  const std::size_t size = Info(dtype).size;
  Bytes bytes = MakeBuffer(dtype, elements, [&random](std::size_t) {
    return static_cast<std::int64_t>(random() % 201) - 100;
  });
  for (std::size_t i = 0; i < elements; ++i) {
    if (IsFloat(dtype) && random() % 4 != 0) continue;
    for (std::size_t b = 0; b < size; ++b) {
      bytes[i * size + b] = static_cast<unsigned char>(random());
    }
  }
  return bytes;
}

std::vector<Bytes> MixedBuffers(DataType dtype, std::size_t count) {
  std::vector<Bytes> buffers;
  for (std::size_t i = 0; i < count; ++i) {
    buffers.push_back(MixedBuffer(dtype, kMostElements, static_cast<unsigned>(i + 1)));
  }
  return buffers;
}

std::vector<DataType> ReducibleTypes() {
  std::vector<DataType> types;
  for (const DataTypeInfo& info : DataTypes()) {
    if (info.reducible) types.push_back(info.type);
  }
  return types;
}

class HostReduce : public testing::TestWithParam<DataType> {
 protected:
  // Reduces the first `elements` of the inputs from buffers that start at `shift` bytes past an
  // aligned address, and checks that nothing is written beyond the output.
  static Bytes Run(InstructionSet set, const Reduction& r, const std::vector<Bytes>& inputs,
                   std::size_t elements, std::size_t shift) {
    const std::size_t bytes = elements * Info(r.dtype).size;
    std::vector<Bytes> shifted;
    std::vector<const void*> pointers;
    for (const Bytes& input : inputs) {
      Bytes copy(bytes + shift);
      std::copy_n(input.begin(), bytes, copy.begin() + static_cast<std::ptrdiff_t>(shift));
      shifted.push_back(std::move(copy));
      pointers.push_back(shifted.back().data() + shift);
    }
    Bytes out(bytes + shift + 64, 0xa5);
    ReduceWith(set, r, pointers, elements, out.data() + shift);
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (i >= shift && i < shift + bytes) continue;
      EXPECT_EQ(out[i], 0xa5) << "written outside, at byte " << i << " of " << bytes;
    }
    return Bytes(out.begin() + static_cast<std::ptrdiff_t>(shift),
                 out.begin() + static_cast<std::ptrdiff_t>(shift + bytes));
  }
};

TEST_P(HostReduce, EveryOpSizeAndInstructionSet_GivesTheDefinitionsBits) {
  for (std::size_t count : {1U, 2U, 3U, 4U, 5U, 9U}) {
    const std::vector<Bytes> inputs = MixedBuffers(GetParam(), count);
    for (const Arithmetic& arithmetic : kArithmetics) {
      if (!CanReduce(GetParam(), arithmetic.op)) continue;
      const Reduction r = MakeReduction(GetParam(), arithmetic);
      const Bytes all = Define(r, inputs);
      for (InstructionSet set : SupportedInstructionSets()) {
        for (std::size_t elements : kSizes) {
          const auto bytes = static_cast<std::ptrdiff_t>(elements * Info(r.dtype).size);
          const Bytes expected(all.begin(), all.begin() + bytes);
          const Bytes actual = Run(set, r, inputs, elements, elements % 3);
          ASSERT_EQ(FirstDifference(r.dtype, actual, expected), "")
              << InstructionSetName(set) << " " << Info(r.op).name << " of " << count << " inputs, "
              << r.prescale << " " << r.postscale << " " << r.divisor;
        }
      }
    }
  }
}

TEST_P(HostReduce, OutputIsAnyOfTheInputs_GivesTheSameBits) {
  for (std::size_t count : {1U, 2U, 4U, 6U}) {
    const std::vector<Bytes> inputs = MixedBuffers(GetParam(), count);
    for (const Arithmetic& arithmetic : kArithmetics) {
      if (!CanReduce(GetParam(), arithmetic.op)) continue;
      const Reduction r = MakeReduction(GetParam(), arithmetic);
      const Bytes expected = Define(r, inputs);
      for (std::size_t in_place = 0; in_place < count; ++in_place) {
        std::vector<Bytes> buffers = inputs;
        std::vector<const void*> pointers;
        for (const Bytes& buffer : buffers) pointers.push_back(buffer.data());
        Reduce(r, pointers, kMostElements, buffers[in_place].data());
        ASSERT_EQ(FirstDifference(r.dtype, buffers[in_place], expected), "")
            << Info(r.op).name << " into input " << in_place << " of " << count;
        for (std::size_t other = 0; other < count; ++other) {
          ASSERT_TRUE(other == in_place || buffers[other] == inputs[other]);
        }
      }
    }
  }
}

std::string TypeName(const testing::TestParamInfo<DataType>& info) {
  return std::string(Info(info.param).name);
}
INSTANTIATE_TEST_SUITE_P(Types, HostReduce, testing::ValuesIn(ReducibleTypes()), TypeName);

// One element, all instruction sets, which must agree.
template <typename T>
T ReduceOne(DataType dtype, const Arithmetic& arithmetic, const std::vector<T>& inputs) {
  std::vector<const void*> pointers;
  for (const T& input : inputs) pointers.push_back(&input);
  std::vector<T> results;
  for (InstructionSet set : SupportedInstructionSets()) {
    T out{};
    ReduceWith(set, MakeReduction(dtype, arithmetic), pointers, 1, &out);
    EXPECT_TRUE(results.empty() || std::memcmp(&out, results.data(), sizeof out) == 0);
    results.push_back(out);
  }
  return results[0];
}

constexpr Arithmetic kSum{ReduceOp::kSum, 1, 1, 1};
constexpr Arithmetic kMin{ReduceOp::kMin, 1, 1, 1};
constexpr Arithmetic kMax{ReduceOp::kMax, 1, 1, 1};
constexpr Arithmetic kProduct{ReduceOp::kProduct, 1, 1, 1};
constexpr Arithmetic AverageOf(int divisor) { return {ReduceOp::kAverage, 1, 1, divisor}; }
constexpr Arithmetic ScaledBy(double factor) { return {ReduceOp::kSum, 1, factor, 1}; }

constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kInt64Min = std::numeric_limits<std::int64_t>::min();

TEST(HostReduceIntegers, SumBeyondTheType_WrapsAround) {
  EXPECT_EQ((ReduceOne<std::uint8_t>(DataType::kUInt8, kSum, {200, 100})), 44);
  EXPECT_EQ((ReduceOne<std::int8_t>(DataType::kInt8, kSum, {100, 100})), -56);
  EXPECT_EQ((ReduceOne<std::int64_t>(DataType::kInt64, kSum, {kInt64Max, 1})), kInt64Min);
  EXPECT_EQ((ReduceOne<std::int64_t>(DataType::kInt64, kProduct, {kInt64Min, -1})), kInt64Min);
}

TEST(HostReduceIntegers, MinAndMax_HonourTheSign) {
  EXPECT_EQ((ReduceOne<std::int8_t>(DataType::kInt8, kMin, {1, -1})), -1);
  EXPECT_EQ((ReduceOne<std::uint8_t>(DataType::kUInt8, kMax, {1, 255})), 255);
  EXPECT_EQ((ReduceOne<std::int64_t>(DataType::kInt64, kMax, {kInt64Min, kInt64Max})), kInt64Max);
}

TEST(HostReduceIntegers, Average_TruncatesTowardZeroExactly) {
  EXPECT_EQ((ReduceOne<std::int32_t>(DataType::kInt32, AverageOf(2), {-4, 1})), -1);
  EXPECT_EQ((ReduceOne<std::int32_t>(DataType::kInt32, AverageOf(2), {4, 1})), 2);
  EXPECT_EQ((ReduceOne<std::int8_t>(DataType::kInt8, AverageOf(200), {-127})), 0);
  // 2^53 + 1 and more have no double.
  constexpr std::int64_t kOdd = (std::int64_t{1} << 60) + 1;
  EXPECT_EQ((ReduceOne<std::int64_t>(DataType::kInt64, AverageOf(3), {kOdd, kOdd, kOdd})), kOdd);
  EXPECT_EQ((ReduceOne<std::int64_t>(DataType::kInt64, AverageOf(2), {kInt64Min, 0})),
            kInt64Min / 2);
}

TEST(HostReduceIntegers, UnsignedAbove2To63_AreNotNegative) {
  constexpr std::uint64_t kLarge = 0xfffffffffffffff0U;
  EXPECT_EQ((ReduceOne<std::uint64_t>(DataType::kUInt64, AverageOf(2), {kLarge, 0})), kLarge / 2);
  EXPECT_EQ((ReduceOne<std::uint64_t>(DataType::kUInt64, kMax, {1, kLarge})), kLarge);
  EXPECT_EQ((ReduceOne<std::uint64_t>(DataType::kUInt64, ScaledBy(2.0), {kLarge, 0})), ~0ULL);
  EXPECT_EQ((ReduceOne<std::uint32_t>(DataType::kUInt32, kMin, {0x80000000U, 1})), 1U);
  EXPECT_EQ((ReduceOne<std::uint32_t>(DataType::kUInt32, AverageOf(2), {0xfffffff0U, 0})),
            0x7ffffff8U);
  EXPECT_EQ((ReduceOne<std::uint16_t>(DataType::kUInt16, kMax, {0x8000U, 1})), 0x8000U);
}

TEST(HostReduceComplex, Products_AreThoseOfComplexNumbers) {
  using Complex = std::array<double, 2>;
  // (1 + 2i)(3 - i)(2i) = -10 + 10i.
  const std::vector<Complex> inputs = {{1, 2}, {3, -1}, {0, 2}};
  EXPECT_EQ(ReduceOne(DataType::kComplex128, kProduct, inputs), (Complex{-10, 10}));
  EXPECT_EQ(ReduceOne(DataType::kComplex128, kSum, inputs), (Complex{4, 3}));
  EXPECT_EQ(ReduceOne(DataType::kComplex128, AverageOf(2), inputs), (Complex{2, 1.5}));
}

TEST(HostReduceIntegers, Factors_TruncateAndSaturate) {
  EXPECT_EQ((ReduceOne<std::int32_t>(DataType::kInt32, ScaledBy(0.5), {-3, 0})), -1);
  EXPECT_EQ((ReduceOne<std::uint8_t>(DataType::kUInt8, ScaledBy(-1.0), {3, 0})), 0);
  EXPECT_EQ((ReduceOne<std::int8_t>(DataType::kInt8, ScaledBy(1e300), {3, 0})), 127);
  EXPECT_EQ((ReduceOne<std::int64_t>(DataType::kInt64, ScaledBy(2.0), {kInt64Max, 0})), kInt64Max);
  EXPECT_EQ((ReduceOne<std::int64_t>(DataType::kInt64, ScaledBy(2.0), {kInt64Min, 0})), kInt64Min);
  // Each input by itself: 3 * 0.5 is 1, three times.
  const Arithmetic halves{ReduceOp::kSum, 0.5, 1, 1};
  EXPECT_EQ((ReduceOne<std::int32_t>(DataType::kInt32, halves, {3, 3, 3})), 3);
}

TEST(HostReduceFloats, HalvesAreRoundedOnce) {
  // Rounded after every addition, both sums would stay where they begin.
  const std::vector<std::uint16_t> halves = {FloatToHalf(2048), FloatToHalf(1), FloatToHalf(1)};
  EXPECT_EQ(HalfToFloat(ReduceOne(DataType::kFloat16, kSum, halves)), 2050.0F);
  const std::vector<std::uint16_t> brains = {FloatToBFloat16(256), FloatToBFloat16(1),
                                             FloatToBFloat16(1)};
  EXPECT_EQ(BFloat16ToFloat(ReduceOne(DataType::kBFloat16, kSum, brains)), 258.0F);
  // Also over more inputs than are read at once, and where the sum alone would be infinite.
  std::vector<std::uint16_t> many(20, FloatToHalf(1));
  many[0] = FloatToHalf(2048);
  EXPECT_EQ(HalfToFloat(ReduceOne(DataType::kFloat16, kSum, many)), 2068.0F);
  const std::vector<std::uint16_t> large(8, FloatToHalf(60000));
  EXPECT_EQ(HalfToFloat(ReduceOne(DataType::kFloat16, AverageOf(8), large)), 60000.0F);
}

TEST(HostReduceFloats, SubnormalHalves_AreKept) {
  EXPECT_EQ((ReduceOne<std::uint16_t>(DataType::kFloat16, kSum, {1, 2})), 3);
  EXPECT_EQ((ReduceOne<std::uint16_t>(DataType::kBFloat16, kSum, {1, 2})), 3);
}

TEST(HostReduceFloats, AnyNan_MakesTheCanonicalNan) {
  const float odd_nan = half_internal::BitCast<float>(0xffc12345U);
  for (const Arithmetic& arithmetic : {kSum, kMin, kMax, kProduct, AverageOf(3)}) {
    for (std::size_t where = 0; where < 3; ++where) {
      std::vector<float> inputs = {1, 2, 3};
      inputs[where] = odd_nan;
      const float result = ReduceOne(DataType::kFloat32, arithmetic, inputs);
      EXPECT_EQ(half_internal::BitCast<std::uint32_t>(result), 0x7fc00000U);
    }
  }
  const float inf = std::numeric_limits<float>::infinity();
  const float difference = ReduceOne<float>(DataType::kFloat32, kSum, {inf, -inf});
  EXPECT_EQ(half_internal::BitCast<std::uint32_t>(difference), 0x7fc00000U);
  EXPECT_EQ((ReduceOne<std::uint16_t>(DataType::kFloat16, kMax, {0x3c00, 0xfd01})), 0x7e00);
  EXPECT_EQ((ReduceOne<std::uint16_t>(DataType::kBFloat16, kMax, {0x3f80, 0xffff})), 0x7fc0);
}

TEST(HostReduceFloats, MinAndMaxOfZeros_GiveTheFirst) {
  EXPECT_TRUE(std::signbit(ReduceOne<double>(DataType::kFloat64, kMax, {-0.0, 0.0})));
  EXPECT_FALSE(std::signbit(ReduceOne<double>(DataType::kFloat64, kMin, {0.0, -0.0})));
}

TEST(HostReduceFloats, OneInputWithoutFactors_KeepsEvenASignallingNan) {
  constexpr std::uint32_t kSignalling = 0x7f800001U;
  const std::vector<std::uint32_t> inputs = {kSignalling};
  EXPECT_EQ(ReduceOne(DataType::kFloat32, AverageOf(1), inputs), kSignalling);
}

TEST(HostReduceFloats, AverageOverThree_IsADivision) {
  // A multiplication by the rounded third gives another last bit.
  ASSERT_NE(5.0F * (1.0F / 3.0F), 5.0F / 3.0F);
  EXPECT_EQ((ReduceOne<float>(DataType::kFloat32, AverageOf(3), {1, 2, 2})), 5.0F / 3.0F);
}

TEST(HostReduceFloats, ScaledInputs_AreNotFusedIntoTheSum) {
  // (1 + 2^-12)^2 needs 25 bits: the product is rounded before it is added.
  const float x = 1.0F + 0x1p-12F;
  const Arithmetic arithmetic{ReduceOp::kSum, static_cast<double>(x), 1, 1};
  const volatile float product = x * x;
  const float first = -1.0F;
  EXPECT_EQ(ReduceOne<float>(DataType::kFloat32, arithmetic, {first, x}), first * x + product);
}

TEST(InstructionSets, PortableIsAlwaysThere_BestLast) {
  const Table<InstructionSet> sets = SupportedInstructionSets();
  ASSERT_FALSE(sets.empty());
  EXPECT_EQ(sets.front(), InstructionSet::kScalar);
  EXPECT_TRUE(std::is_sorted(sets.begin(), sets.end()));
  EXPECT_EQ(InstructionSetName(InstructionSet::kScalar), "scalar");
  EXPECT_EQ(InstructionSetName(InstructionSet::kAvx2), "avx2");
}

TEST(HostReduceDeathTest, NothingOrNoArithmetic_IsABrokenInvariant) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::vector<const void*> none;
  EXPECT_DEATH(Reduce(Reduction{}, none, 0, nullptr), "a reduction of nothing");
  const bool value = true;
  bool out = false;
  const std::vector<const void*> one = {&value};
  Reduction reduction;
  reduction.dtype = DataType::kBool;
  EXPECT_DEATH(Reduce(reduction, one, 1, &out), "without arithmetic");
}

}  // namespace
}  // namespace horovod_tf
