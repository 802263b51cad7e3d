#include "horovod_tf/common/base/logging.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <utility>

namespace horovod_tf {
namespace {

struct LevelRow {
  LogLevel level;
  std::string_view name;
};

constexpr std::array<LevelRow, 6> kLevels = {{
    {LogLevel::kTrace, "trace"},
    {LogLevel::kDebug, "debug"},
    {LogLevel::kInfo, "info"},
    {LogLevel::kWarning, "warning"},
    {LogLevel::kError, "error"},
    {LogLevel::kFatal, "fatal"},
}};

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  const auto same = [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  };
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), same);
}

// One write for the whole line, so that lines of several processes on one terminal do not mix. A
// pipe may still take only a part of a very long one; the rest follows. A log that cannot be
// written is given up: it is no reason to stop training.
void WriteToStderr(std::string_view line) {
  while (!line.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
    if (written > 0) {
      line.remove_prefix(static_cast<std::size_t>(written));
    } else if (written == 0 || errno != EINTR) {
      return;
    }
  }
}

// "2026-12-01 09:00:00.123", local time.
std::string WallTime() {
  using std::chrono::milliseconds;
  using std::chrono::system_clock;
  const system_clock::time_point now = system_clock::now();
  const std::time_t seconds = system_clock::to_time_t(now);
  const auto millis =
      std::chrono::duration_cast<milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts{};
  localtime_r(&seconds, &parts);
  std::array<char, 64> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
  std::snprintf(text.data() + length, text.size() - length, ".%03d", static_cast<int>(millis));
  return text.data();
}

}  // namespace

std::optional<LogLevel> LogLevelFromName(std::string_view name) {
  for (const LevelRow& row : kLevels) {
    if (EqualsIgnoringCase(name, row.name)) return row.level;
  }
  return std::nullopt;
}

std::string_view LogLevelName(LogLevel level) {
  for (const LevelRow& row : kLevels) {
    if (row.level == level) return row.name;
  }
  return "unknown";
}

Logger::Logger(LogLevel level, bool hide_time) : Logger(level, hide_time, WriteToStderr) {}

Logger::Logger(LogLevel level, bool hide_time, Sink sink)
    : level_(level), hide_time_(hide_time), sink_(std::move(sink)) {}

void Logger::Log(LogLevel level, std::string_view text) const {
  if (Enabled(level)) sink_(FormatLine(level, text));
}

std::string Logger::FormatLine(LogLevel level, std::string_view text) const {
  std::string line = "[";
  if (!hide_time_) line += WallTime() + " ";
  line += "horovod_tf";
  const int rank = rank_.load(std::memory_order_relaxed);
  if (rank >= 0) line += " rank " + std::to_string(rank);
  if (!part_.empty()) line += ", " + part_;
  line += "] ";
  line += LogLevelName(level);
  line += ": ";
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  for (const char c : text) {
    line += c;
    if (c == '\n') line += "    ";
  }
  line += '\n';
  return line;
}

bool RateLimiter::Allow(TimePoint now, std::uint64_t* suppressed) {
  if (last_.has_value() && now < AfterDelay(*last_, interval_)) {
    ++held_back_;
    return false;
  }
  last_ = now;
  *suppressed = std::exchange(held_back_, 0);
  return true;
}

}  // namespace horovod_tf
