#include <limits>

#include "horovod_tf/common/base/check.h"
#include "horovod_tf/common/protocol/message_codec.h"
#include "horovod_tf/common/protocol/wire.h"

namespace horovod_tf {
namespace {

// Thread rule: one thread at a time.
class Encoder {
 public:
  explicit Encoder(WireWriter* writer) : writer_(*writer) {}

  void Write(const Hello& hello) {
    writer_.String(hello.library_version);
    writer_.String(hello.host);
    writer_.Varint(hello.agreements.size());
    for (const auto& [name, value] : hello.agreements) {
      writer_.String(name);
      writer_.String(value);
    }
  }

  void Write(const Welcome& welcome) {
    Write(welcome.status);
    Write(welcome.hosts);
  }

  void Write(const Announce& announce) {
    writer_.U8(static_cast<std::uint8_t>((announce.shutdown ? kAsksShutdown : 0) |
                                         (announce.joins ? kJoins : 0) |
                                         (announce.withdrawn.empty() ? 0 : kWithdraws)));
    writer_.Varint(announce.applied);
    WriteIdSet(announce.known, &writer_);
    writer_.Varint(announce.requests.size());
    for (const Request& request : announce.requests) Write(request);
    if (!announce.withdrawn.empty()) Write(announce.withdrawn);
    if (announce.shutdown) writer_.String(announce.shutdown_reason);
  }

  void Write(const Log& log) {
    writer_.Varint(log.first_sequence);
    writer_.Varint(log.records.size());
    for (const LogRecord& record : log.records) {
      writer_.U8(static_cast<std::uint8_t>(record.index() + kFirstType));
      std::visit([this](const auto& alternative) { Write(alternative); }, record);
    }
  }

  void Write(const Inquiry&) {}

  void Write(const Report& report) {
    writer_.Varint(report.executed);
    writer_.String(report.last);
    writer_.Varint(report.milliseconds);
    writer_.Varint(report.waiting.size());
    for (const WaitingTensor& tensor : report.waiting) {
      writer_.String(tensor.name);
      writer_.Varint(tensor.milliseconds);
      WriteIdSet(tensor.missing_ranks, &writer_);
    }
  }

 private:
  void Write(const DefineRecord& record) {
    writer_.Varint(record.id);
    Write(record.definition);
  }
  void Write(const ExecuteRecord& record) { WriteIdSet(record.ids, &writer_); }
  void Write(const ExecuteOnceRecord& record) {
    Write(record.definition);
    WriteIdSet(record.definition.absent, &writer_);
  }
  void Write(const ForgetRecord& record) { WriteIdSet(record.ids, &writer_); }
  void Write(const ErrorRecord& record) {
    Write(record.names);
    Write(record.status);
    WriteIdSet(record.ranks, &writer_);
  }
  void Write(const ShutdownRecord& record) {
    writer_.SignedVarint(record.rank);
    Write(record.status);
  }
  void Write(const JoinRecord& record) { writer_.SignedVarint(record.last_rank); }

  void Write(const Status& status) {
    writer_.Varint(static_cast<std::uint64_t>(status.code()));
    if (!status.ok()) writer_.String(status.message());
  }

  void Write(const std::vector<std::string>& strings) {
    writer_.Varint(strings.size());
    for (const std::string& string : strings) writer_.String(string);
  }

  void Write(const std::vector<Withdrawal>& withdrawn) {
    writer_.Varint(withdrawn.size());
    for (const Withdrawal& withdrawal : withdrawn) {
      writer_.String(withdrawal.name);
      writer_.String(withdrawal.reason);
      writer_.U8(withdrawal.announced ? kWasAnnounced : 0);
    }
  }

  void Write(const Request& request) {
    writer_.String(request.name);
    writer_.U8(static_cast<std::uint8_t>(request.kind));
    writer_.U8(static_cast<std::uint8_t>(request.dtype));
    writer_.U8(static_cast<std::uint8_t>(request.reduce_op));
    const bool factors = HasFactors(request);
    const bool device = request.device != kCpuDevice;
    writer_.U8(static_cast<std::uint8_t>((factors ? kHasFactors : 0) | (device ? kHasDevice : 0)));
    if (factors) {
      writer_.F64(request.prescale);
      writer_.F64(request.postscale);
    }
    if (device) writer_.SignedVarint(request.device);
    writer_.SignedVarint(request.root_rank);
    writer_.Varint(request.shape.rank());
    WriteDims(request.shape);
    if (!SplitsRows(request.kind)) return;
    writer_.Varint(request.splits.size());
    WriteDims(request.splits);
  }

  template <typename Dims>
  void WriteDims(const Dims& dims) {
    for (std::int64_t dim : dims) writer_.Varint(static_cast<std::uint64_t>(dim));
  }

  void Write(const TensorDefinition& definition) {
    // What means nothing in a definition is not told.
    Request common = definition.common;
    common.device = kCpuDevice;
    common.splits.clear();
    if (Info(common.kind).rows_differ() && common.shape.rank() > 0) common.shape.set_dim(0, 0);
    Write(common);
    writer_.Varint(definition.first_dims.size());
    WriteDims(definition.first_dims);
    writer_.Varint(definition.devices.size());
    for (int device : definition.devices) writer_.Varint(static_cast<std::uint64_t>(device));
    if (!SplitsRows(common.kind)) return;
    std::size_t count = 0;
    for (const std::vector<std::int64_t>& sent : definition.splits) count += sent.size();
    writer_.Varint(count);
    for (const std::vector<std::int64_t>& sent : definition.splits) WriteDims(sent);
  }

  WireWriter& writer_;
};

}  // namespace

std::string EncodeMessage(const Message& message, std::uint32_t process_set) {
  WireWriter payload;
  std::visit([encoder = Encoder(&payload)](const auto& m) mutable { encoder.Write(m); }, message);
  HVD_CHECK(payload.size() <= std::numeric_limits<std::uint32_t>::max(),
            "a control message of more than 4 GiB");
  WireWriter frame;
  frame.U16(kWireMagic);
  frame.U8(kWireVersion);
  frame.U8(static_cast<std::uint8_t>(message.index() + kFirstType));
  frame.Varint(process_set);
  frame.U32(static_cast<std::uint32_t>(payload.size()));
  frame.Raw(payload.Take());
  return frame.Take();
}

}  // namespace horovod_tf
