// The messages of the control plane and their codec. Ranks send Announce to the coordinator; the
// coordinator sends every rank the same Log; Hello and Welcome open the conversation. Inquiry and
// Report tell who is slow from who is gone.
// docs/protocol.md is the specification.
//
// Frame: magic u16 | version u8 | type u8 | process set varint | payload length u32 | payload.
#ifndef HOROVOD_TF_COMMON_PROTOCOL_MESSAGE_H_
#define HOROVOD_TF_COMMON_PROTOCOL_MESSAGE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/base/types.h"
#include "horovod_tf/common/protocol/id_set.h"

namespace horovod_tf {

inline constexpr std::uint16_t kWireMagic = 0x4856;
inline constexpr std::uint8_t kWireVersion = 4;
// Set 0 is all ranks. Others have a coordinator of their own and share nothing but the transport.
inline constexpr std::uint32_t kGlobalProcessSet = 0;

inline constexpr std::size_t kMaxTensorNameBytes = 4096;
inline constexpr std::size_t kMaxTensorRank = 254;

// What a join is called wherever tensors have names: one is in flight on a rank at a time.
inline constexpr std::string_view kJoinName = "HorovodJoin";

// What one rank asks for: one tensor, one collective.
struct Request {
  std::string name;
  CollectiveKind kind = CollectiveKind::kAllreduce;
  DataType dtype = DataType::kFloat32;
  // Of reductions; and a gather may be an Average, which divides all rows by the number of ranks.
  ReduceOp reduce_op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int root_rank = 0;        // broadcast only
  int device = kCpuDevice;  // kCpuDevice or a GPU's number
  TensorShape shape;
  // Kinds that split rows only: how many of dimension 0 are for each rank. None of a scalar.
  std::vector<std::int64_t> splits{};
};
bool operator==(const Request& a, const Request& b);
// Whether it is a gather whose rows are divided by the number of ranks that are there.
bool AveragesRows(const Request& request);
inline bool operator!=(const Request& a, const Request& b) { return !(a == b); }

// The splits of all ranks, in their order.
using SplitsOfRanks = std::vector<std::vector<std::int64_t>>;
// How many rows `rank` gets from each rank. REQUIRES: every rank's splits are complete.
std::vector<std::int64_t> RowsReceived(const SplitsOfRanks& splits, int rank);

// What all ranks agreed on for one tensor: the request, and what may differ from rank to rank. For
// ranks to compare with, `common.shape`'s dimension 0 is meaningless when rows may differ, as
// `common.splits` is, and `common.device` is meaningless always: they live in the vectors.
struct TensorDefinition {
  Request common;
  std::vector<std::int64_t> first_dims;  // one per rank if the kind gathers rows, else empty
  std::vector<int> devices;              // one per rank; empty: all on the CPU
  SplitsOfRanks splits{};                // if the kind splits rows, else empty
  // Ranks that have joined and bring nothing, increasing, never all; only of tensors executed once.
  std::vector<std::uint32_t> absent{};

