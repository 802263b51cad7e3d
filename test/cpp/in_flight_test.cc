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
  const Token a = in_flight.Add(Named("a", &ended));
  const Token b = in_flight.Add(Named("b", &ended));
  const Token c = in_flight.Add(Named("c", &ended));
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
    const Token one = in_flight.Add(Named("one", &ended));
    const Token two = in_flight.Add(Named("two", &ended));
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
  const Token a = in_flight.Add(Named("a", &ended));
  const Token b = in_flight.Add(Named("b", &ended));
  FinishAll(in_flight.Take({a}), Status::Ok());
  EXPECT_FALSE(in_flight.empty());
  FinishAll(in_flight.Take({b}), Status::Ok());
  EXPECT_TRUE(in_flight.empty());
}

TEST(InFlight, Find_KnowsTheTicketsOfWhatIsThere) {
  std::vector<std::string> ended;
  InFlight in_flight;
  TensorEntry entry = Named("a", &ended);
  entry.ticket = 7;
  in_flight.Add(Named("without a ticket", &ended));
  const Token a = in_flight.Add(std::move(entry));
  EXPECT_EQ(in_flight.Find(7), a);
  EXPECT_EQ(in_flight.NameOf(a), "a");
  EXPECT_FALSE(in_flight.Find(8).has_value());
  FinishAll(in_flight.Take({a}), Status::Ok());
  EXPECT_FALSE(in_flight.Find(7).has_value());
  FinishAll(in_flight.TakeAll(), Status::Ok());
}

TEST(InFlight, TakeAll_TakesOnlyWhatIsThere) {
  std::vector<std::string> ended;
  InFlight in_flight;
  const Token a = in_flight.Add(Named("a", &ended));
  in_flight.Add(Named("b", &ended));
  in_flight.Add(Named("c", &ended));
  FinishAll(in_flight.Take({a}), Status::Ok());
  FinishAll(in_flight.TakeAll(), Status::Aborted("end"));
  EXPECT_EQ(ended, (std::vector<std::string>{"a: ", "b: end", "c: end"}));
}

}  // namespace
}  // namespace horovod_tf
