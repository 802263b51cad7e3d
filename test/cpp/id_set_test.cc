#include "horovod_tf/common/protocol/id_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

namespace horovod_tf {
namespace {

using namespace std::string_literals;  // "..."s keeps zero bytes
using Ids = std::vector<TensorId>;

std::string Encoded(const Ids& ids) {
  WireWriter writer;
  WriteIdSet(ids, &writer);
  return writer.Take();
}

// What `bytes` say, or the text of the failure.
struct Decoded {
  Ids ids;
  std::string error;
};
Decoded Decode(std::string_view bytes, std::size_t max_ids = kMaxTensorIds) {
  WireReader reader(bytes);
  Decoded decoded;
  decoded.ids = ReadIdSet(max_ids, &reader);
  if (reader.ok() && !reader.AtEnd()) reader.Fail("bytes left over");
  decoded.error = reader.status().message();
  return decoded;
}

std::string Varints(const std::vector<std::uint64_t>& values) {
  WireWriter writer;
  for (std::uint64_t value : values) writer.Varint(value);
  return writer.Take();
}

Ids Range(TensorId first, TensorId end, TensorId step = 1) {
  Ids ids;
  for (TensorId id = first; id < end; id += step) ids.push_back(id);
  return ids;
}

void ExpectRoundTrip(const Ids& ids) {
  const Decoded decoded = Decode(Encoded(ids));
  EXPECT_EQ(decoded.error, "");
  EXPECT_EQ(decoded.ids, ids);
}

void ExpectRefused(const std::string& bytes, const std::string& text,
                   std::size_t max_ids = kMaxTensorIds) {
  const Decoded decoded = Decode(bytes, max_ids);
  EXPECT_NE(decoded.error.find(text), std::string::npos) << "'" << decoded.error << "'";
  EXPECT_TRUE(decoded.ids.empty());
}

TEST(IdSet, Empty_IsOneByte) {
  EXPECT_EQ(Encoded({}), "\0"s);
  ExpectRoundTrip({});
}

TEST(IdSet, OneRun_IsAFewBytesHoweverLong) {
  EXPECT_EQ(Encoded(Range(0, 1000)), Varints({1 << 1, 0, 999}));
  EXPECT_EQ(Encoded(Range(300, 1300)).size(), 5u);
  ExpectRoundTrip(Range(0, 1000));
  ExpectRoundTrip(Range(300, 1300));
}

TEST(IdSet, TwoDistantRuns_AreTwoRuns) {
  Ids ids = Range(5, 105);
  const Ids more = Range(10000, 10050);
  ids.insert(ids.end(), more.begin(), more.end());
  EXPECT_EQ(Encoded(ids), Varints({2 << 1, 5, 99, 10000 - 105 - 1, 49}));
  ExpectRoundTrip(ids);
}

TEST(IdSet, EverySecondId_IsABitmap) {
  const Ids ids = Range(9, 9 + 800, 2);
  EXPECT_EQ(Encoded(ids), Varints({100 << 1 | 1, 9}) + std::string(100, '\x55'));
  ExpectRoundTrip(ids);
}

TEST(IdSet, EverySubsetOfASmallUniverse_RoundTrips) {
  for (const TensorId base : {TensorId{0}, TensorId{123}, kMaxTensorIds - 12}) {
    for (unsigned subset = 0; subset < 1u << 12; ++subset) {
      Ids ids;
      for (TensorId bit = 0; bit < 12; ++bit) {
        if ((subset >> bit & 1) != 0) ids.push_back(base + bit);
      }
      const Decoded decoded = Decode(Encoded(ids));
      ASSERT_EQ(decoded.error, "") << base << " + " << subset;
      ASSERT_EQ(decoded.ids, ids) << base << " + " << subset;
    }
  }
}

TEST(IdSet, TheSmallerForm_IsTakenAtEveryDensity) {
  std::mt19937 random(20240607);
  for (int percent = 1; percent <= 99; percent += 2) {
    Ids ids;
    for (TensorId id = 200; id < 2200; ++id) {
      if (static_cast<int>(random() % 100) < percent) ids.push_back(id);
    }
    if (ids.empty()) continue;
    // The size of each form, counted here in another way than the encoder does.
    std::size_t runs = 0;
    std::size_t run_bytes = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (i > 0 && ids[i] == ids[i - 1] + 1) continue;
      std::size_t end = i;
      while (end + 1 < ids.size() && ids[end + 1] == ids[end] + 1) ++end;
      const std::uint64_t gap = i == 0 ? ids[0] : ids[i] - ids[i - 1] - 2;
      run_bytes += Varints({gap, end - i}).size();
      ++runs;
    }
    run_bytes += Varints({runs << 1}).size();
    const std::size_t width = (ids.back() - ids.front()) / 8 + 1;
    const std::size_t bitmap_bytes = Varints({width << 1 | 1, ids.front()}).size() + width;
    EXPECT_EQ(Encoded(ids).size(), std::min(run_bytes, bitmap_bytes)) << percent;
    ExpectRoundTrip(ids);
  }
}

TEST(IdSet, TheLargerForm_IsRefused) {
  ExpectRefused(Varints({2 << 1 | 1, 40}) + "\xFF\xFF"s, "larger of its two forms");
  std::vector<std::uint64_t> runs = {50 << 1, 0};
  for (int i = 0; i < 50; ++i) {
    if (i > 0) runs.push_back(0);
    runs.push_back(0);
  }
  ExpectRefused(Varints(runs), "larger of its two forms");
}

TEST(IdSet, ABitmapThatIsNotTight_IsRefused) {
  const std::string head = Varints({5 << 1 | 1, 16});
  EXPECT_EQ(Decode(head + "\x55\x55\x55\x55\x05").error, "") << "a good one, to compare with";
  ExpectRefused(head + "\x54\x55\x55\x55\x05"s, "longer than needed");
  ExpectRefused(head + "\x55\x55\x55\x55\x00"s, "longer than needed");
}

TEST(IdSet, IdsAtTheLimit_AreTakenAndPastItRefused) {
  const TensorId last = kMaxTensorIds - 1;
  ExpectRoundTrip({last});
  ExpectRoundTrip(Range(last - 100, last + 1));
  ExpectRoundTrip(Range(last - 100, last + 1, 2));
  ExpectRefused(Varints({1 << 1, kMaxTensorIds, 0}), "tensor id 16777216");
  ExpectRefused(Varints({1 << 1, last, 1}), "tensor id 16777216");
  ExpectRefused(Varints({2 << 1, 0, 0, last - 1, 0}), "tensor id 16777216");
  ExpectRefused(Varints({2 << 1 | 1, last - 8}) + "\x55\x05"s, "tensor id 16777217");
  ExpectRefused(Varints({2 << 1 | 1, kMaxTensorIds}) + "\x55\x55"s, "tensor id");
}

TEST(IdSet, NumbersThatWouldWrap_AreRefused) {
  const std::uint64_t huge = ~std::uint64_t{0};
  ExpectRefused(Varints({1 << 1, huge, 0}), "tensor id");
  ExpectRefused(Varints({1 << 1, 5, huge}), "tensor id");
  ExpectRefused(Varints({2 << 1, 5, 0, huge - 3, 0}), "tensor id");
  ExpectRefused(Varints({1 << 1 | 1, huge - 3}) + "\x01"s, "tensor id");
}

TEST(IdSet, MoreIdsThanAllowed_AreRefusedInBothForms) {
  const std::string runs = Encoded(Range(7, 107));
  EXPECT_EQ(Decode(runs, 100).ids.size(), 100u);
  ExpectRefused(runs, "at most 99", 99);
  const std::string bitmap = Encoded(Range(7, 207, 2));
  EXPECT_EQ(Decode(bitmap, 100).ids.size(), 100u);
  ExpectRefused(bitmap, "at most 99", 99);
  EXPECT_EQ(Decode(Encoded({}), 0).error, "");
  ExpectRefused(Encoded({3}), "at most 0", 0);
}

TEST(IdSet, CountsThatCannotBeThere_AreRefused) {
  for (const std::uint64_t count : {std::uint64_t{1} << 60, ~std::uint64_t{0} >> 1}) {
    ExpectRefused(Varints({count << 1, 1, 1, 1}), "truncated");
    ExpectRefused(Varints({count << 1 | 1, 1, 1, 1}), "truncated");
  }
  ExpectRefused("\x01"s, "truncated: a set of tensor ids in 0 bitmap bytes");
}

TEST(IdSet, EveryTruncation_Fails) {
  Ids runs = Range(1000, 1300);
  runs.push_back(70000);
  for (const Ids& ids : {runs, Range(300, 700, 2)}) {
    const std::string bytes = Encoded(ids);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_NE(Decode(bytes.substr(0, size)).error, "") << size;
    }
  }
}

TEST(IdSet, RandomBytes_FailOrAreTheOneEncodingOfWhatTheySay) {
  std::mt19937 random(77);
  int accepted = 0;
  for (int i = 0; i < 50000; ++i) {
    std::string bytes(random() % 8 + 1, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    bytes[0] = static_cast<char>(bytes[0] & 0x0F);  // else the count is nearly always too large
    WireReader reader(bytes);
    const Ids ids = ReadIdSet(100000, &reader);
    if (!reader.ok()) {
      EXPECT_TRUE(ids.empty());
      continue;
    }
    ++accepted;
    ASSERT_EQ(Encoded(ids), bytes.substr(0, bytes.size() - reader.remaining()));
  }
  EXPECT_GT(accepted, 1000);
}

}  // namespace
}  // namespace horovod_tf
