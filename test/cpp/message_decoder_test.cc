// What the decoder does with bytes that are wrong: truncated, changed, hostile, of another world.
// Whatever they are, it answers with a Status or with a message whose encoding they are.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <random>

#include "horovod_tf/common/protocol/message.h"
#include "horovod_tf/common/protocol/wire.h"

namespace horovod_tf {
namespace {

using namespace std::string_literals;  // "..."s keeps zero bytes

constexpr int kWorld = 3;
constexpr std::size_t kFrameBytes = 9;

Request MakeRequest(const std::string& name, CollectiveKind kind, const TensorShape& shape) {
  Request request;
  request.name = name;
  request.kind = kind;
  request.shape = shape;
  return request;
}

TensorDefinition Gather() {
  TensorDefinition definition;
  definition.common = MakeRequest("gather", CollectiveKind::kAllgather, {0, 4});
  definition.first_dims = {5, 0, 300};
  definition.devices = {2, 0, 1};
  return definition;
}

TensorDefinition Exchange() {
  TensorDefinition definition;
  definition.common = MakeRequest("exchange", CollectiveKind::kAlltoall, {0, 4});
  definition.splits = {{5, 0, 300}, {0, 0, 0}, {1, 2, 3}};
  return definition;
}

TensorDefinition Reduce() {
  TensorDefinition definition;
  definition.common = MakeRequest("reduce", CollectiveKind::kAllreduce, {7, 1000});
  definition.common.prescale = 0.25;
  return definition;
}

Announce FullAnnounce() {
  Announce announce;
  announce.applied = 300;
  for (TensorId id = 10; id < 90; ++id) announce.known.push_back(id);
  announce.known.push_back(5000);
  announce.requests = {MakeRequest("a", CollectiveKind::kAllreduce, {2, 3}),
                       MakeRequest("b", CollectiveKind::kBroadcast, {}),
                       MakeRequest("e", CollectiveKind::kAlltoall, {301, 2})};
  announce.requests[2].splits = {1, 0, 300};
  announce.requests[0].prescale = 0.5;
  announce.requests[1].root_rank = 2;
  announce.requests[1].device = 1;
  announce.withdrawn = {{"c", "no data", true}, {"d", "", false}};
  announce.shutdown = true;
  announce.shutdown_reason = "exit";
  return announce;
}

Report FullReport() {
  return {300, "allgather of 'a'", 70000, {{"b", 61000, {0, 2}}, {"c", 5, {}}}};
}

Log FullLog() {
  std::vector<TensorId> sparse;
  for (TensorId id = 40; id < 200; id += 2) sparse.push_back(id);
  return {77,
          {DefineRecord{8, Gather()}, DefineRecord{200, Reduce()}, ExecuteRecord{{1, 2, 3, 9}},
           ExecuteRecord{sparse}, ExecuteOnceRecord{Gather()}, ExecuteOnceRecord{Exchange()},
           ForgetRecord{{4, 6}}, ErrorRecord{{"x", "y"}, Status::FailedPrecondition("because")},
           ErrorRecord{{"z"}, Status::Cancelled("it is over"), {0, 2}},
           ShutdownRecord{1, Status::Unknown("over")}, JoinRecord{2}}};
}

// One of everything.
std::vector<Message> Corpus() {
  return {Hello{"1.0", "host-a", {{"K", "v"}, {"L", "w"}}},
          Welcome{Status::Ok(), {"a", "b", "a"}},
          Welcome{Status::FailedPrecondition("no"), {}},
          Announce(),
          FullAnnounce(),
          Inquiry(),
          Report(),
          FullReport(),
          Log(),
          FullLog()};
}

Status Decode(std::string_view bytes, Message* message, int world = kWorld) {
  std::uint32_t process_set = 0;
  return DecodeMessage(bytes, {world}, message, &process_set);
}

// Decodes bytes that may be anything, from memory of exactly their size so that a sanitizer sees an
// over-read. True if they were accepted, which they may be only as the encoding of what they say.
bool AcceptsConsistently(const std::string& bytes) {
  const std::vector<char> exact(bytes.begin(), bytes.end());
  Message message;
  std::uint32_t process_set = 0;
  const Status status =
      DecodeMessage({exact.data(), exact.size()}, {kWorld}, &message, &process_set);
  if (!status.ok()) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return false;
  }
  EXPECT_EQ(EncodeMessage(message, process_set), bytes);
  return true;
}

void ExpectRefused(const std::string& bytes, const std::string& text, int world = kWorld) {
  Message message;
  const Status status = Decode(bytes, &message, world);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
  EXPECT_NE(status.message().find(text), std::string::npos) << text << " not in: " << status;
}

// A message of type `type` with this payload and a frame that is right.
std::string Framed(int type, const std::string& payload) {
  WireWriter writer;
  writer.U16(kWireMagic);
  writer.U8(kWireVersion);
  writer.U8(static_cast<std::uint8_t>(type));
  writer.Varint(0);
  writer.U32(static_cast<std::uint32_t>(payload.size()));
  writer.Raw(payload);
  return writer.Take();
}
constexpr int kWelcomeType = 2;
constexpr int kAnnounceType = 3;
constexpr int kLogType = 4;

std::string Varint(std::uint64_t value) {
  WireWriter writer;
  writer.Varint(value);
  return writer.Take();
}

// A log of one record: `type`, `body`.
std::string OneRecord(int type, const std::string& body) {
  return Framed(kLogType, "\x00\x01"s + static_cast<char>(type) + body);
}

TEST(MessageDecoder, WholeCorpus_EncodesAgainToTheSameBytes) {
  for (const Message& message : Corpus()) {
    EXPECT_TRUE(AcceptsConsistently(EncodeMessage(message))) << MessageTypeName(message);
  }
}

TEST(MessageDecoder, EveryTruncationOfEveryMessage_IsAnError) {
  for (const Message& message : Corpus()) {
    const std::string bytes = EncodeMessage(message);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(AcceptsConsistently(bytes.substr(0, size))) << MessageTypeName(message) << size;
      if (size < kFrameBytes) continue;
      // And with a frame that says so, so that the payload's own checks are reached.
      std::string reframed = Framed(bytes[3], bytes.substr(kFrameBytes, size - kFrameBytes));
      EXPECT_FALSE(AcceptsConsistently(reframed)) << MessageTypeName(message) << size;
    }
  }
}

