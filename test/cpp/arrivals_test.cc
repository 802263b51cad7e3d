#include "horovod_tf/common/runtime/arrivals.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>

#include "horovod_tf/common/base/host_name.h"

namespace horovod_tf {
namespace {

// A rank of a job that no other test has.
Config RankOf(int rank, int size, int local_size) {
  static const std::string job = "test-" + std::to_string(getpid());
  Config config;
  config.launcher_size = size;
  config.launcher_rank = rank;
  config.launcher_local_size = local_size;
  config.launcher_job = job;
  return config;
}

std::string Host() {
  std::string host;
  EXPECT_TRUE(ReadHostName(&host).ok());
  return host;
}

std::string Seen(Arrivals& arrivals) {
  arrivals.Look();
  return arrivals.Describe();
}

TEST(Arrivals, RankThatHasNotCome_IsNamed) {
  Arrivals zero(RankOf(0, 2, 2));
  EXPECT_EQ(Seen(zero),
            "1 of 2 ranks arrived: missing rank 1. Arrived on host " + Host() + ": rank 0");
}

TEST(Arrivals, RanksThatHaveCome_SeeEachOther) {
  Arrivals zero(RankOf(0, 3, 3));
  Arrivals two(RankOf(2, 3, 3));
  const std::string text =
      "2 of 3 ranks arrived: missing rank 1. Arrived on host " + Host() + ": rank 0, rank 2";
  EXPECT_EQ(Seen(zero), text);
  EXPECT_EQ(Seen(two), text);
  Arrivals one(RankOf(1, 3, 3));
  EXPECT_EQ(Seen(zero),
            "3 of 3 ranks arrived. Arrived on host " + Host() + ": rank 0, rank 1, rank 2");
}

TEST(Arrivals, ProcessThatIsKilled_IsSaidToHaveGone) {
  Arrivals zero(RankOf(0, 2, 2));
  const Config config = RankOf(1, 2, 2);
  int arrived[2] = {};
  ASSERT_EQ(pipe(arrived), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    const Arrivals one(config);
    (void)!write(arrived[1], "x", 1);
    pause();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(arrived[0], &byte, 1), 1);
  EXPECT_EQ(Seen(zero), "2 of 2 ranks arrived. Arrived on host " + Host() + ": rank 0, rank 1");
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(Seen(zero), "2 of 2 ranks arrived. Arrived on host " + Host() +
                            ": rank 0. Arrived, and ended or gave up since: rank 1");
  close(arrived[0]);
  close(arrived[1]);
}

TEST(Arrivals, OtherHosts_AreNotSpokenOf) {
  Arrivals zero(RankOf(0, 4, 2));
  EXPECT_EQ(Seen(zero), "1 of 2 ranks of host " + Host() + " arrived. Arrived on host " + Host() +
                            ": rank 0. Ranks of other hosts cannot be seen from here");
}

TEST(Arrivals, AnotherJob_IsNotSeen) {
  Arrivals zero(RankOf(0, 2, 2));
  Config other = RankOf(1, 2, 2);
  other.launcher_job += "-other";
  const Arrivals one(other);
  EXPECT_NE(Seen(zero).find("missing rank 1"), std::string::npos);
}

TEST(Arrivals, ManyMissingRanks_AreCounted) {
  Arrivals zero(RankOf(0, 100, 100));
  const std::string text = Seen(zero);
  EXPECT_NE(text.find("rank 16 and 83 more"), std::string::npos) << text;
  EXPECT_EQ(text.find("rank 17"), std::string::npos) << text;
}

TEST(Arrivals, LauncherThatSaysTooLittle_IsNoReasonToGuess) {
  Config config = RankOf(0, 2, 2);
  config.launcher_job.clear();
  Arrivals no_job(config);
  EXPECT_EQ(Seen(no_job), "");
  Arrivals no_rank(RankOf(-1, 2, 2));
  EXPECT_EQ(Seen(no_rank), "");
  Arrivals no_launcher{Config()};
  EXPECT_EQ(Seen(no_launcher), "");
}

TEST(Arrivals, NameThatIsTaken_IsNoFailure) {
  Arrivals first(RankOf(0, 2, 2));
  Arrivals second(RankOf(0, 2, 2));
  EXPECT_EQ(Seen(second), "");
  EXPECT_NE(Seen(first), "");
}

}  // namespace
}  // namespace horovod_tf
