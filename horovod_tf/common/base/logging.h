// Logging: one Logger per runtime, handed to whoever needs it. One line per record on stderr,
// written with a single write so that lines of several ranks do not mix:
//   [2026-12-01 09:00:00.123 horovod_tf rank 2] warning: text
#ifndef HOROVOD_TF_COMMON_BASE_LOGGING_H_
#define HOROVOD_TF_COMMON_BASE_LOGGING_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "horovod_tf/common/base/clock.h"

namespace horovod_tf {

enum class LogLevel : int { kTrace = 0, kDebug, kInfo, kWarning, kError, kFatal };

// "trace", "debug", ... in any case; nothing for another word.
std::optional<LogLevel> LogLevelFromName(std::string_view name);
std::string_view LogLevelName(LogLevel level);

// Thread rule: safe for use from any thread.
class Logger {
 public:
  // Receives one complete line, newline included.
  using Sink = std::function<void(std::string_view line)>;

  explicit Logger(LogLevel level = LogLevel::kWarning, bool hide_time = false);
  // For tests and embedders: lines go to `sink`, which may be called from several threads at once.
  Logger(LogLevel level, bool hide_time, Sink sink);

  // The prefix says so behind the rank: "process set 1 [0, 2]". Before it is used by several
  // threads.
  void set_part(std::string part) { part_ = std::move(part); }
  // The prefix says "rank N" from now on.
  void set_rank(int rank) { rank_.store(rank, std::memory_order_relaxed); }
  bool Enabled(LogLevel level) const { return level >= level_; }
  // Newlines inside `text` are kept, each further line indented, still in one write.
  void Log(LogLevel level, std::string_view text) const;

 private:
  std::string FormatLine(LogLevel level, std::string_view text) const;

  const LogLevel level_;
  const bool hide_time_;
  const Sink sink_;
  std::atomic<int> rank_{-1};
  std::string part_;
};

// Lets something through at most once per interval and counts what it held back. Pure: time is an
// argument. Thread rule: one thread at a time.
class RateLimiter {
 public:
  explicit RateLimiter(Duration interval) : interval_(interval) {}
  // True if this one may pass; `suppressed` then says how many did not since the last that passed.
  bool Allow(TimePoint now, std::uint64_t* suppressed);

 private:
  const Duration interval_;
  std::optional<TimePoint> last_;
  std::uint64_t held_back_ = 0;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_BASE_LOGGING_H_