TEST(MessageDecoder, BitFlips_GiveAnErrorOrAnotherWholeMessage) {
  std::mt19937 random(10007);
  const std::vector<Message> corpus = Corpus();
  int accepted = 0;
  for (int i = 0; i < 10000; ++i) {
    std::string bytes = EncodeMessage(corpus[random() % corpus.size()]);
    for (std::size_t flips = random() % 3 + 1; flips > 0; --flips) {
      char& byte = bytes[random() % bytes.size()];
      byte = static_cast<char>(byte ^ 1 << random() % 8);
    }
    accepted += AcceptsConsistently(bytes) ? 1 : 0;
    ASSERT_FALSE(testing::Test::HasFailure()) << "flip " << i;
  }
  // Letters of names and the like: some survive, most do not.
  EXPECT_GT(accepted, 500);
  EXPECT_LT(accepted, 6000);
}

TEST(MessageDecoder, RandomPayloads_GiveAnErrorOrAWholeMessage) {
  std::mt19937 random(31337);
  for (int i = 0; i < 20000; ++i) {
    std::string payload(random() % 60, '\0');
    for (char& byte : payload) {
      // Small numbers are often plausible, so they get further in.
      byte = static_cast<char>(random() % 4 == 0 ? random() : random() % 8);
    }
    AcceptsConsistently(Framed(static_cast<int>(i % 4) + 1, payload));
    AcceptsConsistently(payload);
    ASSERT_FALSE(testing::Test::HasFailure()) << "payload " << i;
  }
}

TEST(MessageDecoder, TheFrame_MustBeRight) {
  const std::string good = EncodeMessage(FullAnnounce());
  const auto with = [&](std::size_t index, char byte) {
    std::string bytes = good;
    bytes[index] = byte;
    return bytes;
  };
  ExpectRefused("", "truncated");
  ExpectRefused(with(0, 'G'), "magic 18503 instead of 18518");
  ExpectRefused(with(2, 1), "wire version 1 where this library speaks 4");
  ExpectRefused(with(3, 0), "unknown message type 0; known are 1 to 6");
  ExpectRefused(with(3, 7), "unknown message type 7; known are 1 to 6");
  ExpectRefused(with(5, static_cast<char>(good[5] + 1)), "length");
  ExpectRefused(good + "x", "length");
  ExpectRefused(good.substr(0, 4) + Varint(1ull << 32) + good.substr(5), "process set 4294967296");
}

