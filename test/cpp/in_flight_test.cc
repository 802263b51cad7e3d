#include "horovod_tf/common/runtime/in_flight.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace horovod_tf {
namespace {

TensorEntry Named(const std::string& name, std::vector<std::string>* ended) {
  TensorEntry entry;
  entry.request.name = name;
  entry.done = Completion(
      [name, ended](const Status& status) { ended->push_back(name + ": " + status.message()); });
  return entry;
}

TEST(InFlight, Take_GivesTheEntriesInTheOrderOfTheTokens) {
  std::vector<std::string> ended;
  InFlight in_flight;
  const Token a = in_flight.Add(Named("a", &ended), TimePoint());
  const Token b = in_flight.Add(Named("b", &ended), TimePoint());
  const Token c = in_flight.Add(Named("c", &ended), TimePoint());
  std::vector<TensorEntry> taken = in_flight.Take({c, a});
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(taken[0].request.name, "c");
  EXPECT_EQ(taken[1].request.name, "a");
  FinishAll(std::move(taken), Status::Unknown("taken"));
  FinishAll(in_flight.Take({b}), Status::Unknown("last"));
  EXPECT_EQ(ended, (std::vector<std::string>{"c: taken", "a: taken", "b: last"}));
  EXPECT_TRUE(in_flight.TakeAll().empty());
}

TEST(InFlight, Tokens_AreUsedAgainSoThatTheTableDoesNotGrow) {
  std::vector<std::string> ended;
  InFlight in_flight;
  for (int i = 0; i < 1000; ++i) {
    const Token one = in_flight.Add(Named("one", &ended), TimePoint());
    const Token two = in_flight.Add(Named("two", &ended), TimePoint());
    ASSERT_LT(one, 2U);
    ASSERT_LT(two, 2U);
    ASSERT_NE(one, two);
    FinishAll(in_flight.Take({one, two}), Status::Ok());
  }
  EXPECT_EQ(ended.size(), 2000U);
}

TEST(InFlight, Empty_WhenEverythingThatWasAddedIsTaken) {
  std::vector<std::string> ended;
  InFlight in_flight;
  EXPECT_TRUE(in_flight.empty());
  const Token a = in_flight.Add(Named("a", &ended), TimePoint());
  const Token b = in_flight.Add(Named("b", &ended), TimePoint());
  FinishAll(in_flight.Take({a}), Status::Ok());
  EXPECT_FALSE(in_flight.empty());
  FinishAll(in_flight.Take({b}), Status::Ok());
  EXPECT_TRUE(in_flight.empty());
}

TEST(InFlight, FindAll_KnowsTicketsAndAgesOfWhatIsThere) {
  std::vector<std::string> ended;
  InFlight in_flight;
  const auto with_ticket = [&](const std::string& name, std::uint64_t ticket) {
    TensorEntry entry = Named(name, &ended);
    entry.ticket = ticket;
    return in_flight.Add(std::move(entry), TimePoint());
  };
  const TimePoint later = TimePoint() + FromSeconds(1);
  const Token late = in_flight.Add(Named("without a ticket", &ended), later);
  const Token a = with_ticket("a", 7);
  const Token b = with_ticket("b", 8);
  const Token c = with_ticket("c", 7);
  EXPECT_EQ(in_flight.FindAll(7, later), (std::vector<Token>{a, c}));
  EXPECT_EQ(in_flight.FindAll(8, later), std::vector<Token>{b});
  EXPECT_EQ(in_flight.FindAll(std::nullopt, later), (std::vector<Token>{late, a, b, c}));
  EXPECT_EQ(in_flight.FindAll(std::nullopt, TimePoint()), (std::vector<Token>{a, b, c}));
  EXPECT_EQ(in_flight.RequestOf(a).name, "a");
  EXPECT_TRUE(in_flight.FindAll(9, later).empty());
  FinishAll(in_flight.Take({a}), Status::Ok());
  EXPECT_EQ(in_flight.FindAll(7, later), std::vector<Token>{c});
  FinishAll(in_flight.TakeAll(), Status::Ok());
}

TEST(InFlight, TakeAll_TakesOnlyWhatIsThere) {
  std::vector<std::string> ended;
  InFlight in_flight;
  const Token a = in_flight.Add(Named("a", &ended), TimePoint());
  in_flight.Add(Named("b", &ended), TimePoint());
  in_flight.Add(Named("c", &ended), TimePoint());
  FinishAll(in_flight.Take({a}), Status::Ok());
  FinishAll(in_flight.TakeAll(), Status::Aborted("end"));
  EXPECT_EQ(ended, (std::vector<std::string>{"a: ", "b: end", "c: end"}));
}

}  // namespace
}  // namespace horovod_tf
