#include "horovod_tf/common/runtime/timeline.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "horovod_tf/common/runtime/json_array_file.h"
#include "horovod_tf/common/runtime/timeline_rows.h"
#include "test/cpp/support/json_check.h"
#include "test/cpp/support/timeline_fixture.h"

namespace horovod_tf {
namespace {

using std::chrono::milliseconds;

constexpr CollectiveKind kAllreduce = CollectiveKind::kAllreduce;

TEST(JsonCheck, TheCheckerOfTheseTests_RefusesWhatIsNotJson) {
  std::string error;
  for (const char* text : {"[]", "[\n{}\n]\n", "{\"a\":[1,-2.5e+3,true,null,\"\\u00e4\\n\"]}"}) {
    EXPECT_TRUE(ParseJson(text, &error).has_value()) << text << ": " << error;
  }
  for (const char* text : {"",
                           "[",
                           "[1,]",
                           "[1 2]",
                           "[,1]",
                           "[1]]",
                           "[1],",
                           "{\"a\":1,}",
                           "{a:1}",
                           "{\"a\" 1}",
                           "{\"a\":1,\"a\":2}",
                           "[01]",
                           "[1.]",
                           "[nul]",
                           "[\"a]",
                           "[\"\n\"]",
                           "[\"\\x\"]",
                           "[\"\\u12\"]",
                           "[\"\xff\"]",
                           "[\"\xc0\x80\"]",
                           "[\"\xed\xa0\x80\"]",
                           "[+1]",
                           "[NaN]"}) {
    EXPECT_FALSE(ParseJson(text, &error).has_value()) << text;
  }
}

TEST_F(TimelineTest, OneTensor_HasNegotiationTicksActivitiesAndResult) {
  clock_.set_micros(1000000);
  const std::unique_ptr<Timeline> timeline = Open();
  const auto at = [this](std::int64_t micros) { clock_.set_micros(1000000 + micros); };
  at(10);
  timeline->OnRankReady("grad/a", kAllreduce, 2);
  at(25);
  timeline->OnRankReady("grad/a", kAllreduce, 0);
  at(40);
  timeline->OnNegotiated("grad/a");
  at(50);
  timeline->Start("grad/a", kAllreduce);
  at(51);
  timeline->ActivityStart("grad/a", "MEMCPY_IN_FUSION_BUFFER");
  at(60);
  timeline->ActivityEnd("grad/a");
  timeline->ActivityStart("grad/a", "MPI_ALLREDUCE");
  at(75);
  timeline->ActivityEnd("grad/a");
  at(80);
  timeline->End("grad/a", DataType::kFloat32, TensorShape({2, 3}));
  timeline->Flush(Soon());
  EXPECT_EQ(Row("grad/a"), (Words{"B:NEGOTIATE_ALLREDUCE@10", "X:2@10", "X:0@25", "E@40",
                                  "B:ALLREDUCE@50", "B:MEMCPY_IN_FUSION_BUFFER@51", "E@60",
                                  "B:MPI_ALLREDUCE@60", "E@75", "E:float32[2, 3]@80"}));
  EXPECT_EQ(OpenSpans(), 0u);
}

TEST_F(TimelineTest, Events_HaveTheFieldsOfAChromeTrace) {
  const std::unique_ptr<Timeline> timeline = Open();
  timeline->OnRankReady("t", kAllreduce, 5);
  timeline->OnNegotiated("t");
  timeline->Flush(Soon());
  const std::vector<Json> events = Elements();
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[0]["ph"].string, "M");
  EXPECT_GT(events[0]["args"]["start_time_since_epoch_in_micros"].number, 1e15);
  EXPECT_EQ(events[1]["name"].string, "process_name");
  EXPECT_EQ(events[1]["args"]["name"].string, "t");
  EXPECT_EQ(events[2]["name"].string, "process_sort_index");
  EXPECT_EQ(events[2]["args"]["sort_index"].number, 1);
  EXPECT_EQ(events[3]["ph"].string, "B");
  EXPECT_EQ(events[4]["ph"].string, "X");
  EXPECT_EQ(events[4]["name"].string, "5");
  EXPECT_EQ(events[4]["dur"].type, Json::Type::kNumber);
  EXPECT_EQ(events[4]["dur"].number, 0);
  EXPECT_EQ(events[5]["ph"].string, "E");
  EXPECT_EQ(events[5].object.count("name"), 0u);
}

TEST_F(TimelineTest, Kinds_HaveTheirOwnLabelsAndErrorsNoShape) {
  const std::unique_ptr<Timeline> timeline = Open();
  for (const CollectiveKindInfo& kind : CollectiveKinds()) {
    const std::string name(kind.name);
    timeline->OnRankReady(name, kind.kind, 1);
    timeline->OnNegotiated(name);
    timeline->Start(name, kind.kind);
    timeline->ActivityStart(name, "ALLOCATE_OUTPUT");
    timeline->EndWithError(name);
  }
  timeline->Flush(Soon());
  for (const CollectiveKindInfo& kind : CollectiveKinds()) {
    const std::string label(kind.label);
    EXPECT_EQ(Row(std::string(kind.name)),
              (Words{"B:NEGOTIATE_" + label + "@0", "X:1@0", "E@0", "B:" + label + "@0",
                     "B:ALLOCATE_OUTPUT@0", "E@0", "E@0"}));
  }
  EXPECT_EQ(OpenSpans(), 0u);
}

TEST_F(TimelineTest, Rows_AreNumberedInOrderOfAppearance) {
  const std::unique_ptr<Timeline> timeline = Open();
  for (const char* name : {"z", "a", "m", "a", "z"}) {
    timeline->Start(name, kAllreduce);
    timeline->End(name, DataType::kInt64, TensorShape());
  }
  timeline->Flush(Soon());
  EXPECT_EQ(RowNames(), (std::map<int, std::string>{{1, "z"}, {2, "a"}, {3, "m"}}));
  EXPECT_EQ(Row("a").size(), 4u);
  EXPECT_EQ(Row("m"), (Words{"B:ALLREDUCE@0", "E:int64[]@0"}));
}

TEST_F(TimelineTest, RankReadyForTheNextRoundDuringTheOperation_IsShownAtItsEnd) {
  const std::unique_ptr<Timeline> timeline = Open();
  timeline->Start("t", kAllreduce);
  clock_.set_micros(5);
  timeline->OnRankReady("t", kAllreduce, 1);
  clock_.set_micros(9);
  timeline->End("t", DataType::kBool, TensorShape({1}));
  clock_.set_micros(12);
  timeline->OnRankReady("t", kAllreduce, 0);
  timeline->OnNegotiated("t");
  timeline->Flush(Soon());
  EXPECT_EQ(Row("t"), (Words{"B:ALLREDUCE@0", "E:bool[1]@9", "B:NEGOTIATE_ALLREDUCE@9", "X:1@9",
                             "X:0@12", "E@12"}));
}

TEST_F(TimelineTest, EventsOutOfOrder_NeverUnbalanceARow) {
  std::unique_ptr<Timeline> timeline = Open();
  std::mt19937 random(20261201);
  for (int i = 0; i < 3000; ++i) {
    const std::string name = "t" + std::to_string(random() % 3);
    clock_.set_micros(i);
    switch (random() % 7) {
      case 0:
        timeline->OnRankReady(name, CollectiveKind::kAllgather, i);
        break;
      case 1:
        timeline->OnNegotiated(name);
        break;
      case 2:
        timeline->Start(name, CollectiveKind::kAllgather);
        break;
      case 3:
        timeline->ActivityStart(name, "MPI_ALLGATHER");
        break;
      case 4:
        timeline->ActivityEnd(name);
        break;
      case 5:
        timeline->End(name, DataType::kUInt16, TensorShape({i}));
        break;
      default:
        timeline->EndWithError(name);
    }
  }
  EXPECT_EQ(timeline->dropped(), 0u);
  timeline.reset();
  EXPECT_EQ(OpenSpans(), 0u);
  EXPECT_GT(Elements().size(), 1500u);
}

TEST_F(TimelineTest, Closing_EndsWhatIsOpen) {
  std::unique_ptr<Timeline> timeline = Open();
  timeline->OnRankReady("waiting", kAllreduce, 0);
  timeline->Start("running", kAllreduce);
  timeline->ActivityStart("running", "MPI_ALLREDUCE");
  timeline->Flush(Soon());
  EXPECT_EQ(OpenSpans(), 3u);
  clock_.set_micros(70);
  timeline.reset();
  EXPECT_EQ(OpenSpans(), 0u);
  EXPECT_EQ(Row("waiting"), (Words{"B:NEGOTIATE_ALLREDUCE@0", "X:0@0", "E@70"}));
}

TEST_F(TimelineTest, Closing_WritesEverythingQueued) {
  {
    const std::unique_ptr<Timeline> timeline = Open();
    for (int i = 0; i < 2000; ++i) {
      timeline->Start("t" + std::to_string(i), kAllreduce);
      timeline->End("t" + std::to_string(i), DataType::kFloat64, TensorShape({i}));
    }
  }
  EXPECT_EQ(RowNames().size(), 2000u);
  EXPECT_EQ(Row("t1999"), (Words{"B:ALLREDUCE@0", "E:float64[1999]@0"}));
  EXPECT_EQ(OpenSpans(), 0u);
}

TEST_F(TimelineTest, StrangeNames_AreEscapedAndKeptApart) {
  const std::string control("nul\0\x01\x1f\x7f\t\n", 9);
  const Words names = {"quote\"",
                       "back\\slash",
                       control,
                       "umlaut \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80",
                       "",
                       "</script>",
                       std::string(10000, 'n')};
  const std::vector<std::pair<std::string, std::string>> broken = {
      {"lone \xff!", "lone \xef\xbf\xbd!"},
      {"cut \xe2\x82", "cut \xef\xbf\xbd\xef\xbf\xbd"},
      {"overlong \xc0\x80", "overlong \xef\xbf\xbd\xef\xbf\xbd"},
      {"overlong \xf0\x80\x80\x80", "overlong \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
      {"half \xed\xa0\x80", "half \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
      {"beyond \xf4\x90\x80\x80", "beyond \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}};
  std::map<int, std::string> expected;
  const std::unique_ptr<Timeline> timeline = Open();
  int pid = 0;
  const auto report = [&](const std::string& name, const std::string& shown) {
    timeline->Start(name, kAllreduce);
    timeline->EndWithError(name);
    expected[++pid] = shown;
  };
  for (const std::string& name : names) report(name, name);
  for (const auto& [name, shown] : broken) report(name, shown);
  timeline->Flush(Soon());
  EXPECT_EQ(RowNames(), expected);
  EXPECT_EQ(OpenSpans(), 0u);
}

TEST_F(TimelineTest, FullQueue_DropsCountsAndSaysSo) {
  std::uint64_t dropped = 0;
  {
    const std::unique_ptr<Timeline> timeline = Open(/*capacity=*/8);
    // More than can be written meanwhile, whatever the machine: until something is dropped.
    const TimePoint deadline = Soon();
    for (std::int64_t i = 0; timeline->dropped() < 500 && Clock::Real().Now() < deadline; ++i) {
      const std::string name = "t" + std::to_string(i % 5);
      clock_.set_micros(i);
      timeline->OnRankReady(name, kAllreduce, 0);
      timeline->OnNegotiated(name);
      timeline->Start(name, kAllreduce);
      timeline->ActivityStart(name, "MPI_ALLREDUCE");
      timeline->ActivityEnd(name);
      timeline->End(name, DataType::kInt32, TensorShape({i}));
    }
    timeline->Flush(deadline);
    dropped = timeline->dropped();
    ASSERT_GE(dropped, 500u);
    EXPECT_EQ(DroppedAsWritten(), dropped);
    EXPECT_EQ(OpenSpans(), 0u);
    // It goes on afterwards.
    timeline->Start("after", kAllreduce);
    timeline->End("after", DataType::kInt8, TensorShape({4}));
  }
  EXPECT_EQ(Row("after").size(), 2u);
  EXPECT_EQ(DroppedAsWritten(), dropped);
  EXPECT_EQ(OpenSpans(), 0u);
}

TEST_F(TimelineTest, RecordThatCannotFit_IsDroppedAndTheOthersAreNot) {
  const std::unique_ptr<Timeline> timeline = Open(/*capacity=*/8);
  timeline->Start("before", kAllreduce);
  timeline->EndWithError("before");
  timeline->Flush(Soon());
  timeline->Start(std::string(1 << 20, 'x'), kAllreduce);
  timeline->Flush(Soon());
  timeline->Start("after", kAllreduce);
  timeline->EndWithError("after");
  timeline->Flush(Soon());
  EXPECT_EQ(timeline->dropped(), 1u);
  EXPECT_EQ(DroppedAsWritten(), 1u);
  EXPECT_EQ(RowNames(), (std::map<int, std::string>{{1, "before"}, {2, "after"}}));
}

TEST_F(TimelineTest, Gaps_StandWhereTheRecordsWereLost) {
  const std::unique_ptr<Timeline> timeline = Open(/*capacity=*/64);
  // Two of them do not fit in the queue at once, while the small ones after them would.
  const std::string large(40000, 'x');
  const TimePoint deadline = Soon();
  std::int64_t now = 0;
  while (timeline->dropped() < 100 && Clock::Real().Now() < deadline) {
    for (const std::string& name : {large, large, std::string("small"), std::string("small")}) {
      clock_.set_micros(++now);
      timeline->Start(name, kAllreduce);
    }
  }
  ASSERT_GE(timeline->dropped(), 100u);
  timeline->Flush(deadline);
  EXPECT_EQ(DroppedAsWritten(), timeline->dropped());
  double last = 0;
  for (const Json& event : Elements()) {
    if (event["ts"].type != Json::Type::kNumber) continue;
    ASSERT_GE(event["ts"].number, last);
    last = event["ts"].number;
  }
}

TEST_F(TimelineTest, EndOfAnActivityThatNeverBegan_LeavesTheOperationOpen) {
  const std::unique_ptr<Timeline> timeline = Open();
  timeline->ActivityStart("t", "BEFORE_THE_OPERATION");
  timeline->Start("t", kAllreduce);
  timeline->ActivityEnd("t");
  timeline->ActivityStart("t", "MPI_ALLREDUCE");
  clock_.set_micros(4);
  timeline->ActivityEnd("t");
  timeline->ActivityEnd("t");
  timeline->End("t", DataType::kBFloat16, TensorShape({6, 1}));
  timeline->Flush(Soon());
  EXPECT_EQ(Row("t"), (Words{"B:ALLREDUCE@0", "B:MPI_ALLREDUCE@0", "E@4", "E:bfloat16[6, 1]@4"}));
}

TEST_F(TimelineTest, LostRecords_CutTheSpansThatWereOpen) {
  JsonArrayFile file;
  ASSERT_TRUE(file.Open(path_, "{}").ok());
  TimelineRows rows(file);
  const auto apply = [&](TimelineEvent event, std::int64_t micros) {
    TimelineRecord record;
    record.event = event;
    record.micros = micros;
    record.activity = "MPI_BCAST";
    record.kind = CollectiveKind::kBroadcast;
    rows.Apply(record, "t", TensorShape({3}));
  };
  apply(TimelineEvent::kStart, 1);
  apply(TimelineEvent::kActivityStart, 2);
  apply(TimelineEvent::kRankReady, 3);  // early, for the next round
  rows.OnLost(10, 6);
  apply(TimelineEvent::kActivityEnd, 20);
  apply(TimelineEvent::kEnd, 21);
  apply(TimelineEvent::kNegotiated, 22);
  apply(TimelineEvent::kActivityStart, 23);
  apply(TimelineEvent::kStart, 30);
  apply(TimelineEvent::kEnd, 31);
  ASSERT_TRUE(file.Commit().ok());
  EXPECT_EQ(Row("t"),
            (Words{"B:BROADCAST@1", "B:MPI_BCAST@2", "E@10", "E@10", "B:NEGOTIATE_BROADCAST@10",
                   "X:0@10", "E@10", "B:BROADCAST@30", "E:uint8[3]@31"}));
  EXPECT_EQ(DroppedAsWritten(), 6u);
}

TEST_F(TimelineTest, FourThreads_LoseNothingAndStayApart) {
  constexpr int kThreads = 4;
  constexpr int kTensors = 300;
  {
    const std::unique_ptr<Timeline> timeline = Open();
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&timeline, t] {
        for (int i = 0; i < kTensors; ++i) {
          const std::string name = "t" + std::to_string(t) + "/" + std::to_string(i % 10);
          timeline->OnRankReady(name, kAllreduce, t);
          timeline->OnNegotiated(name);
          timeline->Start(name, kAllreduce);
          timeline->ActivityStart(name, "MPI_ALLREDUCE");
          timeline->End(name, DataType::kFloat32, TensorShape({t, i}));
          if (i % 100 == t) timeline->Flush(Soon());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(timeline->dropped(), 0u);
  }
  EXPECT_EQ(OpenSpans(), 0u);
  EXPECT_EQ(RowNames().size(), 40u);
  std::map<std::string, Words> rows = Rows();
  for (int t = 0; t < kThreads; ++t) {
    for (int i = 0; i < 10; ++i) {
      const Words& row = rows["t" + std::to_string(t) + "/" + std::to_string(i)];
      ASSERT_EQ(row.size(), 30u * 7u);
      EXPECT_EQ(row[1], "X:" + std::to_string(t) + "@0");
      EXPECT_EQ(row.back(),
                "E:float32[" + std::to_string(t) + ", " + std::to_string(290 + i) + "]@0");
    }
  }
}

TEST_F(TimelineTest, Idle_TheWriterSleeps) {
  const std::unique_ptr<Timeline> timeline = Open();
  timeline->Start("t", kAllreduce);
  timeline->Flush(Soon());
  std::this_thread::sleep_for(milliseconds(50));
  const auto usage = [] {
    rusage now{};
    ::getrusage(RUSAGE_SELF, &now);
    return now;
  };
  const rusage before = usage();
  std::this_thread::sleep_for(milliseconds(400));
  const rusage after = usage();
  // A tick of 10 ms would be 40 switches more than this thread's own.
  EXPECT_LT(after.ru_nvcsw - before.ru_nvcsw, 20);
}

}  // namespace
}  // namespace horovod_tf