  // The request that `rank` made.
  Request RequestOf(int rank) const;
  // Bytes of the (largest) buffer to move: of the output for a gather, else of the input.
  std::int64_t bytes() const;
};

// Rank -> coordinator, once, when starting.
struct Hello {
  std::string library_version;
  std::string host;
  // Settings that must be the same on all ranks (name, value): versions, chosen MPI, configuration.
  std::vector<std::pair<std::string, std::string>> agreements;
};

// Coordinator -> rank: go ahead, or why not.
struct Welcome {
  Status status;
  std::vector<std::string> hosts;  // by rank
};

// A tensor that its rank has asked for and does not want any more.
struct Withdrawal {
  std::string name;
  std::string reason;
  bool announced = true;  // by an earlier message; else nobody has to answer this
};

// Rank -> coordinator: what became ready here since the last one.
struct Announce {
  std::uint64_t applied = 0;      // log records this rank has applied
  std::vector<TensorId> known;    // ready, and equal to what the definition with this id says
  std::vector<Request> requests;  // ready, in full
  std::vector<Withdrawal> withdrawn;
  bool joins = false;     // this rank has no more data, after everything that it has announced
  bool shutdown = false;  // this rank asks everybody to stop
  std::string shutdown_reason;
};

// Records of the log. Every rank receives the same records in the same order and acts on them in
// that order: "same order everywhere" is a property of the log and of nothing else.
struct DefineRecord {  // `id` means this from now on (also replaces an older meaning)
  TensorId id = 0;
  TensorDefinition definition;
};
struct ExecuteRecord {  // one batch, run as one operation
  std::vector<TensorId> ids;
};
struct ExecuteOnceRecord {  // a batch of one tensor that has no id
  TensorDefinition definition;
};
struct ForgetRecord {  // these ids mean nothing any more
  std::vector<TensorId> ids;
};
struct ErrorRecord {  // this round of these tensors failed; everything else goes on
  std::vector<std::string> names;
  Status status;
  // Whom it is about, increasing; empty: all. The announcements of other ranks may be on their way.
  std::vector<std::uint32_t> ranks{};
};
struct ShutdownRecord {  // the last record
  int rank = 0;          // who asked
  Status status;         // why, as every waiting and later operation is told
};
struct JoinRecord {  // all ranks have joined, which ends it: all are present again
  int last_rank = 0;
};
using LogRecord = std::variant<DefineRecord, ExecuteRecord, ExecuteOnceRecord, ForgetRecord,
                               ErrorRecord, ShutdownRecord, JoinRecord>;

// Coordinator -> all ranks.
struct Log {
  std::uint64_t first_sequence = 0;  // number of the first record here
  std::vector<LogRecord> records;
};

// Rank 0 -> rank, or rank -> rank 0: are you there? Who is answers at once.
struct Inquiry {};

// A tensor that a rank has submitted and that has not been answered.
struct WaitingTensor {
  std::string name;
  std::uint64_t milliseconds = 0;            // since it was submitted
  std::vector<std::uint32_t> missing_ranks;  // increasing; known to rank 0 alone
};

// The answer: what the rank has done and waits for.
struct Report {
  std::uint64_t executed = 0;      // tensors that have been executed here; the same count on all
  std::string last;                // the last of them, for people: "allreduce of 'x'"; "" if none
  std::uint64_t milliseconds = 0;  // since then; since the job's start if there is none
  std::vector<WaitingTensor> waiting;  // the oldest first, at most kMaxWaitingInReport
};
inline constexpr std::size_t kMaxWaitingInReport = 20;

using Message = std::variant<Hello, Welcome, Announce, Log, Inquiry, Report>;

// "Announce", for error texts.
std::string_view MessageTypeName(const Message& message);

// What a decoder may believe about the world; values outside are refused.
struct DecodeLimits {
  int world_size = 1;
  // Tensor ids in one message, all its sets together: a run of millions takes a few bytes, so this
  // and not the size of the message is what bounds the memory to decode it.
  std::size_t max_ids = kMaxTensorIds;
};

std::string EncodeMessage(const Message& message, std::uint32_t process_set = kGlobalProcessSet);

// InvalidArgument with field and offset for anything but exactly one well-formed message.
Status DecodeMessage(std::string_view bytes, const DecodeLimits& limits, Message* message,
                     std::uint32_t* process_set);

// What a rank may submit: name not empty nor too long, shape representable, type known to the kind,
// root a rank, factors finite, splits complete. InvalidArgument names the tensor. Decoders apply it
// to peers' requests too.
Status ValidateRequest(const Request& request, int world_size);

// Splits of a kind that splits rows, if none were given: dimension 0 divided evenly.
// InvalidArgument if it cannot be.
Status CompleteSplits(Request* request, int world_size);

// Whether the rows of all ranks together are representable; InvalidArgument names the tensor.
// REQUIRES: `common` is valid, gathers rows and is not a scalar; first_dims >= 0.
Status ValidateGatheredSize(const Request& common, const std::vector<std::int64_t>& first_dims);

// Whether what each rank sends and what it gets is representable; InvalidArgument names the tensor.
// REQUIRES: the definition's kind splits rows; its splits are complete and >= 0.
Status ValidateExchangedSizes(const TensorDefinition& definition);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_PROTOCOL_MESSAGE_H_
