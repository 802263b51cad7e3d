#include <array>
#include <limits>
#include <optional>
#include <type_traits>

#include "horovod_tf/common/protocol/message_codec.h"
#include "horovod_tf/common/protocol/wire.h"

namespace horovod_tf {
namespace {

// In the order of `Message`.
constexpr std::array<std::string_view, std::variant_size_v<Message>> kMessageNames = {
    "Hello", "Welcome", "Announce", "Log", "Inquiry", "Report"};

// Fewest bytes that one of these takes, to refuse counts that cannot be true.
constexpr std::size_t kMinStringBytes = 1;
constexpr std::size_t kMinRequestBytes = 8;
constexpr std::size_t kMinRecordBytes = 2;
constexpr std::size_t kMinWithdrawalBytes = 3;
constexpr std::size_t kMinWaitingBytes = 3;

// Thread rule: one thread at a time. After a failure everything reads as nothing; the caller looks
// at the reader once, at the end.
class Decoder {
 public:
  Decoder(const DecodeLimits& limits, WireReader* reader)
      : world_size_(static_cast<std::size_t>(limits.world_size)),
        ids_left_(limits.max_ids),
        reader_(*reader) {}

  // Reads alternative number `index` of a variant; false if there is none.
  template <std::size_t I = 0, typename Variant>
  bool ReadAlternative(std::size_t index, Variant* variant) {
    if constexpr (I < std::variant_size_v<Variant>) {
      if (index != I) return ReadAlternative<I + 1>(index, variant);
      Read(&variant->template emplace<I>());
      return true;
    } else {
      return false;
    }
  }

  // Where the failure was, if there was one: the field of the message.
  std::string_view field() const { return field_; }

 private:
  // What is read from here on, for the text of a failure.
  void Field(std::string_view name) {
    if (reader_.ok()) field_ = name;
  }

  void Read(Hello* hello) {
    Field("library_version");
    hello->library_version = reader_.String();
    Field("host");
    hello->host = reader_.String();
    Field("agreements");
    const std::size_t count = reader_.Count(2 * kMinStringBytes);
    for (std::size_t i = 0; i < count && reader_.ok(); ++i) {
      std::string name(reader_.String());
      hello->agreements.emplace_back(std::move(name), reader_.String());
    }
  }

  void Read(Welcome* welcome) {
    Field("status");
    welcome->status = ReadStatus();
    Field("hosts");
    welcome->hosts = ReadStrings();
    CheckSize(welcome->hosts.size(), welcome->status.ok() ? world_size_ : 0);
  }

  void Read(Announce* announce) {
    Field("flags");
    const std::uint8_t flags = ReadFlags(kAsksShutdown | kJoins | kWithdraws);
    announce->joins = (flags & kJoins) != 0;
    announce->shutdown = (flags & kAsksShutdown) != 0;
    Field("applied");
    announce->applied = reader_.Varint();
    Field("known");
    announce->known = ReadIds();
    Field("requests");
    const std::size_t count = reader_.Count(kMinRequestBytes);
    for (std::size_t i = 0; i < count && reader_.ok(); ++i) {
      announce->requests.push_back(ReadRequest());
      CheckRequest(announce->requests.back());
    }
    Field("withdrawn");
    if ((flags & kWithdraws) != 0) announce->withdrawn = ReadWithdrawals();
    Field("shutdown_reason");
    if (announce->shutdown) announce->shutdown_reason = reader_.String();
  }

  void Read(Log* log) {
    Field("first_sequence");
    log->first_sequence = reader_.Varint();
    Field("records");
    const std::size_t count = reader_.Count(kMinRecordBytes);
    if (log->first_sequence > std::numeric_limits<std::uint64_t>::max() - count) {
      reader_.Fail("sequence numbers past 2^64");
    }
    for (std::size_t i = 0; i < count && reader_.ok(); ++i) {
      Field("records");
      const std::size_t type = reader_.U8();
      LogRecord& record = log->records.emplace_back();
      if (!ReadAlternative(type - kFirstType, &record)) {
        reader_.Fail("unknown record type " + std::to_string(type) + "; known are 1 to " +
                     std::to_string(std::variant_size_v<LogRecord>));
      }
    }
  }

  void Read(Inquiry*) { Field("payload"); }