TEST(MessageDecoder, BytesAfterTheMessage_AreAnError) {
  for (const Message& message : Corpus()) {
    const std::string bytes = EncodeMessage(message);
    ExpectRefused(Framed(bytes[3], bytes.substr(kFrameBytes) + "xyz"), "3 bytes after the end");
  }
}

TEST(MessageDecoder, AnError_NamesMessageFieldAndOffset) {
  ExpectRefused(Framed(kAnnounceType, "\x00\x05"s), "Malformed Announce.known: truncated");
  ExpectRefused(Framed(kAnnounceType, "\x00\x05"s), "at byte 11");
  ExpectRefused(OneRecord(2, "\x02\x01"), "Malformed Log.records.Execute");
}

TEST(MessageDecoder, UnknownFlagsTypesAndCodes_AreNamed) {
  ExpectRefused(Framed(kAnnounceType, "\x08\x00\x00\x00"s), "flags 8, of which only 7 are known");
  ExpectRefused(OneRecord(0, "\0"s), "unknown record type 0; known are 1 to 7");
  ExpectRefused(OneRecord(8, "\0"s), "unknown record type 8");
  ExpectRefused(Framed(kWelcomeType, "\x06\x01x\x00"s), "unknown status code 6");
  ExpectRefused(Framed(kWelcomeType, Varint(1ull << 40)), "unknown status code 1099511627776");
}

TEST(MessageDecoder, HostileCounts_AreRefusedWithoutMemory) {
  struct Place {
    const char* what;
    int type;
    std::string before;  // the count
  };
  const std::string request = "\x00\x01\x03\x01w\x00\x07\x01\x00\x00"s;  // in an ExecuteOnce
  const std::vector<Place> places = {{"string", 1, ""},
                                     {"agreements", 1, "\x00\x00"s},
                                     {"hosts", kWelcomeType, "\x00"s},
                                     {"known", kAnnounceType, "\x00\x00"s},
                                     {"requests", kAnnounceType, "\x00\x00\x00"s},
                                     {"withdrawn", kAnnounceType, "\x04\x00\x00\x00"s},
                                     {"records", kLogType, "\x00"s},
                                     {"dimensions", kLogType, request},
                                     {"first dims", kLogType, request + '\0'},
                                     {"devices", kLogType, request + "\0\0"s},
                                     {"names", kLogType, "\x00\x01\x05"s}};
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  for (const Place& place : places) {
    SCOPED_TRACE(place.what);
    for (const std::uint64_t count : {1ull << 33, 1ull << 60, ~0ull}) {
      ExpectRefused(Framed(place.type, place.before + Varint(count)), "truncated");
    }
  }
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 << 10) << "KiB of resident memory grown";
}

TEST(MessageDecoder, IdsOfAllSetsTogether_AreLimited) {
  // Two runs of 600 ids, 5 bytes each.
  Log log{0, {}};
  for (TensorId first : {0u, 2000u}) {
    ExecuteRecord record;
    for (TensorId id = first; id < first + 600; ++id) record.ids.push_back(id);
    log.records.emplace_back(std::move(record));
  }
  const std::string bytes = EncodeMessage(log);
  Message message;
  std::uint32_t process_set = 0;
  EXPECT_TRUE(DecodeMessage(bytes, {kWorld, 1200}, &message, &process_set).ok());
  const Status status = DecodeMessage(bytes, {kWorld, 1199}, &message, &process_set);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("Execute"), std::string::npos) << status;
}

TEST(MessageDecoder, RequestsOfPeers_AreValidated) {
  Announce announce = FullAnnounce();
  announce.requests[1].root_rank = 9;
  ExpectRefused(EncodeMessage(announce), "'b': root rank 9");
  announce = FullAnnounce();
  announce.requests[0].shape = {1ll << 40, 1ll << 40};
  ExpectRefused(EncodeMessage(announce), "'a': shape");
  announce = FullAnnounce();
  announce.requests[0].shape = {-3};
  ExpectRefused(EncodeMessage(announce), "of more than 63 bits");
  announce = FullAnnounce();
  announce.requests[0].postscale = std::numeric_limits<double>::infinity();
  ExpectRefused(EncodeMessage(announce), "finite");
  announce = FullAnnounce();
  announce.requests[0].dtype = static_cast<DataType>(15);
  ExpectRefused(EncodeMessage(announce), "unknown data type 15");
  announce = FullAnnounce();
  announce.requests[0].name.clear();
  ExpectRefused(EncodeMessage(announce), "needs a name");
  announce = FullAnnounce();
  announce.requests[0].shape = TensorShape(std::vector<std::int64_t>(255, 1));
  ExpectRefused(EncodeMessage(announce), "255 dimensions");
}

