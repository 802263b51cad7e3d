#include "horovod_tf/common/runtime/status_desk.h"

#include <gtest/gtest.h>

#include <thread>

#include "test/cpp/support/local_cluster.h"

namespace horovod_tf {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(StatusDesk, AQuestion_IsTakenOnceAndAnsweredInTwoParts) {
  StatusDesk desk(Clock::Real());
  EXPECT_FALSE(desk.TakeQuestion());
  std::thread background;
  const StatusAnswer answer = desk.Ask(
      [&] {
        background = std::thread([&] {
          EXPECT_TRUE(desk.TakeQuestion());
          EXPECT_FALSE(desk.TakeQuestion());
          desk.SayHere(Report{3, "allreduce of 'a'", 5, {{"b", 4, {}}}}, /*complete=*/false);
          desk.SayWaiting({{"b", 4, {1}}});
        });
      },
      TestDeadline());
  background.join();
  EXPECT_TRUE(answer.here);
  EXPECT_TRUE(answer.complete);
  EXPECT_EQ(answer.report.executed, 3u);
  ASSERT_EQ(answer.waiting.size(), 1u);
  EXPECT_EQ(answer.waiting[0].missing_ranks, std::vector<std::uint32_t>{1});
}

TEST(StatusDesk, NoAnswer_EndsAtTheDeadlineAndIsNotTakenForTheNextOne) {
  StatusDesk desk(Clock::Real());
  EXPECT_FALSE(desk.Ask([] {}, AfterDelay(Clock::Real().Now(), FromSeconds(0.02))).here);
  desk.SayWaiting({{"late", 1, {1}}});
  const StatusAnswer next = desk.Ask([&] { desk.SayHere(Report(), false); },
                                     AfterDelay(Clock::Real().Now(), FromSeconds(0.02)));
  EXPECT_TRUE(next.here);
  EXPECT_FALSE(next.complete);
  EXPECT_TRUE(next.waiting.empty());
}

TEST(StatusText, SaysWhatIsKnownAndWhatIsNot) {
  StatusAnswer answer;
  EXPECT_TRUE(
      Has(StatusText(answer, 1, 4, "node-7", "A=1"), "rank 1 of 4 on node-7 does not answer"));
  answer.here = true;
  answer.complete = true;
  answer.report = Report{4, "allreduce of 'a'", 2000, {}};
  EXPECT_EQ(StatusText(answer, 1, 4, "node-7", "A=1\nB=2"),
            "rank 1 of 4 on node-7 is in user code for 2 s, since allreduce of 'a', its "
            "collective 4\nenvironment in force:\nA=1\nB=2");
  answer.report.waiting = {{"b", 61000, {}}};
  answer.waiting = {{"b", 60000, {0, 1, 3}}};
  const std::string text = StatusText(answer, 2, 4, "node-7", "A=1");
  EXPECT_TRUE(Has(text, "\nwaiting on this rank:\n  'b' for 61 s\n")) << text;
  EXPECT_TRUE(Has(text, "as rank 0 sees it:\n  'b' for 60 s [missing ranks: 0-1, 3]\n")) << text;
  answer.complete = false;
  EXPECT_TRUE(
      Has(StatusText(answer, 2, 4, "h", ""), "rank 0, which knows who is missing, has not"));
}

TEST(RuntimeStatus, EveryRank_NamesWhoIsMissing) {
  LocalCluster cluster(3);
  ASSERT_TRUE(cluster.Started());
  ASSERT_TRUE(cluster.Works(TestSpec{"first"}));
  const std::string idle = cluster.rank(2).Describe();
  EXPECT_TRUE(Has(idle, "rank 2 of 3 on ") &&
              Has(idle, "since allreduce of 'first', its collective 1"))
      << idle;
  const std::vector<TestTensorPtr> open = {Submit(cluster.rank(0), TestSpec{"open"}, 0, 3),
                                           Submit(cluster.rank(2), TestSpec{"open"}, 2, 3)};
  for (const int rank : {0, 2}) {
    std::string text;
    const TimePoint deadline = TestDeadline();
    // The other's announcement may be on its way.
    while (!Has(text, "[missing ranks: 1]") && Clock::Real().Now() < deadline) {
      text = cluster.rank(rank).Describe();
    }
    EXPECT_TRUE(Has(text, "waiting on this rank:\n  'open' for ")) << text;
    EXPECT_TRUE(Has(text, "[missing ranks: 1]")) << text;
    EXPECT_TRUE(Has(text, "HOROVOD_FUSION_THRESHOLD=")) << text;
  }
  EXPECT_TRUE(Has(cluster.rank(1).Describe(), "is in user code for"));
  for (const Status& status : cluster.Stop("enough")) EXPECT_TRUE(status.ok()) << status;
  const std::string after = cluster.rank(1).Describe();
  EXPECT_TRUE(Has(after, "takes no more tensors: ") && Has(after, "enough")) << after;
}

}  // namespace
}  // namespace horovod_tf
