// What messages mean: validation, definitions, and each message field by field through the codec.
// message_decoder_test.cc has what a decoder does with bytes that are wrong.
#include "horovod_tf/common/protocol/message.h"

#include <gtest/gtest.h>

#include <limits>

namespace horovod_tf {
namespace {

using namespace std::string_literals;  // "..."s keeps zero bytes

constexpr int kWorld = 3;
constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

Request MakeRequest(const std::string& name = "grad/w:0") {
  Request request;
  request.name = name;
  request.shape = {2, 3};
  return request;
}

// A request in which no field is as it is by default.
Request UnusualRequest() {
  Request request;
  request.name = "odd \xC3\xA9\n\"name\"";
  request.kind = CollectiveKind::kBroadcast;
  request.dtype = DataType::kBFloat16;
  request.reduce_op = ReduceOp::kProduct;
  request.prescale = 0.1;
  request.postscale = -1e-300;
  request.root_rank = 2;
  request.device = 5;
  request.shape = {1, 0, 70000, 4};
  return request;
}

TensorDefinition GatherDefinition() {
  TensorDefinition definition;
  definition.common = MakeRequest("gathered");
  definition.common.kind = CollectiveKind::kAllgather;
  definition.common.shape = {0, 4};
  definition.first_dims = {5, 0, 1000};
  definition.devices = {2, 0, 1};
  return definition;
}

TensorDefinition ExchangeDefinition() {
  TensorDefinition definition;
  definition.common = MakeRequest("exchanged");
  definition.common.kind = CollectiveKind::kAlltoall;
  definition.common.shape = {0, 4};
  definition.splits = {{1, 2, 300}, {0, 0, 0}, {7, 0, 1}};
  return definition;
}

// What `message` is after a journey.
template <typename T>
T Travel(const T& message) {
  Message decoded;
  std::uint32_t process_set = 99;
  const Status status = DecodeMessage(EncodeMessage(message), {kWorld}, &decoded, &process_set);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(process_set, kGlobalProcessSet);
  EXPECT_TRUE(std::holds_alternative<T>(decoded));
  return std::holds_alternative<T>(decoded) ? std::get<T>(decoded) : T();
}

template <typename T>
T TravelInLog(const T& record) {
  const Log log = Travel(Log{7, {record}});
  EXPECT_EQ(log.first_sequence, 7u);
  EXPECT_EQ(log.records.size(), 1u);
  if (log.records.size() != 1 || !std::holds_alternative<T>(log.records[0])) {
    ADD_FAILURE() << "another record came out";
    return T();
  }
  return std::get<T>(log.records[0]);
}

void ExpectSame(const TensorDefinition& a, const TensorDefinition& b) {
  EXPECT_EQ(a.common, b.common);
  EXPECT_EQ(a.first_dims, b.first_dims);
  EXPECT_EQ(a.splits, b.splits);
  EXPECT_EQ(a.devices, b.devices);
  EXPECT_EQ(a.absent, b.absent);
}

TEST(Message, Hello_KeepsEveryField) {
  const Hello hello = Travel(Hello{"0.1.0", "node-7", {{"A", "1"}, {"B", ""}, {"", "c"}}});
  EXPECT_EQ(hello.library_version, "0.1.0");
  EXPECT_EQ(hello.host, "node-7");
  EXPECT_EQ(hello.agreements,
            (std::vector<std::pair<std::string, std::string>>{{"A", "1"}, {"B", ""}, {"", "c"}}));
}

TEST(Message, Report_KeepsEveryField) {
  const Report report =
      Travel(Report{1u << 20, "allreduce of 'x'", 61000, {{"y", 7, {0, 2}}, {"z", 0, {}}}});
  EXPECT_EQ(report.executed, 1u << 20);
  EXPECT_EQ(report.last, "allreduce of 'x'");
  EXPECT_EQ(report.milliseconds, 61000u);
  ASSERT_EQ(report.waiting.size(), 2u);
  EXPECT_EQ(report.waiting[0].name, "y");
  EXPECT_EQ(report.waiting[0].milliseconds, 7u);
  EXPECT_EQ(report.waiting[0].missing_ranks, (std::vector<std::uint32_t>{0, 2}));
  EXPECT_EQ(report.waiting[1].name, "z");
  EXPECT_TRUE(report.waiting[1].missing_ranks.empty());
}

TEST(Message, Inquiry_HasNoFields) {
  Travel(Inquiry());
  EXPECT_EQ(EncodeMessage(Inquiry()).size(), 9u);
}

TEST(Message, Welcome_KeepsHostsOrTheReason) {
  const Welcome good = Travel(Welcome{Status::Ok(), {"b", "a", "b"}});
  EXPECT_TRUE(good.status.ok());
  EXPECT_EQ(good.hosts, (std::vector<std::string>{"b", "a", "b"}));
  const Welcome bad = Travel(Welcome{Status::FailedPrecondition("no"), {}});
  EXPECT_EQ(bad.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(bad.status.message(), "no");
  EXPECT_TRUE(bad.hosts.empty());
}

TEST(Message, Announce_KeepsEveryField) {
  Announce sent;
  sent.applied = 1234567;
  sent.known = {0, 1, 2, 5, 9000};
  sent.requests = {MakeRequest(), UnusualRequest()};
  sent.shutdown = true;
  sent.shutdown_reason = "exit of the process";
  const Announce announce = Travel(sent);
  EXPECT_EQ(announce.applied, 1234567u);
  EXPECT_EQ(announce.known, sent.known);
  EXPECT_EQ(announce.requests, sent.requests);
  EXPECT_TRUE(announce.shutdown);
  EXPECT_EQ(announce.shutdown_reason, "exit of the process");
}

TEST(Message, Join_IsKept) {
  Announce sent;
  sent.joins = true;
  EXPECT_TRUE(Travel(sent).joins);
  EXPECT_EQ(TravelInLog(JoinRecord{2}).last_rank, 2);
  TensorDefinition definition;
  definition.common = MakeRequest();
  definition.absent = {0, 2};
  ExpectSame(TravelInLog(ExecuteOnceRecord{definition}).definition, definition);
}

TEST(Message, AnnounceOfNothing_StaysEmpty) {
  const Announce announce = Travel(Announce());
  EXPECT_EQ(announce.applied, 0u);
  EXPECT_TRUE(announce.known.empty());
  EXPECT_TRUE(announce.requests.empty());
  EXPECT_FALSE(announce.shutdown);
}

TEST(Message, SteadyAnnounceOfAThousandTensors_IsUnderTwentyBytes) {
  Announce announce;
  announce.applied = 1000000;
  for (TensorId id = 500; id < 1500; ++id) announce.known.push_back(id);
  EXPECT_LT(EncodeMessage(announce).size(), 20u);
  EXPECT_EQ(Travel(announce).known, announce.known);
}

TEST(Message, Request_KeepsEveryKindTypeAndOperation) {
  Announce sent;
  for (const CollectiveKindInfo& kind : CollectiveKinds()) {
    for (const DataTypeInfo& dtype : DataTypes()) {
      for (const ReduceOpInfo& op : ReduceOps()) {
        if (kind.reduces && !CanReduce(dtype.type, op.op)) continue;
        Request request = MakeRequest("t" + std::to_string(sent.requests.size()));
        request.kind = kind.kind;
        request.dtype = dtype.type;
        request.reduce_op = op.op;
        if (kind.splits_rows) request.splits = {2, 0, 0};
        if (AveragesRows(request) && !dtype.reducible) continue;
        sent.requests.push_back(std::move(request));
      }
    }
  }
  EXPECT_EQ(Travel(sent).requests, sent.requests);
}

TEST(Message, Define_KeepsTheDefinition) {
  DefineRecord sent{kMaxTensorIds - 1, GatherDefinition()};
  const DefineRecord record = TravelInLog(sent);
  EXPECT_EQ(record.id, sent.id);
  ExpectSame(record.definition, sent.definition);
}

TEST(Message, Splits_AreKeptForEveryRank) {
  ExpectSame(TravelInLog(DefineRecord{3, ExchangeDefinition()}).definition, ExchangeDefinition());
  Announce sent;
  for (int rank = 0; rank < kWorld; ++rank) {
    sent.requests.push_back(ExchangeDefinition().RequestOf(rank));
    sent.requests.back().name += std::to_string(rank);
  }
  sent.requests.push_back(MakeRequest("scalar"));
  sent.requests.back().kind = CollectiveKind::kAlltoall;
  sent.requests.back().shape = {};
  EXPECT_EQ(Travel(sent).requests, sent.requests);
}

TEST(Message, ExecuteOnce_KeepsTheDefinition) {
  TensorDefinition reduced;
  reduced.common = MakeRequest("reduced");
  ExpectSame(TravelInLog(ExecuteOnceRecord{reduced}).definition, reduced);
}

TEST(Message, Definition_DoesNotTellWhatMeansNothingInIt) {
  TensorDefinition sent = GatherDefinition();
  sent.common.shape.set_dim(0, 5);
  sent.common.device = 2;
  ExpectSame(TravelInLog(ExecuteOnceRecord{sent}).definition, GatherDefinition());
}

TEST(Message, ExecuteAndForget_KeepTheirIds) {
  const std::vector<TensorId> ids = {3, 4, 5, 100, 102, 104, 70000};
  EXPECT_EQ(TravelInLog(ExecuteRecord{ids}).ids, ids);
  EXPECT_EQ(TravelInLog(ForgetRecord{ids}).ids, ids);
}

TEST(Message, ErrorAndShutdown_KeepWhoAndWhy) {
  const ErrorRecord error = TravelInLog(ErrorRecord{{"b", "a"}, Status::Internal("why")});
  EXPECT_EQ(error.names, (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(error.status.code(), StatusCode::kInternal);
  EXPECT_EQ(error.status.message(), "why");
  EXPECT_TRUE(error.ranks.empty());
  EXPECT_EQ(TravelInLog(ErrorRecord{{"a"}, Status::Internal("why"), {0, 2}}).ranks,
            (std::vector<std::uint32_t>{0, 2}));
  const ShutdownRecord shutdown = TravelInLog(ShutdownRecord{2, Status::Unknown("over")});
  EXPECT_EQ(shutdown.rank, 2);
  EXPECT_EQ(shutdown.status.code(), StatusCode::kUnknown);
  EXPECT_EQ(shutdown.status.message(), "over");
}

TEST(Message, Log_KeepsTheOrderOfItsRecords) {
  const Log log = Travel(Log{1u << 20,
                             {ExecuteRecord{{4}}, DefineRecord{9, GatherDefinition()},
                              ExecuteRecord{{2}}, ForgetRecord{{4}}, ExecuteRecord{{9}}}});
  std::vector<std::size_t> alternatives;
  for (const LogRecord& record : log.records) alternatives.push_back(record.index());
  EXPECT_EQ(alternatives, (std::vector<std::size_t>{1, 0, 1, 3, 1}));
  EXPECT_EQ(std::get<ExecuteRecord>(log.records[2]).ids, (std::vector<TensorId>{2}));
}

TEST(Message, StatusCodes_AllTravel) {
  for (int number = 1; number < 20; ++number) {
    const auto code = StatusCodeFromInt(number);
    if (!code.has_value()) continue;
    EXPECT_EQ(TravelInLog(ErrorRecord{{"x"}, Status::FromCode(*code, "t")}).status.code(), *code);
  }
}

TEST(Message, ProcessSet_TravelsInTheFrame) {
  for (const std::uint32_t set : {0u, 1u, 127u, 128u, 0xFFFFFFFFu}) {
    Message decoded;
    std::uint32_t process_set = 0;
    ASSERT_TRUE(
        DecodeMessage(EncodeMessage(Announce(), set), {kWorld}, &decoded, &process_set).ok());
    EXPECT_EQ(process_set, set);
  }
}

TEST(Message, TypeNames_AreThoseOfTheTypes) {
  EXPECT_EQ(MessageTypeName(Hello()), "Hello");
  EXPECT_EQ(MessageTypeName(Welcome()), "Welcome");
  EXPECT_EQ(MessageTypeName(Announce()), "Announce");
  EXPECT_EQ(MessageTypeName(Log()), "Log");
}

// The examples of docs/protocol.md. If this fails, the format has changed: raise kWireVersion.
TEST(Message, Bytes_AreThoseOfTheSpecification) {
  Announce announce;
  announce.applied = 300;
  announce.known = {8, 9, 10};
  EXPECT_EQ(EncodeMessage(announce),
            "\x56\x48\x04\x03\x00\x07\x00\x00\x00"  // frame
            "\x00\xAC\x02"                          // flags, applied
            "\x02\x08\x02"                          // known
            "\x00"s);                               // requests
  Request request = MakeRequest("w");
  request.postscale = 0.5;
  TensorDefinition definition;
  definition.common = request;
  EXPECT_EQ(EncodeMessage(Log{2, {DefineRecord{8, definition}, ExecuteRecord{{8}}}}, 1),
            "\x56\x48\x04\x04\x01\x24\x00\x00\x00"  // frame
            "\x02\x02"                              // first sequence, records
            "\x01\x08"                              // Define 8
            "\x01w\x00\x07\x01\x01"                 // name, kind, type, operation, flags
            "\x00\x00\x00\x00\x00\x00\xF0\x3F"      // prescale
            "\x00\x00\x00\x00\x00\x00\xE0\x3F"      // postscale
            "\x00\x02\x02\x03\x00\x00"              // root, shape, first dims, devices
            "\x02\x02\x08\x00"s);                   // Execute {8}
}

// ---- what a rank may submit ---------------------------------------------------------------------

template <typename Change>
void ExpectInvalid(Change change, const std::string& text) {
  Request request = MakeRequest();
  ASSERT_TRUE(ValidateRequest(request, kWorld).ok());
  change(&request);
  const Status status = ValidateRequest(request, kWorld);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
  EXPECT_NE(status.message().find(text), std::string::npos) << status;
}

TEST(ValidateRequest, Names_AreNeitherEmptyNorEndless) {
  ExpectInvalid([](Request* r) { r->name.clear(); }, "needs a name");
  ExpectInvalid([](Request* r) { r->name.assign(kMaxTensorNameBytes + 1, 'n'); }, "4097 bytes");
  EXPECT_TRUE(ValidateRequest(MakeRequest(std::string(kMaxTensorNameBytes, 'n')), kWorld).ok());
}

TEST(ValidateRequest, NumbersThatNoTableKnows_AreNamed) {
  ExpectInvalid([](Request* r) { r->kind = static_cast<CollectiveKind>(77); },
                "'grad/w:0': unknown kind of collective 77");
  ExpectInvalid([](Request* r) { r->dtype = static_cast<DataType>(78); }, "data type 78");
  ExpectInvalid([](Request* r) { r->reduce_op = static_cast<ReduceOp>(2); }, "operation 2");
}

TEST(ValidateRequest, TypesWithoutArithmetic_MayMoveButNotReduce) {
  ExpectInvalid([](Request* r) { r->dtype = DataType::kBool; }, "bool cannot be allreduced");
  ExpectInvalid(
      [](Request* r) {
        r->dtype = DataType::kBool;
        r->kind = CollectiveKind::kReducescatter;
      },
      "bool cannot be reducescattered");
  for (const CollectiveKind kind : {CollectiveKind::kAllgather, CollectiveKind::kBroadcast}) {
    Request request = MakeRequest();
    request.kind = kind;
    request.dtype = DataType::kBool;
    EXPECT_TRUE(ValidateRequest(request, kWorld).ok());
  }
}

TEST(ValidateRequest, MinAndMaxOfComplexNumbers_AreRefusedWithTheReason) {
  for (const CollectiveKind kind : {CollectiveKind::kAllreduce, CollectiveKind::kReducescatter}) {
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      ExpectInvalid(
          [&](Request* r) {
            r->kind = kind;
            r->dtype = DataType::kComplex64;
            r->reduce_op = op;
          },
          std::string(Info(op).name) + " of complex64: complex numbers have no order");
    }
  }
  Request request = MakeRequest();
  request.dtype = DataType::kComplex128;
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kProduct}) {
    request.reduce_op = op;
    EXPECT_TRUE(ValidateRequest(request, kWorld).ok());
  }
}

TEST(ValidateRequest, Shapes_MustBeRepresentableInBytes) {
  ExpectInvalid([](Request* r) { r->shape = {4, -1}; }, "[4, -1]");
  ExpectInvalid([](Request* r) { r->shape = {kLargest, 2}; }, "more than 2^63-1 bytes");
  // float32: the elements fit in 63 bits, the bytes do not.
  ExpectInvalid([](Request* r) { r->shape = {kLargest / 4 + 1}; }, "more than 2^63-1 bytes");
  ExpectInvalid([](Request* r) { r->shape = TensorShape(std::vector<std::int64_t>(255, 1)); },
                "255 dimensions");
  Request request = MakeRequest();
  for (const TensorShape& shape :
       {TensorShape({kLargest / 4}), TensorShape({}), TensorShape({0, 5}),
        TensorShape(std::vector<std::int64_t>(kMaxTensorRank, 1))}) {
    request.shape = shape;
    EXPECT_TRUE(ValidateRequest(request, kWorld).ok()) << shape.ToString();
  }
}

TEST(ValidateRequest, Factors_MustBeFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  ExpectInvalid([&](Request* r) { r->prescale = infinity; }, "finite; they are inf and 1");
  ExpectInvalid([&](Request* r) { r->postscale = nan; }, "finite");
}

TEST(ValidateRequest, Roots_MustBeRanks) {
  for (const int root : {-1, kWorld}) {
    ExpectInvalid(
        [&](Request* r) {
          r->kind = CollectiveKind::kBroadcast;
          r->root_rank = root;
        },
        "root rank " + std::to_string(root) + " is not a rank; ranks are 0 to 2");
  }
  Request request = MakeRequest();
  request.kind = CollectiveKind::kBroadcast;
  request.root_rank = kWorld - 1;
  EXPECT_TRUE(ValidateRequest(request, kWorld).ok());
}

TEST(ValidateRequest, Splits_GiveEveryRowToARank) {
  const auto refused = [](const std::vector<std::int64_t>& splits, const std::string& text) {
    ExpectInvalid(
        [&](Request* r) {
          r->kind = CollectiveKind::kAlltoall;
          r->splits = splits;
        },
        text);
  };
  refused({}, "Number of entries in splits does not equal the number of ranks: 0, not 3");
  refused({1, 1}, "Number of entries in splits does not equal the number of ranks: 2, not 3");
  refused({1, 1, 1}, "Sum of splits entries is greater than dimension 0: 3 rows of 2");
  refused({1, 0, 0}, "Sum of splits entries is less than dimension 0: 1 rows of 2");
  refused({3, -1, 0}, "splits have -1");
  refused({kLargest, kLargest, 4}, "more than 2^63-1 rows");
  ExpectInvalid([](Request* r) { r->splits = {2, 0, 0}; }, "does not equal none: 3, not 0");
  Request request = MakeRequest();
  request.kind = CollectiveKind::kAlltoall;
  request.splits = {0, 2, 0};
  EXPECT_TRUE(ValidateRequest(request, kWorld).ok());
  request.shape = {};
  request.splits.clear();
  EXPECT_TRUE(ValidateRequest(request, kWorld).ok());
}

TEST(CompleteSplits, RowsAreDividedEvenlyWhereNothingElseWasSaid) {
  Request request = MakeRequest();
  request.shape = {6, 2};
  EXPECT_TRUE(CompleteSplits(&request, kWorld).ok());
  EXPECT_TRUE(request.splits.empty());
  request.kind = CollectiveKind::kAlltoall;
  EXPECT_TRUE(CompleteSplits(&request, kWorld).ok());
  EXPECT_EQ(request.splits, (std::vector<std::int64_t>{2, 2, 2}));
  request.splits = {6, 0, 0};
  EXPECT_TRUE(CompleteSplits(&request, kWorld).ok());
  EXPECT_EQ(request.splits, (std::vector<std::int64_t>{6, 0, 0}));
  request.splits.clear();
  request.shape = {7, 2};
  const Status status = CompleteSplits(&request, kWorld);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(
      status.message().find("dimension 0 (7) is not an even multiple of the number of workers "
                            "(3)"),
      std::string::npos);
  request.shape = {};
  EXPECT_TRUE(CompleteSplits(&request, kWorld).ok());
}

TEST(ValidateRequest, Devices_AreTheCpuOrAGpusNumber) {
  ExpectInvalid([](Request* r) { r->device = -2; }, "device -2");
  Request request = MakeRequest();
  request.device = 7;
  EXPECT_TRUE(ValidateRequest(request, kWorld).ok());
}

// ---- requests and definitions -------------------------------------------------------------------

TEST(Request, AnyFieldThatDiffers_MakesThemDifferent) {
  const Request same = MakeRequest();
  EXPECT_TRUE(same == MakeRequest());
  EXPECT_FALSE(same != MakeRequest());
  const auto differs = [&](auto change) {
    Request other = same;
    change(&other);
    EXPECT_TRUE(same != other);
  };
  differs([](Request* r) { r->name += "2"; });
  differs([](Request* r) { r->kind = CollectiveKind::kBroadcast; });
  differs([](Request* r) { r->dtype = DataType::kInt32; });
  differs([](Request* r) { r->reduce_op = ReduceOp::kMin; });
  differs([](Request* r) { r->prescale = 2; });
  differs([](Request* r) { r->postscale = 2; });
  differs([](Request* r) { r->root_rank = 1; });
  differs([](Request* r) { r->device = 0; });
  differs([](Request* r) { r->shape = {3, 2}; });
  differs([](Request* r) { r->splits = {2}; });
}

TEST(TensorDefinition, RequestOf_FillsInWhatEachRankHas) {
  const TensorDefinition definition = GatherDefinition();
  for (int rank = 0; rank < kWorld; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    const Request request = definition.RequestOf(rank);
    EXPECT_EQ(request.name, "gathered");
    EXPECT_EQ(request.shape, TensorShape({definition.first_dims[index], 4}));
    EXPECT_EQ(request.device, definition.devices[index]);
  }
}

TEST(TensorDefinition, RequestOf_FillsInTheRowsThatEachRankSends) {
  const TensorDefinition definition = ExchangeDefinition();
  EXPECT_EQ(definition.RequestOf(0).shape, TensorShape({303, 4}));
  EXPECT_EQ(definition.RequestOf(1).shape, TensorShape({0, 4}));
  EXPECT_EQ(definition.RequestOf(2).splits, (std::vector<std::int64_t>{7, 0, 1}));
  EXPECT_EQ(RowsReceived(definition.splits, 2), (std::vector<std::int64_t>{300, 0, 1}));
  EXPECT_EQ(definition.bytes(), 303 * 4 * 4);
}

TEST(TensorDefinition, Bytes_AreOfTheGatheredOutput) {
  EXPECT_EQ(GatherDefinition().bytes(), 1005 * 4 * 4);
  TensorDefinition definition;
  definition.common = UnusualRequest();
  EXPECT_EQ(definition.bytes(), 0);
  definition.common.shape = {3, 5};
  EXPECT_EQ(definition.bytes(), 3 * 5 * 2);
}

TEST(ValidateExchangedSizes, RowsOfARank_MustBeRepresentable) {
  TensorDefinition definition = ExchangeDefinition();
  EXPECT_TRUE(ValidateExchangedSizes(definition).ok());
  definition.splits[0][2] = definition.splits[2][2] = kLargest / 16 - 3;
  EXPECT_EQ(ValidateExchangedSizes(definition).code(), StatusCode::kInvalidArgument);
  definition = ExchangeDefinition();
  definition.splits[0] = {kLargest / 32, 1, kLargest / 32 + 1};
  EXPECT_NE(ValidateExchangedSizes(definition).message().find("'exchanged'"), std::string::npos);
}

TEST(ValidateGatheredSize, RowsOfAllRanks_MustBeRepresentable) {
  const Request common = GatherDefinition().common;
  EXPECT_TRUE(ValidateGatheredSize(common, {kLargest / 16, 0, 0}).ok());
  for (const std::vector<std::int64_t>& rows : std::vector<std::vector<std::int64_t>>{
           {kLargest / 16, 0, 1}, {kLargest, 1, 0}, {kLargest, kLargest, 2}}) {
    const Status status = ValidateGatheredSize(common, rows);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("'gathered'"), std::string::npos);
  }
}

}  // namespace
}  // namespace horovod_tf
