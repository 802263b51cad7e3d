#include "horovod_tf/common/runtime/tensor_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test/cpp/support/test_entry.h"

namespace horovod_tf {
namespace {

constexpr int kWorldSize = 4;
constexpr char kDuplicate[] =
    "with the same name as another tensor that is currently being processed";

class NoContext final : public OpContext {
 public:
  Status AllocateOutput(const TensorShape&, TensorView*) override {
    return Status::Unimplemented("not for running");
  }
};

std::vector<std::string> Names(const std::vector<TensorEntry>& entries) {
  std::vector<std::string> names;
  for (const TensorEntry& entry : entries) names.push_back(entry.request.name);
  return names;
}

bool Contains(const Status& status, const std::string& text) {
  return status.ToString().find(text) != std::string::npos;
}

TEST(TensorQueue, OneAdded_IsTakenWholeAndItsNameIsInFlightUntilItIsFinished) {
  TensorQueue queue(kWorldSize);
  TestEntry a("a", 3);
  bool was_empty = false;
  ASSERT_TRUE(queue.Add(Group(a.Make()), &was_empty).ok());
  EXPECT_TRUE(was_empty);
  EXPECT_EQ(queue.in_flight(), 1U);
  std::vector<TensorEntry> taken = queue.TakeNew();
  ASSERT_EQ(Names(taken), std::vector<std::string>{"a"});
  EXPECT_EQ(taken[0].input.data, a.input.data());
  EXPECT_EQ(taken[0].output.data, a.output.data());
  EXPECT_EQ(taken[0].request, a.request);
  EXPECT_EQ(queue.in_flight(), 1U);
  EXPECT_EQ(a.outcome->calls(), 0);
  taken[0].done.Finish(Status::Ok());
  EXPECT_EQ(queue.in_flight(), 0U);
  EXPECT_EQ(a.outcome->calls(), 1);
}

TEST(TensorQueue, SeveralAdded_AreTakenOnceInOrder) {
  TensorQueue queue(kWorldSize);
  TestEntry a("a", 1), b("b", 2), c("c", 3), d("d", 4);
  bool was_empty = false;
  ASSERT_TRUE(queue.Add(Group(b.Make(), a.Make()), &was_empty).ok());
  EXPECT_TRUE(was_empty);
  ASSERT_TRUE(queue.Add(Group(c.Make()), &was_empty).ok());
  EXPECT_FALSE(was_empty);
  std::vector<TensorEntry> first = queue.TakeNew();
  EXPECT_EQ(Names(first), (std::vector<std::string>{"b", "a", "c"}));
  EXPECT_TRUE(queue.TakeNew().empty());
  ASSERT_TRUE(queue.Add(Group(d.Make()), &was_empty).ok());
  EXPECT_TRUE(was_empty);
  EXPECT_EQ(Names(queue.TakeNew()), std::vector<std::string>{"d"});
}

TEST(TensorQueue, Withdrawals_AreTakenWithWhatWasAdded) {
  TensorQueue queue(kWorldSize);
  TestEntry a("a", 1), b("b", 2);
  bool was_empty = false;
  queue.Withdraw({7, {}, "no data"}, &was_empty);
  EXPECT_TRUE(was_empty);
  ASSERT_TRUE(queue.Add(Group(a.Make()), &was_empty).ok());
  EXPECT_FALSE(was_empty) << "the background thread has been woken";
  queue.Withdraw({8, {}, "no data"}, &was_empty);
  EXPECT_FALSE(was_empty);
  std::vector<TensorWithdrawal> withdrawn;
  EXPECT_EQ(Names(queue.TakeNew(&withdrawn)), std::vector<std::string>{"a"});
  ASSERT_EQ(withdrawn.size(), 2U);
  EXPECT_EQ(withdrawn[0].ticket, 7U);
  EXPECT_EQ(withdrawn[1].reason, "no data");
  withdrawn.clear();
  ASSERT_TRUE(queue.Add(Group(b.Make()), &was_empty).ok());
  EXPECT_TRUE(was_empty);
  queue.TakeNew(&withdrawn);
  EXPECT_TRUE(withdrawn.empty());
}

TEST(TensorQueue, Withdrawals_OfAClosedQueueAreDropped) {
  TensorQueue queue(kWorldSize);
  queue.Close(Status::Unknown("over"));
  bool was_empty = false;
  queue.Withdraw({7, {}, "no data"}, &was_empty);
  std::vector<TensorWithdrawal> withdrawn;
  queue.TakeNew(&withdrawn);
  EXPECT_TRUE(withdrawn.empty());
}

TEST(TensorQueue, EmptyGroup_IsNothing) {
  TensorQueue queue(kWorldSize);
  bool was_empty = true;
  EXPECT_TRUE(queue.Add({}, &was_empty).ok());
  EXPECT_FALSE(was_empty);
  EXPECT_TRUE(queue.Add({}, nullptr).ok());
}

TEST(TensorQueue, NameInFlight_RefusesTheWholeGroupAndKeepsTheFirst) {
  TensorQueue queue(kWorldSize);
  TestEntry first("grad/x", 2), other("other", 2), again("grad/x", 2);
  ASSERT_TRUE(queue.Add(Group(first.Make()), nullptr).ok());
  bool was_empty = true;
  const Status status = queue.Add(Group(other.Make(), again.Make()), &was_empty);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Contains(status, kDuplicate)) << status;
  EXPECT_TRUE(Contains(status, "'grad/x'")) << status;
  EXPECT_FALSE(was_empty);
  EXPECT_EQ(other.outcome->calls(), 1);
  EXPECT_EQ(again.outcome->calls(), 1);
  EXPECT_EQ(other.outcome->status().ToString(), status.ToString());
  EXPECT_EQ(first.outcome->calls(), 0);
  EXPECT_EQ(queue.in_flight(), 1U);
  EXPECT_EQ(Names(queue.TakeNew()), std::vector<std::string>{"grad/x"});
  // The refused one's name is free.
  TestEntry retry("other", 2);
  EXPECT_TRUE(queue.Add(Group(retry.Make()), nullptr).ok());
}

TEST(TensorQueue, RefusedDuplicate_DoesNotFreeTheNameOfTheOneInFlight) {
  TensorQueue queue(kWorldSize);
  TestEntry first("x", 1), second("x", 1), third("x", 1);
  ASSERT_TRUE(queue.Add(Group(first.Make()), nullptr).ok());
  EXPECT_FALSE(queue.Add(Group(second.Make()), nullptr).ok());
  EXPECT_FALSE(queue.Add(Group(third.Make()), nullptr).ok());
  EXPECT_EQ(queue.in_flight(), 1U);
}

TEST(TensorQueue, NameTwiceInAGroup_RefusesAllAndLeavesNoNameBehind) {
  TensorQueue queue(kWorldSize);
  TestEntry a("a", 1), b1("b", 1), c("c", 1), b2("b", 1);
  const Status status = queue.Add(Group(a.Make(), b1.Make(), c.Make(), b2.Make()), nullptr);
  EXPECT_TRUE(Contains(status, kDuplicate)) << status;
  EXPECT_TRUE(Contains(status, "'b'")) << status;
  for (TestEntry* entry : {&a, &b1, &c, &b2}) EXPECT_EQ(entry->outcome->calls(), 1);
  EXPECT_EQ(queue.in_flight(), 0U);
  EXPECT_TRUE(queue.TakeNew().empty());
}

TEST(TensorQueue, FinishedAndAddedAgain_IsAccepted) {
  TensorQueue queue(kWorldSize);
  for (int round = 0; round < 3; ++round) {
    TestEntry a("a", 1);
    ASSERT_TRUE(queue.Add(Group(a.Make()), nullptr).ok()) << round;
    std::vector<TensorEntry> taken = queue.TakeNew();
    ASSERT_EQ(taken.size(), 1U);
    taken[0].done.Finish(Status::Ok());
  }
}

TEST(TensorQueue, ManyNamesThatComeOnce_LeaveThoseInFlightAlone) {
  TensorQueue queue(kWorldSize);
  TestEntry stays("stays", 1);
  ASSERT_TRUE(queue.Add(Group(stays.Make()), nullptr).ok());
  std::vector<TensorEntry> staying = queue.TakeNew();
  for (int i = 0; i < 20000; ++i) {
    TestEntry once("once/" + std::to_string(i), 1);
    ASSERT_TRUE(queue.Add(Group(once.Make()), nullptr).ok()) << i;
    queue.TakeNew()[0].done.Finish(Status::Ok());
  }
  TestEntry again("stays", 1), after("stays", 1);
  EXPECT_FALSE(queue.Add(Group(again.Make()), nullptr).ok());
  EXPECT_EQ(queue.in_flight(), 1U);
  staying[0].done.Finish(Status::Ok());
  EXPECT_TRUE(queue.Add(Group(after.Make()), nullptr).ok());
}

TEST(TensorQueue, CompletionsThatOutliveTheQueue_EndAsAlways) {
  auto queue = std::make_unique<TensorQueue>(kWorldSize);
  TestEntry a("a", 1), b("b", 1);
  ASSERT_TRUE(queue->Add(Group(a.Make(), b.Make()), nullptr).ok());
  std::vector<TensorEntry> taken = queue->TakeNew();
  queue.reset();
  for (TensorEntry& entry : taken) entry.done.Finish(Status::Ok());
  for (TestEntry* entry : {&a, &b}) EXPECT_EQ(entry->outcome->calls(), 1);
}

TEST(TensorQueue, CallbackAddsTheSameNameAgain_IsAccepted) {
  TensorQueue queue(kWorldSize);
  TestEntry first("a", 1), second("a", 1);
  std::optional<Status> added;
  TensorEntry entry = first.Make();
  entry.done = Completion([&](const Status&) {
    bool was_empty = false;
    added = queue.Add(Group(second.Make()), &was_empty);
    EXPECT_TRUE(was_empty);
  });
  ASSERT_TRUE(queue.Add(Group(std::move(entry)), nullptr).ok());
  std::vector<TensorEntry> taken = queue.TakeNew();
  taken[0].done.Finish(Status::Ok());
  ASSERT_TRUE(added.has_value());
  EXPECT_TRUE(added->ok()) << *added;
  EXPECT_EQ(Names(queue.TakeNew()), std::vector<std::string>{"a"});
}

TEST(TensorQueue, CallbackOfARefusedOneAddsAgain_DoesNotDeadlock) {
  TensorQueue queue(kWorldSize);
  TestEntry in_flight("a", 1), retry("b", 1), refused("a", 1);
  ASSERT_TRUE(queue.Add(Group(in_flight.Make()), nullptr).ok());
  TensorEntry entry = refused.Make();
  std::optional<Status> added;
  entry.done = Completion([&](const Status&) { added = queue.Add(Group(retry.Make()), nullptr); });
  EXPECT_FALSE(queue.Add(Group(std::move(entry)), nullptr).ok());
  ASSERT_TRUE(added.has_value());
  EXPECT_TRUE(added->ok()) << *added;
}

TEST(TensorQueue, DroppedAfterBeingTaken_FreesTheName) {
  TensorQueue queue(kWorldSize);
  TestEntry a("a", 1);
  ASSERT_TRUE(queue.Add(Group(a.Make()), nullptr).ok());
  queue.TakeNew().clear();
  EXPECT_EQ(a.outcome->status().code(), StatusCode::kAborted);
  EXPECT_EQ(queue.in_flight(), 0U);
}

TEST(TensorQueue, Closed_RefusesWithTheFirstReasonAndGivesBackWhatWasNotTaken) {
  TensorQueue queue(kWorldSize);
  TestEntry taken_before("t", 1), a("a", 1), b("b", 1), late("late", 1);
  ASSERT_TRUE(queue.Add(Group(taken_before.Make()), nullptr).ok());
  std::vector<TensorEntry> running = queue.TakeNew();
  ASSERT_TRUE(queue.Add(Group(a.Make(), b.Make()), nullptr).ok());
  std::vector<TensorEntry> rest = queue.Close(Status::Unknown("shut down 1"));
  EXPECT_EQ(Names(rest), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(a.outcome->calls(), 0);
  EXPECT_TRUE(queue.Close(Status::Unknown("shut down 2")).empty());
  bool was_empty = true;
  EXPECT_EQ(queue.Add(Group(late.Make()), &was_empty).ToString(), "Unknown: shut down 1");
  EXPECT_FALSE(was_empty);
  EXPECT_EQ(late.outcome->status().ToString(), "Unknown: shut down 1");
  EXPECT_EQ(queue.in_flight(), 3U);
  rest.clear();
  running.clear();
  EXPECT_EQ(queue.in_flight(), 0U);
  EXPECT_TRUE(queue.TakeNew().empty());
}

TEST(TensorQueue, QueueGoneBeforeTheCompletion_CompletionStillWorks) {
  auto queue = std::make_unique<TensorQueue>(kWorldSize);
  TestEntry a("a", 1);
  ASSERT_TRUE(queue->Add(Group(a.Make()), nullptr).ok());
  std::vector<TensorEntry> taken = queue->TakeNew();
  queue.reset();
  taken[0].done.Finish(Status::Ok());
  EXPECT_EQ(a.outcome->calls(), 1);
}

TEST(TensorQueue, DestroyedWithEntriesInIt_FinishesThem) {
  TestEntry a("a", 1);
  {
    TensorQueue queue(kWorldSize);
    ASSERT_TRUE(queue.Add(Group(a.Make()), nullptr).ok());
  }
  EXPECT_EQ(a.outcome->calls(), 1);
  EXPECT_EQ(a.outcome->status().code(), StatusCode::kAborted);
}

// One row per thing that may be wrong with an entry.
struct BadEntry {
  const char* what;
  void (*spoil)(TensorEntry*);
  const char* text;
};

const BadEntry kBadEntries[] = {
    {"NoName", [](TensorEntry* e) { e->request.name.clear(); }, "name"},
    {"RootOutsideTheWorld",
     [](TensorEntry* e) {
       e->request.kind = CollectiveKind::kBroadcast;
       e->request.root_rank = kWorldSize;
     },
     "'bad'"},
    {"InputOfAnotherType", [](TensorEntry* e) { e->input.dtype = DataType::kInt32; },
     "input of tensor 'bad' has type int32, but the request says float32"},
    {"InputOfAnotherShape",
     [](TensorEntry* e) {
       e->input.shape = TensorShape({1, 2});
     },
     "input of tensor 'bad' has shape [1, 2], but the request says [2]"},
    {"InputWithoutBuffer", [](TensorEntry* e) { e->input.data = nullptr; },
     "input of tensor 'bad' has no buffer"},
    {"OutputOfAnotherType", [](TensorEntry* e) { e->output.dtype = DataType::kFloat64; },
     "output of tensor 'bad' has type float64"},
    {"OutputOfAnotherShape", [](TensorEntry* e) { e->output.shape = TensorShape({3}); },
     "output of tensor 'bad' has shape [3]"},
    {"OutputWithoutBuffer", [](TensorEntry* e) { e->output.data = nullptr; },
     "output of tensor 'bad' has no buffer"},
    {"GatherWithoutContext", [](TensorEntry* e) { e->request.kind = CollectiveKind::kAllgather; },
     "allgather of tensor 'bad' has no context"},
    {"ReducescatterWithoutContext",
     [](TensorEntry* e) { e->request.kind = CollectiveKind::kReducescatter; },
     "reducescatter of tensor 'bad' has no context"},
    {"SplitsOfTooFewRows",
     [](TensorEntry* e) {
       e->request.kind = CollectiveKind::kAlltoall;
       e->request.splits.assign(kWorldSize, 0);
     },
     "'bad': Sum of splits entries is less than dimension 0: 0 rows of 2"},
    {"RowsThatCannotBeDivided", [](TensorEntry* e) { e->request.kind = CollectiveKind::kAlltoall; },
     "'bad': dimension 0 (2) is not an even multiple"},
};

TEST(TensorQueue, EntryThatIsNotValid_RefusesTheWholeGroupAndSaysWhatIsWrong) {
  for (const BadEntry& row : kBadEntries) {
    SCOPED_TRACE(row.what);
    TensorQueue queue(kWorldSize);
    TestEntry good("good", 3), bad("bad", 2);
    TensorEntry spoiled = bad.Make();
    row.spoil(&spoiled);
    const Status status = queue.Add(Group(good.Make(), std::move(spoiled)), nullptr);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(Contains(status, row.text)) << status;
    EXPECT_EQ(good.outcome->calls(), 1);
    EXPECT_EQ(bad.outcome->calls(), 1);
    EXPECT_EQ(queue.in_flight(), 0U);
    EXPECT_TRUE(queue.TakeNew().empty());
  }
}

TEST(TensorQueue, EntryWithoutCompletion_IsRefusedBecauseItsNameWouldStayForEver) {
  TensorQueue queue(kWorldSize);
  TestEntry a("a", 1);
  TensorEntry entry = a.Make();
  entry.done = Completion();
  const Status status = queue.Add(Group(std::move(entry)), nullptr);
  EXPECT_TRUE(Contains(status, "without a completion")) << status;
}

TEST(TensorQueue, GatherWithContextAndEmptyTensorsWithoutBuffers_AreAccepted) {
  TensorQueue queue(kWorldSize);
  TestEntry gather("gather", 2), empty("empty", 0);
  TensorEntry gather_entry = gather.Make();
  gather_entry.request.kind = CollectiveKind::kAllgather;
  gather_entry.output = TensorView();
  gather_entry.context = std::make_shared<NoContext>();
  TensorEntry empty_entry = empty.Make();
  empty_entry.input.data = nullptr;
  empty_entry.output.data = nullptr;
  const Status status = queue.Add(Group(std::move(gather_entry), std::move(empty_entry)), nullptr);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(TensorQueue, ManyThreadsAddWhileOneTakes_EveryEntryArrivesOnceAndInItsThreadsOrder) {
  constexpr int kThreads = 4;
  constexpr int kPerThread = 250;
  TensorQueue queue(kWorldSize);
  std::vector<std::unique_ptr<TestEntry>> entries;
  for (int i = 0; i < kThreads * kPerThread; ++i) {
    entries.push_back(std::make_unique<TestEntry>(
        std::to_string(i / kPerThread) + "." + std::to_string(i % kPerThread), 1));
  }
  std::atomic<int> wakes{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kPerThread; ++i) {
        bool was_empty = false;
        TestEntry& entry = *entries[static_cast<std::size_t>(t * kPerThread + i)];
        EXPECT_TRUE(queue.Add(Group(entry.Make()), &was_empty).ok());
        if (was_empty) ++wakes;
      }
    });
  }
  std::vector<int> next(kThreads, 0);
  int taken_count = 0;
  int non_empty_takes = 0;
  const TimePoint deadline = Clock::Real().Now() + std::chrono::seconds(30);
  while (taken_count < kThreads * kPerThread && Clock::Real().Now() < deadline) {
    std::vector<TensorEntry> taken = queue.TakeNew();
    if (!taken.empty()) ++non_empty_takes;
    for (TensorEntry& entry : taken) {
      const std::size_t dot = entry.request.name.find('.');
      const auto thread = static_cast<std::size_t>(std::stoi(entry.request.name.substr(0, dot)));
      EXPECT_EQ(std::stoi(entry.request.name.substr(dot + 1)), next[thread]++);
      entry.done.Finish(Status::Ok());
      ++taken_count;
    }
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken_count, kThreads * kPerThread);
  // Each batch that was taken was announced exactly once, so no wake-up is ever missing.
  EXPECT_EQ(wakes.load(), non_empty_takes);
  EXPECT_EQ(queue.in_flight(), 0U);
  for (const auto& entry : entries) EXPECT_EQ(entry->outcome->calls(), 1);
}

}  // namespace
}  // namespace horovod_tf