TEST(MessageDecoder, FieldsThatAreNotToBeSent_AreRefused) {
  const std::string one = "\x00\x00\x00\x00\x00\x00\xF0\x3F"s;
  const std::string head = "\x00\x00\x00\x01"s + "\x01w\x00\x07\x01"s;
  EXPECT_TRUE(AcceptsConsistently(Framed(kAnnounceType, head + "\x00\x00\x00"s)));
  ExpectRefused(Framed(kAnnounceType, head + "\x01"s + one + one + "\x00\x00"s), "factors of 1");
  ExpectRefused(Framed(kAnnounceType, head + "\x02\x01\x00\x00"s), "the CPU as device");
  ExpectRefused(Framed(kAnnounceType, head + "\x04\x00\x00"s), "flags 4");
  ExpectRefused(Framed(kAnnounceType, "\x04\x00\x00\x00\x00"s), "no withdrawals");
  ExpectRefused(Framed(kAnnounceType, "\x08\x00\x00\x00"s), "flags 8");
  ExpectRefused(Framed(kAnnounceType, head + "\x02"s + Varint(1ull << 40) + "\x00\x00"s),
                "of more than 32 bits");
}

TEST(MessageDecoder, Definitions_MustSuitKindAndWorld) {
  const auto refused = [](auto change, const std::string& text) {
    TensorDefinition definition = Gather();
    change(&definition);
    ExpectRefused(EncodeMessage(Log{0, {ExecuteOnceRecord{definition}}}), text);
  };
  refused([](TensorDefinition* d) { d->first_dims.pop_back(); }, "2 values where there must be 3");
  refused([](TensorDefinition* d) { d->first_dims.clear(); }, "0 values where there must be 3");
  refused([](TensorDefinition* d) { d->devices.push_back(1); }, "4 values where there must be 3");
  refused([](TensorDefinition* d) { d->devices[1] = kCpuDevice; }, "of more than 31 bits");
  refused([](TensorDefinition* d) { d->first_dims[1] = -1; }, "of more than 63 bits");
  refused([](TensorDefinition* d) { d->first_dims[1] = 1ll << 62; }, "'gather'");
  refused([](TensorDefinition* d) { d->common.shape = {}; }, "gathers rows");
  refused([](TensorDefinition* d) { d->common.kind = CollectiveKind::kAllreduce; },
          "3 values where there must be 0");
  const std::string three_ranks = EncodeMessage(Log{0, {ExecuteOnceRecord{Gather()}}});
  ExpectRefused(three_ranks, "3 values where there must be 4", 4);
  // By hand: what the encoder leaves out of a definition must not come in.
  const std::string head = "\x01w\x01\x07\x01"s;
  EXPECT_TRUE(
      AcceptsConsistently(OneRecord(3, head + "\x00\x00\x01\x00\x03\x01\x01\x01\x00\x00"s)));
  ExpectRefused(OneRecord(3, head + "\x00\x00\x01\x05\x03\x01\x01\x01\x00\x00"s), "dimension 0");
  ExpectRefused(OneRecord(3, head + "\x02\x06\x00\x01\x00\x03\x01\x01\x01\x00\x00"s),
                "whose device is not among its devices");
}

TEST(MessageDecoder, Splits_MustSuitTheWorldAndTheRows) {
  const auto refused = [](auto change, const std::string& text) {
    TensorDefinition definition = Exchange();
    change(&definition);
    ExpectRefused(EncodeMessage(Log{0, {ExecuteOnceRecord{definition}}}), text);
  };
  refused([](TensorDefinition* d) { d->splits.pop_back(); }, "6 values where there must be 9");
  refused([](TensorDefinition* d) { d->splits.clear(); }, "0 values where there must be 9");
  refused([](TensorDefinition* d) { d->first_dims = {1, 2, 3}; }, "3 values where there must be 0");
  refused([](TensorDefinition* d) { d->splits[1][1] = 1ll << 62; }, "'exchange'");
  refused([](TensorDefinition* d) { d->splits[0][2] = d->splits[1][2] = 1ll << 58; }, "'exchange'");
  refused([](TensorDefinition* d) { d->common.shape = {}; }, "splits rows");
  Request request = MakeRequest("w", CollectiveKind::kAlltoall, {3});
  request.splits = {1, 1};
  Announce announce;
  announce.requests = {request};
  ExpectRefused(EncodeMessage(announce), "Number of entries in splits");
  announce.requests[0].splits = {1, 1, 2};
  ExpectRefused(EncodeMessage(announce), "Sum of splits entries is greater");
  // By hand: a definition tells the splits of all ranks, and nothing in what they have in common.
  const std::string head = "\x01w\x03\x07\x01\x00\x00"s;
  const std::string tail = "\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"s;
  EXPECT_TRUE(AcceptsConsistently(OneRecord(3, head + "\x01\x00\x00"s + tail)));
  ExpectRefused(OneRecord(3, head + "\x01\x00\x03\x00\x00\x00"s + tail), "splits in what");
  ExpectRefused(OneRecord(3, head + "\x01\x05\x00"s + tail), "Number of entries in splits");
}