  void Read(Report* report) {
    Field("executed");
    report->executed = reader_.Varint();
    Field("last");
    report->last = reader_.String();
    Field("milliseconds");
    report->milliseconds = reader_.Varint();
    Field("waiting");
    const std::size_t count = reader_.Count(kMinWaitingBytes);
    for (std::size_t i = 0; i < count && reader_.ok(); ++i) {
      WaitingTensor& tensor = report->waiting.emplace_back();
      tensor.name = reader_.String();
      tensor.milliseconds = reader_.Varint();
      tensor.missing_ranks = ReadRanks();
    }
  }

  void Read(DefineRecord* record) {
    Field("records.Define");
    const std::uint64_t id = reader_.Varint();
    if (id >= kMaxTensorIds) {
      reader_.Fail("tensor id " + std::to_string(id) + ", of which the largest allowed is " +
                   std::to_string(kMaxTensorIds - 1));
    }
    record->id = static_cast<TensorId>(id);
    record->definition = ReadDefinition();
  }
  void Read(ExecuteRecord* record) {
    Field("records.Execute");
    record->ids = ReadIds();
    CheckNotEmpty(record->ids.size());
  }
  void Read(ExecuteOnceRecord* record) {
    Field("records.ExecuteOnce");
    record->definition = ReadDefinition();
    record->definition.absent = ReadRanks();
    if (reader_.ok()) CheckAbsent(record->definition);
  }
  void Read(ForgetRecord* record) {
    Field("records.Forget");
    record->ids = ReadIds();
    CheckNotEmpty(record->ids.size());
  }
  void Read(ErrorRecord* record) {
    Field("records.Error");
    record->names = ReadStrings();
    CheckNotEmpty(record->names.size());
    record->status = ReadError();
    record->ranks = ReadRanks();
  }
  void Read(ShutdownRecord* record) {
    Field("records.Shutdown");
    record->rank = ReadRank();
    record->status = ReadError();
  }
  void Read(JoinRecord* record) {
    Field("records.Join");
    record->last_rank = ReadRank();
  }

  std::uint8_t ReadFlags(std::uint8_t known) {
    const std::uint8_t flags = reader_.U8();
    if ((flags & ~known) != 0) {
      reader_.Fail("flags " + std::to_string(flags) + ", of which only " + std::to_string(known) +
                   " are known");
    }
    return flags;
  }

  int ReadInt() {
    const std::int64_t value = reader_.SignedVarint();
    if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max()) {
      reader_.Fail("number " + std::to_string(value) + " of more than 32 bits");
      return 0;
    }
    return static_cast<int>(value);
  }

  int ReadRank() {
    const int rank = ReadInt();
    if (rank < 0 || static_cast<std::size_t>(rank) >= world_size_) {
      reader_.Fail("rank " + std::to_string(rank) + " of " + std::to_string(world_size_));
    }
    return rank;
  }

  std::int64_t ReadDim() {
    const std::uint64_t value = reader_.Varint();
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      reader_.Fail("dimension " + std::to_string(value) + " of more than 63 bits");
      return 0;
    }
    return static_cast<std::int64_t>(value);
  }

  Status ReadStatus() {
    const std::uint64_t number = reader_.Varint();
    const bool in_range = number <= std::numeric_limits<std::uint8_t>::max();
    const auto code = StatusCodeFromInt(in_range ? static_cast<int>(number) : -1);
    if (!code.has_value()) reader_.Fail("unknown status code " + std::to_string(number));
    if (!reader_.ok() || code.value_or(StatusCode::kOk) == StatusCode::kOk) return Status::Ok();
    return Status::FromCode(*code, std::string(reader_.String()));
  }

  Status ReadError() {
    Status status = ReadStatus();
    if (status.ok()) reader_.Fail("status OK where only an error makes sense");
    return status;
  }

  std::vector<std::string> ReadStrings() {
    std::vector<std::string> strings;
    const std::size_t count = reader_.Count(kMinStringBytes);
    for (std::size_t i = 0; i < count && reader_.ok(); ++i) strings.emplace_back(reader_.String());
    return strings;
  }

  std::vector<Withdrawal> ReadWithdrawals() {
    std::vector<Withdrawal> withdrawn;
    const std::size_t count = reader_.Count(kMinWithdrawalBytes);
    if (count == 0) reader_.Fail("no withdrawals, which are not to be sent");
    for (std::size_t i = 0; i < count && reader_.ok(); ++i) {
      Withdrawal& withdrawal = withdrawn.emplace_back();
      withdrawal.name = reader_.String();
      withdrawal.reason = reader_.String();
      withdrawal.announced = ReadFlags(kWasAnnounced) != 0;
    }
    return withdrawn;
  }

