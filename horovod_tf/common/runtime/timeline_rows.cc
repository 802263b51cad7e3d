#include "horovod_tf/common/runtime/timeline_rows.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "horovod_tf/common/base/utf8.h"

namespace horovod_tf {
namespace {

// An event's beginning: {"ph":"B","pid":7,"ts":123
std::string EventHead(char phase, int pid, std::int64_t micros) {
  std::string text = "{\"ph\":\"";
  text += phase;
  text += "\",\"pid\":" + std::to_string(pid) + ",\"ts\":" + std::to_string(micros);
  return text;
}

std::string MetadataEvent(std::string_view name, int pid, std::string_view arguments) {
  std::string text = "{\"name\":\"";
  text.append(name).append("\",\"ph\":\"M\",\"pid\":" + std::to_string(pid) + ",\"args\":{");
  return text.append(arguments).append("}}");
}

}  // namespace

std::string JsonString(std::string_view text) {
  std::string json = "\"";
  while (!text.empty()) {
    const std::size_t length = Utf8Length(text);
    const char c = text.front();
    if (length == 0) {
      json += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      json.append({'\\', c});
    } else if (static_cast<unsigned char>(c) < ' ') {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(c));
      json += escape.data();
    } else {
      json += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return json + "\"";
}

void TimelineRows::Apply(const TimelineRecord& record, std::string_view name,
                         const TensorShape& shape) {
  // The end of what began before the file did.
  const bool begins =
      record.event == TimelineEvent::kRankReady || record.event == TimelineEvent::kStart;
  if (!begins && rows_.count(name) == 0) return;
  Row& row = RowOf(name);
  row.micros = std::max(row.micros, record.micros);
  switch (record.event) {
    case TimelineEvent::kRankReady:
      OnRankReady(row, record.kind, record.rank);
      break;
    case TimelineEvent::kNegotiated:
      // A round can be complete only after the operation of the one before has ended here.
      if (!row.early.empty()) EndOperation(row, "");
      EndNegotiation(row);
      break;
    case TimelineEvent::kStart:
      OnStart(row, record.kind);
      break;
    case TimelineEvent::kActivityStart:
      if (row.open == 0) break;  // its operation's beginning was lost
      WriteBegin(row, JsonString(record.activity));
      ++row.open;
      break;
    case TimelineEvent::kActivityEnd:
      if (row.open <= 1) break;  // its beginning was lost
      WriteEnd(row, "");
      --row.open;
      break;
    case TimelineEvent::kEnd:
      EndOperation(row, "\"dtype\":" + JsonString(Info(record.dtype).name) +
                            ",\"shape\":" + JsonString(shape.ToString()));
      break;
    case TimelineEvent::kEndWithError:
      EndOperation(row, "");
      break;
  }
}

void TimelineRows::OnLost(std::int64_t micros, std::uint64_t count) {
  CloseAll(micros);
  file_.Add(EventHead('i', 0, micros) + ",\"name\":\"RECORDS_DROPPED\",\"s\":\"g\",\"args\":{" +
            "\"count\":" + std::to_string(count) + "}}");
}

void TimelineRows::CloseAll(std::int64_t micros) {
  for (auto& [name, row] : rows_) {
    row.micros = std::max(row.micros, micros);
    EndOperation(row, "");
    EndNegotiation(row);
  }
}

TimelineRows::Row& TimelineRows::RowOf(std::string_view name) {
  const auto it = rows_.find(name);
  if (it != rows_.end()) return it->second;
  Row& row = rows_[std::string(name)];
  row.pid = static_cast<int>(rows_.size());
  file_.Add(MetadataEvent("process_name", row.pid, "\"name\":" + JsonString(name)));
  file_.Add(
      MetadataEvent("process_sort_index", row.pid, "\"sort_index\":" + std::to_string(row.pid)));
  return row;
}

void TimelineRows::OnRankReady(Row& row, CollectiveKind kind, int rank) {
  if (row.open > 0) {
    row.early.push_back({kind, rank});
    return;
  }
  if (!row.negotiating) {
    WriteBegin(row, JsonString(Info(kind).negotiate_label));
    row.negotiating = true;
  }
  WriteTick(row, rank);
}

void TimelineRows::OnStart(Row& row, CollectiveKind kind) {
  EndOperation(row, "");
  EndNegotiation(row);
  WriteBegin(row, JsonString(Info(kind).label));
  row.open = 1;
}

void TimelineRows::EndNegotiation(Row& row) {
  if (!row.negotiating) return;
  WriteEnd(row, "");
  row.negotiating = false;
}

void TimelineRows::EndOperation(Row& row, std::string_view arguments) {
  for (; row.open > 0; --row.open) WriteEnd(row, row.open == 1 ? arguments : "");
  for (const EarlyRank& early : std::exchange(row.early, {})) {
    OnRankReady(row, early.kind, early.rank);
  }
}

void TimelineRows::WriteBegin(const Row& row, std::string_view json_name) {
  file_.Add(EventHead('B', row.pid, row.micros).append(",\"name\":").append(json_name).append("}"));
}

void TimelineRows::WriteTick(const Row& row, int rank) {
  file_.Add(EventHead('X', row.pid, row.micros) + ",\"dur\":0,\"name\":\"" + std::to_string(rank) +
            "\"}");
}

void TimelineRows::WriteEnd(const Row& row, std::string_view arguments) {
  std::string event = EventHead('E', row.pid, row.micros);
  if (!arguments.empty()) event.append(",\"args\":{").append(arguments).append("}");
  file_.Add(event + "}");
}

}  // namespace horovod_tf
