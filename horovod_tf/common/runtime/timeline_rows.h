// TimelineRows: turns what was reported about tensors into the events of a Chrome trace.
#ifndef HOROVOD_TF_COMMON_RUNTIME_TIMELINE_ROWS_H_
#define HOROVOD_TF_COMMON_RUNTIME_TIMELINE_ROWS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "horovod_tf/common/base/types.h"
#include "horovod_tf/common/runtime/json_array_file.h"

namespace horovod_tf {

enum class TimelineEvent : std::uint8_t {
  kRankReady,
  kNegotiated,
  kStart,
  kActivityStart,
  kActivityEnd,
  kEnd,
  kEndWithError,
};

// What was reported, without the parts of variable length. Trivially copyable.
struct TimelineRecord {
  std::int64_t micros = 0;  // since the timeline was opened
  std::string_view activity;
  int rank = 0;
  TimelineEvent event = TimelineEvent::kEnd;
  CollectiveKind kind = CollectiveKind::kAllreduce;
  DataType dtype = DataType::kUInt8;
};

// A row ("process" in the trace) per tensor, in order of first appearance. Whatever is lost between
// records, every span that is closed was opened, spans nest, and time never runs backwards in a
// row.
//
// Thread rule: one thread at a time.
class TimelineRows {
 public:
  // `file` outlives this.
  explicit TimelineRows(JsonArrayFile& file) : file_(file) {}

  // `shape` is looked at for kEnd only.
  void Apply(const TimelineRecord& record, std::string_view name, const TensorShape& shape);
  // `count` records were lost here. All that is open is closed: what comes next cannot be told to
  // belong to it. The trace says so.
  void OnLost(std::int64_t micros, std::uint64_t count);
  void CloseAll(std::int64_t micros);

 private:
  // A rank that was ready for a tensor's next round before this one's operation had ended.
  struct EarlyRank {
    CollectiveKind kind;
    int rank;
  };
  struct Row {
    int pid = 0;
    std::int64_t micros = 0;  // of the latest event
    bool negotiating = false;
    int open = 0;  // the operation and the activities in it
    std::vector<EarlyRank> early;
  };

  Row& RowOf(std::string_view name);
  void OnRankReady(Row& row, CollectiveKind kind, int rank);
  void OnStart(Row& row, CollectiveKind kind);
  void EndNegotiation(Row& row);
  // Closes the operation, with `arguments` in its closing event, and opens the negotiation that
  // began while it ran. Nothing if there is none.
  void EndOperation(Row& row, std::string_view arguments);
  void CloseRow(Row& row);

  void WriteBegin(const Row& row, std::string_view name);
  void WriteTick(const Row& row, int rank);
  void WriteEnd(const Row& row, std::string_view arguments);

  JsonArrayFile& file_;
  std::map<std::string, Row, std::less<>> rows_;
};

// A JSON string literal, quotes included, for any bytes: what is not UTF-8 is replaced.
std::string JsonString(std::string_view text);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_TIMELINE_ROWS_H_