  // A set of a million ids takes a few bytes, so what bounds the memory of a message is one limit
  // for all the sets in it.
  std::vector<TensorId> ReadIds() {
    std::vector<TensorId> ids = ReadIdSet(ids_left_, &reader_);
    ids_left_ -= ids.size();
    return ids;
  }

  std::vector<std::uint32_t> ReadRanks() {
    std::vector<std::uint32_t> ranks = ReadIds();
    if (!ranks.empty() && ranks.back() >= world_size_) {
      reader_.Fail("rank " + std::to_string(ranks.back()) + " of " + std::to_string(world_size_));
    }
    return ranks;
  }

  Request ReadRequest() {
    Request request;
    request.name = reader_.String();
    // Numbers that no table knows stay in the enums for ValidateRequest to refuse.
    request.kind = static_cast<CollectiveKind>(reader_.U8());
    request.dtype = static_cast<DataType>(reader_.U8());
    request.reduce_op = static_cast<ReduceOp>(reader_.U8());
    const std::uint8_t flags = ReadFlags(kHasFactors | kHasDevice);
    if ((flags & kHasFactors) != 0) {
      request.prescale = reader_.F64();
      request.postscale = reader_.F64();
      if (!HasFactors(request)) reader_.Fail("factors of 1, which are not to be sent");
    }
    if ((flags & kHasDevice) != 0) {
      request.device = ReadInt();
      if (request.device == kCpuDevice) reader_.Fail("the CPU as device, which is not to be sent");
    }
    request.root_rank = ReadInt();
    request.shape = TensorShape::OfRank(reader_.Count(1));
    for (std::size_t i = 0; i < request.shape.rank(); ++i) request.shape.set_dim(i, ReadDim());
    if (SplitsRows(request.kind)) request.splits = ReadDims();
    return request;
  }

  std::vector<std::int64_t> ReadDims() {
    std::vector<std::int64_t> dims(reader_.Count(1));
    for (std::int64_t& dim : dims) dim = ReadDim();
    return dims;
  }

  void CheckRequest(const Request& request) {
    if (!reader_.ok()) return;
    const Status status = ValidateRequest(request, static_cast<int>(world_size_));
    if (!status.ok()) reader_.Fail(status.message());
  }

  // What all ranks have in common, as if it were the request of one that has no rows.
  void CheckCommon(Request common) {
    if (!common.splits.empty()) reader_.Fail("splits in what ranks have in common");
    const bool splits = SplitsRows(common.kind) && common.shape.rank() > 0;
    if (splits && common.shape.dim(0) == 0) common.splits.resize(world_size_);
    CheckRequest(common);
  }

  TensorDefinition ReadDefinition() {
    TensorDefinition definition;
    definition.common = ReadRequest();
    CheckCommon(definition.common);
    definition.first_dims = ReadDims();
    const std::size_t device_count = reader_.Count(1);
    for (std::size_t i = 0; i < device_count && reader_.ok(); ++i) {
      const std::uint64_t device = reader_.Varint();
      if (device > static_cast<std::uint64_t>(std::numeric_limits<int>::max())) {
        reader_.Fail("device " + std::to_string(device) + " of more than 31 bits");
      }
      definition.devices.push_back(static_cast<int>(device));
    }
    if (SplitsRows(definition.common.kind)) definition.splits = ReadSplits();
    if (reader_.ok()) CheckDefinition(definition);
    return definition;
  }

  // A list for each rank, as long as there are ranks.
  SplitsOfRanks ReadSplits() {
    const std::vector<std::int64_t> all = ReadDims();
    CheckSize(all.size(), world_size_ * world_size_);
    SplitsOfRanks splits;
    if (!reader_.ok()) return splits;
    for (auto first = all.begin(); first != all.end();) {
      const auto end = first + static_cast<std::ptrdiff_t>(world_size_);
      splits.emplace_back(first, end);
      first = end;
    }
    return splits;
  }

