#include "horovod_tf/common/base/logging.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace horovod_tf {
namespace {

using std::chrono::seconds;

TEST(LogLevel, Names_AreUnderstoodInAnyCaseAndNothingElseIs) {
  const std::vector<std::pair<std::string, LogLevel>> rows = {
      {"trace", LogLevel::kTrace},     {"debug", LogLevel::kDebug}, {"info", LogLevel::kInfo},
      {"warning", LogLevel::kWarning}, {"error", LogLevel::kError}, {"fatal", LogLevel::kFatal}};
  for (const auto& [name, level] : rows) {
    EXPECT_EQ(LogLevelFromName(name), level);
    EXPECT_EQ(LogLevelName(level), name);
  }
  EXPECT_EQ(LogLevelFromName("WARNING"), LogLevel::kWarning);
  EXPECT_EQ(LogLevelFromName("Info"), LogLevel::kInfo);
  for (const char* word : {"", "warn", "warnings", "3", " info", "err or"}) {
    EXPECT_FALSE(LogLevelFromName(word).has_value()) << word;
  }
}

// The lines that a logger wrote.
struct Lines {
  Logger::Sink sink() {
    return [this](std::string_view line) { lines.emplace_back(line); };
  }
  std::vector<std::string> lines;
};

TEST(Logger, LevelsBelowItsOwn_AreNotWritten) {
  Lines out;
  const Logger logger(LogLevel::kWarning, true, out.sink());
  EXPECT_FALSE(logger.Enabled(LogLevel::kInfo));
  EXPECT_TRUE(logger.Enabled(LogLevel::kWarning));
  logger.Log(LogLevel::kInfo, "quiet");
  logger.Log(LogLevel::kWarning, "loud");
  logger.Log(LogLevel::kFatal, "loudest");
  EXPECT_EQ(out.lines, (std::vector<std::string>{"[horovod_tf] warning: loud\n",
                                                 "[horovod_tf] fatal: loudest\n"}));
}

TEST(Logger, Prefix_NamesTheRankOnceItIsKnown) {
  Lines out;
  Logger logger(LogLevel::kInfo, true, out.sink());
  logger.Log(LogLevel::kInfo, "before");
  logger.set_rank(2);
  logger.Log(LogLevel::kInfo, "after");
  logger.set_rank(0);
  logger.Log(LogLevel::kInfo, "zero");
  EXPECT_EQ(out.lines, (std::vector<std::string>{"[horovod_tf] info: before\n",
                                                 "[horovod_tf rank 2] info: after\n",
                                                 "[horovod_tf rank 0] info: zero\n"}));
}

TEST(Logger, Prefix_HasTheTimeUnlessHidden) {
  Lines out;
  Logger logger(LogLevel::kInfo, false, out.sink());
  logger.set_rank(7);
  logger.Log(LogLevel::kError, "text");
  ASSERT_EQ(out.lines.size(), 1u);
  std::string form = out.lines[0];
  std::replace_if(
      form.begin(), form.end(), [](char c) { return c >= '0' && c <= '9'; }, '9');
  EXPECT_EQ(form, "[9999-99-99 99:99:99.999 horovod_tf rank 9] error: text\n") << out.lines[0];
}

TEST(Logger, FurtherLinesOfAText_AreIndentedInTheSameRecord) {
  Lines out;
  const Logger logger(LogLevel::kInfo, true, out.sink());
  logger.Log(LogLevel::kInfo, "one\ntwo\nthree\n\n");
  EXPECT_EQ(out.lines, (std::vector<std::string>{"[horovod_tf] info: one\n    two\n    three\n"}));
}

TEST(Logger, SeveralThreads_EachRecordStaysWhole) {
  std::mutex mutex;
  std::vector<std::string> lines;
  Logger logger(LogLevel::kInfo, true, [&](std::string_view line) {
    const std::lock_guard<std::mutex> lock(mutex);
    lines.emplace_back(line);
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&logger, t] {
      for (int i = 0; i < 100; ++i) {
        logger.set_rank(5);
        logger.Log(LogLevel::kInfo, std::to_string(1000 * t + i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<int> seen(3000, 0);
  for (const std::string& line : lines) {
    const std::string prefix = "[horovod_tf rank 5] info: ";
    ASSERT_EQ(line.substr(0, prefix.size()), prefix);
    ++seen.at(static_cast<std::size_t>(std::stoi(line.substr(prefix.size()))));
  }
  ASSERT_EQ(lines.size(), 300u);
  for (int t = 0; t < 3; ++t) {
    for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(1000 * t + i)], 1);
  }
}

// Runs `body` with standard error going to `fd`.
template <typename Body>
void WithStderr(int fd, const Body& body) {
  const int saved = ::dup(STDERR_FILENO);
  ASSERT_GE(saved, 0);
  ASSERT_GE(::dup2(fd, STDERR_FILENO), 0);
  body();
  ASSERT_GE(::dup2(saved, STDERR_FILENO), 0);
  ::close(saved);
}

TEST(Logger, StandardError_GetsEachRecordInOneWrite) {
  // A datagram socket would show each write apart; a pipe in packet mode does as well.
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_DIRECT | O_NONBLOCK), 0);
  WithStderr(ends[1], [] {
    Logger logger(LogLevel::kInfo, /*hide_time=*/true);
    logger.set_rank(3);
    logger.Log(LogLevel::kInfo, "first\nmore");
    logger.Log(LogLevel::kDebug, "not written");
    logger.Log(LogLevel::kError, "second");
  });
  std::vector<std::string> packets;
  char text[1000];
  for (ssize_t n = 0; (n = ::read(ends[0], text, sizeof(text))) > 0;) {
    packets.emplace_back(text, static_cast<std::size_t>(n));
  }
  EXPECT_EQ(packets, (std::vector<std::string>{"[horovod_tf rank 3] info: first\n    more\n",
                                               "[horovod_tf rank 3] error: second\n"}));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Logger, StandardErrorThatTakesNothing_IsGivenUp) {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  const auto start = std::chrono::steady_clock::now();
  WithStderr(full, [] { Logger().Log(LogLevel::kError, "nobody reads this"); });
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(10));
  ::close(full);
}

TEST(RateLimiter, WithinTheInterval_HoldsBackAndCounts) {
  RateLimiter limiter(seconds(10));
  const TimePoint start{seconds(1000)};
  std::uint64_t suppressed = 99;
  EXPECT_TRUE(limiter.Allow(start, &suppressed));
  EXPECT_EQ(suppressed, 0u);
  EXPECT_FALSE(limiter.Allow(start, &suppressed));
  EXPECT_FALSE(limiter.Allow(start + seconds(4), &suppressed));
  EXPECT_FALSE(limiter.Allow(start + seconds(10) - Duration(1), &suppressed));
  EXPECT_TRUE(limiter.Allow(start + seconds(10), &suppressed));
  EXPECT_EQ(suppressed, 3u);
  EXPECT_FALSE(limiter.Allow(start + seconds(19), &suppressed));
  EXPECT_TRUE(limiter.Allow(start + seconds(35), &suppressed));
  EXPECT_EQ(suppressed, 1u);
  EXPECT_TRUE(limiter.Allow(start + seconds(45), &suppressed));
  EXPECT_EQ(suppressed, 0u);
}

TEST(RateLimiter, TimesBeforeTheLast_AreWithinTheInterval) {
  RateLimiter limiter(seconds(10));
  std::uint64_t suppressed = 0;
  EXPECT_TRUE(limiter.Allow(TimePoint{seconds(100)}, &suppressed));
  EXPECT_FALSE(limiter.Allow(TimePoint{seconds(50)}, &suppressed));
  EXPECT_FALSE(limiter.Allow(TimePoint{seconds(109)}, &suppressed));
}

TEST(RateLimiter, ExtremeIntervals_LetAllOrOneThrough) {
  RateLimiter all(Duration::zero());
  RateLimiter one(Duration::max());
  std::uint64_t suppressed = 0;
  EXPECT_TRUE(one.Allow(TimePoint{seconds(1)}, &suppressed));
  for (int i = 2; i < 10; ++i) {
    EXPECT_TRUE(all.Allow(TimePoint{seconds(i)}, &suppressed));
    EXPECT_EQ(suppressed, 0u);
    EXPECT_FALSE(one.Allow(TimePoint{seconds(i)}, &suppressed));
  }
}

}  // namespace
}  // namespace horovod_tf
