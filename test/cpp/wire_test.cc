#include "horovod_tf/common/protocol/wire.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace horovod_tf {
namespace {

using namespace std::string_literals;  // "..."s keeps zero bytes

template <typename Write>
std::string Written(Write write) {
  WireWriter writer;
  write(&writer);
  return writer.Take();
}

std::uint64_t BitsOf(double value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

std::string VarintBytes(std::uint64_t value) {
  return Written([&](WireWriter* writer) { writer->Varint(value); });
}

TEST(Wire, FixedIntegers_AreLowestByteFirst) {
  const std::string bytes = Written([](WireWriter* writer) {
    writer->U8(0xA1);
    writer->U16(0xB2C3);
    writer->U32(0xD4E5F607);
  });
  EXPECT_EQ(bytes, "\xA1\xC3\xB2\x07\xF6\xE5\xD4"s);
  WireReader reader(bytes);
  EXPECT_EQ(reader.U8(), 0xA1);
  EXPECT_EQ(reader.U16(), 0xB2C3);
  EXPECT_EQ(reader.U32(), 0xD4E5F607u);
  EXPECT_TRUE(reader.AtEnd());
  EXPECT_TRUE(reader.status().ok());
}

TEST(Wire, Varint_RoundTripsAtEveryLengthBoundary) {
  for (unsigned bits = 0; bits <= 64; ++bits) {
    const std::uint64_t largest = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
    for (const std::uint64_t value : {largest, largest + 1}) {
      const std::string bytes = VarintBytes(value);
      WireReader reader(bytes);
      EXPECT_EQ(reader.Varint(), value);
      EXPECT_TRUE(reader.ok() && reader.AtEnd()) << value;
    }
    EXPECT_EQ(VarintBytes(largest).size(), std::max(1u, (bits + 6) / 7)) << largest;
  }
}

TEST(Wire, SignedVarint_KeepsSmallNumbersOfEitherSignShort) {
  const std::vector<std::pair<std::int64_t, std::string>> cases = {
      {0, "\x00"s}, {-1, "\x01"s}, {1, "\x02"s}, {-2, "\x03"s}, {63, "\x7E"s}, {-64, "\x7F"s}};
  for (const auto& [value, expected] : cases) {
    const std::string bytes = Written([v = value](WireWriter* writer) { writer->SignedVarint(v); });
    EXPECT_EQ(bytes, expected);
    EXPECT_EQ(WireReader(bytes).SignedVarint(), value);
  }
  for (const std::int64_t value :
       {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}) {
    const std::string bytes = Written([&](WireWriter* writer) { writer->SignedVarint(value); });
    EXPECT_EQ(WireReader(bytes).SignedVarint(), value);
  }
}

TEST(Wire, Double_KeepsEveryBit) {
  for (const double value :
       {0.0, -0.0, 0.1, -3.5e300, std::numeric_limits<double>::denorm_min(),
        std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    const std::string bytes = Written([&](WireWriter* writer) { writer->F64(value); });
    ASSERT_EQ(bytes.size(), 8u);
    EXPECT_EQ(BitsOf(WireReader(bytes).F64()), BitsOf(value)) << value;
  }
  EXPECT_EQ(Written([](WireWriter* writer) { writer->F64(1.0); }), "\0\0\0\0\0\0\xF0\x3F"s);
}

TEST(Wire, String_MayHoldAnyBytes) {
  const std::string text = "a\0b\xFF"s;
  const std::string bytes = Written([&](WireWriter* writer) { writer->String(text); });
  EXPECT_EQ(bytes, "\x04"s + text);
  WireReader reader(bytes);
  EXPECT_EQ(reader.String(), text);
  EXPECT_TRUE(reader.AtEnd());
}

TEST(Wire, Varint_OtherEncodingsOfANumber_AreRefused) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\x80\x00"s, "needless"},                              // 0 in two bytes
      {"\xFF\x80\x00"s, "needless"},                          // 127 in three
      {std::string(9, '\xFF') + "\x02"s, "more than 64"},     // bit 64
      {std::string(10, '\xFF') + "\x01"s, "without an end"},  // eleven bytes
      {std::string(3, '\x80'), "truncated"}};
  for (const auto& [bytes, expected] : cases) {
    WireReader reader(bytes);
    EXPECT_EQ(reader.Varint(), 0u);
    EXPECT_EQ(reader.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(reader.status().message().find(expected), std::string::npos) << reader.status();
  }
}

TEST(Wire, Reads_PastTheEnd_FailWithTheOffset) {
  const auto fails_at_3 = [](auto read) {
    WireReader reader("\x01\x02\x03");
    EXPECT_EQ(reader.Raw(3).size(), 3u);
    read(&reader);
    EXPECT_NE(reader.status().message().find("at byte 3"), std::string::npos) << reader.status();
  };
  fails_at_3([](WireReader* reader) { EXPECT_EQ(reader->U8(), 0); });
  fails_at_3([](WireReader* reader) { EXPECT_EQ(reader->U16(), 0); });
  fails_at_3([](WireReader* reader) { EXPECT_EQ(reader->U32(), 0u); });
  fails_at_3([](WireReader* reader) { EXPECT_EQ(reader->F64(), 0.0); });
  fails_at_3([](WireReader* reader) { EXPECT_EQ(reader->Varint(), 0u); });
  fails_at_3([](WireReader* reader) { EXPECT_EQ(reader->SignedVarint(), 0); });
  fails_at_3([](WireReader* reader) { EXPECT_EQ(reader->String(), ""); });
  fails_at_3([](WireReader* reader) { EXPECT_EQ(reader->Raw(1), ""); });
}

TEST(Wire, Reads_OfPartOfAValue_ConsumeNothing) {
  WireReader reader("\x01\x02\x03");
  EXPECT_EQ(reader.U32(), 0u);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.remaining(), 3u);
}

TEST(Wire, Failure_IsStickyAndKeepsTheFirst) {
  WireReader reader("\x07\x08");
  EXPECT_EQ(reader.U8(), 7);
  reader.Fail("first");
  reader.Fail("second");
  EXPECT_EQ(reader.U8(), 0) << "a byte is there, but the reader has failed";
  EXPECT_EQ(reader.Varint(), 0u);
  EXPECT_EQ(reader.String(), "");
  EXPECT_EQ(reader.status().message(), "first at byte 1");
}

TEST(Wire, Count_ThatCannotBeThere_IsRefused) {
  const std::string exact = VarintBytes(3) + std::string(6, 'x');
  WireReader fits(exact);
  EXPECT_EQ(fits.Count(2), 3u);
  EXPECT_TRUE(fits.ok());

  WireReader one_byte_short(std::string_view(exact).substr(0, exact.size() - 1));
  EXPECT_EQ(one_byte_short.Count(2), 0u);
  EXPECT_FALSE(one_byte_short.ok());

  for (const std::uint64_t count : {std::uint64_t{1} << 60, ~std::uint64_t{0}}) {
    const std::string hostile = VarintBytes(count) + "xyz";
    WireReader reader(hostile);
    EXPECT_EQ(reader.Count(16), 0u);
    EXPECT_NE(reader.status().message().find(std::to_string(count)), std::string::npos);
    WireReader as_string(hostile);
    EXPECT_EQ(as_string.String(), "");
    EXPECT_FALSE(as_string.ok());
  }
}

TEST(Wire, EmptyInput_IsAtItsEndAndGivesNothing) {
  WireReader reader("");
  EXPECT_TRUE(reader.AtEnd());
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.Raw(0), "");
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.U8(), 0);
  EXPECT_FALSE(reader.ok());
}

}  // namespace
}  // namespace horovod_tf