  void CheckDefinition(const TensorDefinition& definition) {
    if (definition.common.device != kCpuDevice) {
      reader_.Fail("a definition whose device is not among its devices");
    }
    if (!definition.devices.empty()) CheckSize(definition.devices.size(), world_size_);
    const CollectiveKindInfo& kind = Info(definition.common.kind);
    CheckSize(definition.first_dims.size(), kind.gathers_rows ? world_size_ : 0);
    if (!kind.rows_differ() || !reader_.ok()) return;
    if (definition.common.shape.rank() == 0 || definition.common.shape.dim(0) != 0) {
      reader_.Fail("a definition that " + std::string(kind.splits_rows ? "splits" : "gathers") +
                   " rows and whose dimension 0 is not 0");
      return;
    }
    const Status status = kind.splits_rows
                              ? ValidateExchangedSizes(definition)
                              : ValidateGatheredSize(definition.common, definition.first_dims);
    if (!status.ok()) reader_.Fail(status.message());
  }

  void CheckAbsent(const TensorDefinition& definition) {
    if (definition.absent.size() >= world_size_) reader_.Fail("no rank brings anything");
    for (const std::uint32_t rank : definition.absent) {
      const bool is_root = Info(definition.common.kind).has_root &&
                           static_cast<std::uint32_t>(definition.common.root_rank) == rank;
      const bool has_rows = !definition.first_dims.empty() && definition.first_dims[rank] != 0;
      if (is_root || has_rows || Exchanges(definition.splits, rank)) {
        reader_.Fail("rank " + std::to_string(rank) + " is absent and brings something");
      }
    }
  }

  // Whether any rows go to this rank or come from it.
  static bool Exchanges(const SplitsOfRanks& splits, std::size_t rank) {
    for (std::size_t other = 0; other < splits.size(); ++other) {
      if (splits[rank][other] != 0 || splits[other][rank] != 0) return true;
    }
    return false;
  }

  void CheckSize(std::size_t size, std::size_t expected) {
    if (size != expected) {
      reader_.Fail(std::to_string(size) + " values where there must be " +
                   std::to_string(expected));
    }
  }
  void CheckNotEmpty(std::size_t size) {
    if (size == 0) reader_.Fail("a record about no tensor");
  }

  const std::size_t world_size_;
  std::size_t ids_left_;
  WireReader& reader_;
  std::string_view field_ = "frame";
};

// Reads the frame up to the payload; the type's number or 0.
std::size_t ReadFrame(WireReader* reader, std::uint32_t* process_set) {
  const std::uint16_t magic = reader->U16();
  if (reader->ok() && magic != kWireMagic) {
    reader->Fail("magic " + std::to_string(magic) + " instead of " + std::to_string(kWireMagic) +
                 ": not a message of this library");
  }
  const std::uint8_t version = reader->U8();
  if (reader->ok() && version != kWireVersion) {
    reader->Fail("wire version " + std::to_string(version) + " where this library speaks " +
                 std::to_string(kWireVersion) + ": all ranks must run the same release");
  }
  const std::size_t type = reader->U8();
  const std::uint64_t set = reader->Varint();
  if (set > std::numeric_limits<std::uint32_t>::max()) {
    reader->Fail("process set " + std::to_string(set) + " of more than 32 bits");
  }
  *process_set = static_cast<std::uint32_t>(set);
  const std::uint32_t length = reader->U32();
  if (reader->ok() && length != reader->remaining()) {
    reader->Fail("length " + std::to_string(length) + " of a payload of " +
                 std::to_string(reader->remaining()) + " bytes");
  }
  return reader->ok() ? type : 0;
}

}  // namespace

std::string_view MessageTypeName(const Message& message) { return kMessageNames[message.index()]; }

Status DecodeMessage(std::string_view bytes, const DecodeLimits& limits, Message* message,
                     std::uint32_t* process_set) {
  WireReader reader(bytes);
  const std::size_t type = ReadFrame(&reader, process_set);
  if (!reader.ok()) return reader.status().WithContext("Malformed message");
  Decoder decoder(limits, &reader);
  if (!decoder.ReadAlternative(type - kFirstType, message)) {
    reader.Fail("unknown message type " + std::to_string(type) + "; known are 1 to " +
                std::to_string(kMessageNames.size()));
    return reader.status().WithContext("Malformed message");
  }
  if (reader.ok() && !reader.AtEnd()) {
    reader.Fail(std::to_string(reader.remaining()) + " bytes after the end of the message");
  }
  if (reader.ok()) return Status::Ok();
  return reader.status().WithContext("Malformed " + std::string(MessageTypeName(*message)) + "." +
                                     std::string(decoder.field()));
}

}  // namespace horovod_tf