TEST(MessageDecoder, AbsentRanks_BringNothing) {
  const auto refused = [](TensorDefinition definition, const std::string& text) {
    ExpectRefused(EncodeMessage(Log{0, {ExecuteOnceRecord{std::move(definition)}}}), text);
  };
  TensorDefinition definition = Gather();
  definition.absent = {0, 1, 2};
  refused(definition, "no rank brings anything");
  definition.absent = {3};
  refused(definition, "rank 3 of 3");
  definition.absent = {1};
  definition.first_dims = {2, 1, 2};
  refused(definition, "rank 1 is absent and brings something");
  definition.first_dims = {2, 0, 2};
  EXPECT_TRUE(AcceptsConsistently(EncodeMessage(Log{0, {ExecuteOnceRecord{definition}}})));
  TensorDefinition broadcast;
  broadcast.common.name = "b";
  broadcast.common.kind = CollectiveKind::kBroadcast;
  broadcast.common.root_rank = 1;
  broadcast.absent = {1};
  refused(broadcast, "rank 1 is absent and brings something");
  // Its buffer has no room for rows of the others.
  TensorDefinition exchange = Exchange();
  exchange.absent = {1};
  exchange.splits = {{5, 0, 300}, {0, 0, 0}, {1, 2, 3}};
  refused(exchange, "rank 1 is absent and brings something");
  exchange.splits = {{5, 0, 300}, {1, 0, 0}, {1, 0, 3}};
  refused(exchange, "rank 1 is absent and brings something");
  exchange.splits = {{5, 0, 300}, {0, 0, 0}, {1, 0, 3}};
  EXPECT_TRUE(AcceptsConsistently(EncodeMessage(Log{0, {ExecuteOnceRecord{exchange}}})));
}

TEST(MessageDecoder, Records_MustSaySomething) {
  ExpectRefused(EncodeMessage(Log{0, {ExecuteRecord{}}}), "a record about no tensor");
  ExpectRefused(EncodeMessage(Log{0, {ForgetRecord{}}}), "a record about no tensor");
  ExpectRefused(EncodeMessage(Log{0, {ErrorRecord{{}, Status::Internal("x")}}}), "no tensor");
  ExpectRefused(EncodeMessage(Log{0, {ErrorRecord{{"x"}, Status::Ok()}}}), "status OK");
  ExpectRefused(EncodeMessage(Log{0, {ErrorRecord{{"x"}, Status::Internal("x"), {1, 3}}}}),
                "rank 3 of 3");
  ExpectRefused(EncodeMessage(Log{0, {ShutdownRecord{0, Status::Ok()}}}), "status OK");
  for (const int rank : {-1, kWorld}) {
    ExpectRefused(EncodeMessage(Log{0, {ShutdownRecord{rank, Status::Unknown("x")}}}),
                  "rank " + std::to_string(rank) + " of 3");
    ExpectRefused(EncodeMessage(Log{0, {JoinRecord{rank}}}),
                  "rank " + std::to_string(rank) + " of 3");
  }
  ExpectRefused(EncodeMessage(Log{0, {DefineRecord{kMaxTensorIds, Gather()}}}),
                "tensor id 16777216");
  ExpectRefused(EncodeMessage(Log{~0ull, {ExecuteRecord{{1}}}}), "sequence numbers past 2^64");
}

TEST(MessageDecoder, Welcome_HasAHostPerRankOrNone) {
  ExpectRefused(EncodeMessage(Welcome{Status::Ok(), {"a", "b"}}), "2 values where there must be 3");
  ExpectRefused(EncodeMessage(Welcome{Status::Internal("x"), {"a", "b", "c"}}),
                "3 values where there must be 0");
}

}  // namespace
}  // namespace horovod_tf
