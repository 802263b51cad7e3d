#include "horovod_tf/common/protocol/handshake.h"

#include <gtest/gtest.h>

namespace horovod_tf {
namespace {

Hello HelloFrom(const std::string& host) {
  return {"1.2.3", host, {{"HOROVOD_FUSION_THRESHOLD", "64"}, {"HOROVOD_CACHE_CAPACITY", "8"}}};
}

// Every rank says hello (in an odd order); what rank 0 answers.
Welcome Conclude(const std::vector<Hello>& hellos) {
  Handshake handshake(static_cast<int>(hellos.size()));
  for (std::size_t i = hellos.size(); i-- > 0;) {
    EXPECT_FALSE(handshake.complete());
    EXPECT_TRUE(handshake.OnHello(static_cast<int>(i), hellos[i]).ok());
  }
  EXPECT_TRUE(handshake.complete());
  return handshake.Conclude();
}

// Three ranks of which the last is changed; the error must hold each of `parts`.
template <typename Change>
void ExpectDisagreement(Change change, const std::vector<std::string>& parts) {
  std::vector<Hello> hellos = {HelloFrom("north"), HelloFrom("east"), HelloFrom("south")};
  change(&hellos[2]);
  const Welcome welcome = Conclude(hellos);
  EXPECT_EQ(welcome.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(welcome.hosts.empty());
  for (const std::string& part : parts) {
    EXPECT_NE(welcome.status.message().find(part), std::string::npos)
        << part << " not in: " << welcome.status;
  }
}

TEST(Handshake, AgreeingRanks_AreWelcomeWithAllHosts) {
  const Welcome welcome = Conclude({HelloFrom("b"), HelloFrom("a"), HelloFrom("b")});
  EXPECT_TRUE(welcome.status.ok());
  EXPECT_EQ(welcome.hosts, (std::vector<std::string>{"b", "a", "b"}));
}

TEST(Handshake, OneRank_AgreesWithItself) {
  EXPECT_EQ(Conclude({HelloFrom("only")}).hosts, (std::vector<std::string>{"only"}));
}

TEST(Handshake, AnotherVersion_NamesBothVersions) {
  ExpectDisagreement(
      [](Hello* hello) { hello->library_version = "1.2.4"; },
      {"version of the library", "rank 0 on north has '1.2.3'", "rank 2 on south has '1.2.4'"});
}

TEST(Handshake, AnotherValue_NamesTheSettingAndBothValues) {
  ExpectDisagreement(
      [](Hello* hello) { hello->agreements[1].second = "9"; },
      {"HOROVOD_CACHE_CAPACITY", "rank 0 on north has '8'", "rank 2 on south has '9'"});
}

TEST(Handshake, SeveralDifferences_NameTheFirst) {
  ExpectDisagreement(
      [](Hello* hello) {
        hello->agreements[0].second = "65";
        hello->agreements[1].second = "9";
      },
      {"HOROVOD_FUSION_THRESHOLD", "'64'", "'65'"});
}

TEST(Handshake, ASettingThatOneRankLacks_IsReported) {
  ExpectDisagreement([](Hello* hello) { hello->agreements.pop_back(); },
                     {"HOROVOD_CACHE_CAPACITY", "has '8'", "rank 2 on south has no such setting"});
}

TEST(Handshake, ASettingThatOnlyOneRankHas_IsReported) {
  ExpectDisagreement([](Hello* hello) { hello->agreements.emplace_back("EXTRA", "on"); },
                     {"EXTRA", "rank 0 on north has no such setting", "rank 2 on south has 'on'"});
}

TEST(Handshake, AnotherOrderOfTheSettings_IsReported) {
  ExpectDisagreement([](Hello* hello) { std::swap(hello->agreements[0], hello->agreements[1]); },
                     {"order of the settings",
                      "rank 2 on south has 'HOROVOD_CACHE_CAPACITY, HOROVOD_FUSION_THRESHOLD'"});
}

TEST(Handshake, ASettingGivenTwice_IsReported) {
  ExpectDisagreement([](Hello* hello) { hello->agreements.push_back(hello->agreements[0]); },
                     {"order of the settings"});
}

TEST(Handshake, HelloTwice_IsAnErrorAndChangesNothing) {
  Handshake handshake(2);
  ASSERT_TRUE(handshake.OnHello(1, HelloFrom("first")).ok());
  const Status status = handshake.OnHello(1, HelloFrom("second"));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("Rank 1 said hello twice"), std::string::npos);
  EXPECT_FALSE(handshake.complete());
  ASSERT_TRUE(handshake.OnHello(0, HelloFrom("zero")).ok());
  EXPECT_EQ(handshake.Conclude().hosts, (std::vector<std::string>{"zero", "first"}));
}

TEST(Handshake, ARankOutsideTheJob_IsAnError) {
  Handshake handshake(2);
  for (const int rank : {-1, 2}) {
    const Status status = handshake.OnHello(rank, HelloFrom("elsewhere"));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("rank " + std::to_string(rank)), std::string::npos);
  }
  EXPECT_FALSE(handshake.complete());
}

TEST(Handshake, Progress_NamesWhoIsThereAndWhoIsNot) {
  Handshake handshake(4);
  EXPECT_EQ(handshake.Progress(), "0 of 4 ranks arrived; missing: rank 0, rank 1, rank 2, rank 3");
  ASSERT_TRUE(handshake.OnHello(2, HelloFrom("b")).ok());
  ASSERT_TRUE(handshake.OnHello(0, HelloFrom("a")).ok());
  EXPECT_EQ(handshake.Progress(),
            "2 of 4 ranks arrived (rank 0 on a, rank 2 on b); missing: rank 1, rank 3");
  ASSERT_TRUE(handshake.OnHello(1, HelloFrom("a")).ok());
  ASSERT_TRUE(handshake.OnHello(3, HelloFrom("b")).ok());
  EXPECT_EQ(handshake.Progress(),
            "4 of 4 ranks arrived (rank 0 on a, rank 1 on a, rank 2 on b, rank 3 on b)");
}

TEST(HandshakeDeathTest, ConcludingTooEarly_IsAProgrammingError) {
  const Handshake handshake(1);
  EXPECT_DEATH((void)handshake.Conclude(), "before every rank");
}

}  // namespace
}  // namespace horovod_tf
