#include "horovod_tf/common/protocol/inquiries.h"

#include <gtest/gtest.h>

#include <numeric>

namespace horovod_tf {
namespace {

TimePoint At(double seconds) { return TimePoint() + FromSeconds(seconds); }

TEST(Inquiries, Lead_IsShortAndShorterThanTheWait) {
  StallOptions options;
  options.warning_time = FromSeconds(60);
  EXPECT_EQ(InquiryLead(options), FromSeconds(2));
  options.shutdown_time = FromSeconds(4);
  EXPECT_EQ(InquiryLead(options), FromSeconds(1));
  options.warning_time = FromSeconds(0.1);
  EXPECT_EQ(InquiryLead(options), FromSeconds(0.025));
}

TEST(Inquiries, EachComplaint_AsksOnceAndALittleBefore) {
  Inquiries inquiries(FromSeconds(2));
  EXPECT_EQ(inquiries.NextAsk(kNever), kNever);
  EXPECT_EQ(inquiries.NextAsk(At(60)), At(58));
  EXPECT_TRUE(inquiries.Ask(At(60), {1, 2}, At(57)).empty());
  EXPECT_EQ(inquiries.Ask(At(60), {1, 2}, At(58)), (std::vector<int>{1, 2}));
  EXPECT_EQ(inquiries.NextAsk(At(60)), At(60));
  EXPECT_TRUE(inquiries.Ask(At(60), {1, 2}, At(59)).empty());
  inquiries.OnReport(1, Report(), At(59));
  EXPECT_EQ(inquiries.NextAsk(At(120)), At(118));
  EXPECT_EQ(inquiries.Ask(At(120), {1, 2, 3}, At(118)), (std::vector<int>{1, 3}));
}

TEST(Inquiries, Describe_SaysWhatTheRanksDo) {
  Inquiries inquiries(FromSeconds(2));
  EXPECT_EQ(inquiries.Ask(At(60), {1, 2, 3, 4}, At(58)).size(), 4u);
  inquiries.OnReport(1, Report{4, "allreduce of 'a'", 58500, {}}, At(58.5));
  inquiries.OnReport(2, Report{0, "", 3000, {}}, At(59));
  inquiries.OnReport(3, Report{7, "broadcast of 'b'", 50000, {{"c", 40000, {}}}}, At(58));
  EXPECT_EQ(inquiries.Describe({1, 2, 3, 4, 5}, At(60)),
            "\nRank 1 is in user code for 60 s, since allreduce of 'a', its collective 4."
            "\nRank 2 is in user code for 4 s, since hvd.init()."
            "\nRank 3 waits for 'c' (for 42 s); 52 s ago it finished broadcast of 'b', its "
            "collective 7."
            "\nRank 4 has not answered for 2 s: its process is stopped or overloaded, its host is "
            "out of reach, or it is in the middle of a long operation.");
}

TEST(Inquiries, WhoFallsSilent_IsDescribedByWhatItDidBefore) {
  Inquiries inquiries(FromSeconds(2));
  inquiries.OnReport(1, Report{4, "allreduce of 'a'", 0, {}}, At(10));
  EXPECT_EQ(inquiries.Ask(At(60), {1}, At(58)).size(), 1u);
  EXPECT_EQ(inquiries.Describe({1}, At(58)), "\nRank 1 is being asked what it does.");
  const std::string text = inquiries.Describe({1}, At(60));
  EXPECT_NE(text.find("Rank 1 has not answered for 2 s"), std::string::npos) << text;
  EXPECT_NE(text.find("Its last answer: it is in user code for 50 s"), std::string::npos) << text;
}

TEST(Inquiries, ManyTensorsAndRanks_AreCutShort) {
  Report report;
  for (int i = 0; i < 5; ++i) report.waiting.push_back({"t" + std::to_string(i), 1000, {}});
  const std::string text = DescribeReport(report, Duration::zero());
  EXPECT_NE(text.find("'t2' (for 1 s) and 2 more"), std::string::npos) << text;
  EXPECT_EQ(text.find("'t3'"), std::string::npos) << text;

  Inquiries inquiries(FromSeconds(2));
  std::vector<int> ranks(50);
  std::iota(ranks.begin(), ranks.end(), 0);
  inquiries.Ask(At(60), ranks, At(58));
  const std::string lines = inquiries.Describe(ranks, At(60));
  EXPECT_NE(lines.find("Rank 19 "), std::string::npos);
  EXPECT_EQ(lines.find("Rank 20 "), std::string::npos);
  EXPECT_NE(lines.find("... and 30 ranks more"), std::string::npos);
}

}  // namespace
}  // namespace horovod_tf
