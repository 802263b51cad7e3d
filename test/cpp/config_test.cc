#include "horovod_tf/common/base/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "horovod_tf/common/base/config_table.h"

namespace horovod_tf {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

// The configuration of an environment that must be understood.
Config Parsed(const Environment& environment) {
  Config config;
  const Status status = ParseConfig(environment, &config);
  EXPECT_TRUE(status.ok()) << status;
  return config;
}

std::string ErrorOf(const Environment& environment) {
  Config config;
  const Status status = ParseConfig(environment, &config);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << DescribeConfig(config);
  return status.message();
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Config, EmptyEnvironment_GivesTheDocumentedDefaults) {
  const Config config = Parsed({});
  EXPECT_EQ(config.timeline_path, "");
  EXPECT_EQ(config.fusion_threshold_bytes, 64 << 20);
  EXPECT_EQ(config.cycle_time, Duration::zero());
  EXPECT_EQ(config.cache_capacity, 65536);
  EXPECT_FALSE(config.mpi_threads_disable);
  EXPECT_FALSE(config.hierarchical_allreduce);
  EXPECT_FALSE(config.stall_check_disable);
  EXPECT_EQ(config.stall_warning_time, seconds(60));
  EXPECT_EQ(config.stall_shutdown_time, seconds(600));
  EXPECT_EQ(config.log_level, LogLevel::kWarning);
  EXPECT_FALSE(config.log_hide_time);
  EXPECT_EQ(config.init_timeout, seconds(300));
  EXPECT_EQ(config.shutdown_timeout, seconds(30));
  EXPECT_EQ(config.launcher_size, 0);
  EXPECT_EQ(config.launcher_variable, "");
  EXPECT_TRUE(config.notices.empty());
  EXPECT_EQ(DescribeConfig(Config::Defaults()), DescribeConfig(config));
}

TEST(Config, EveryVariable_IsReadIntoItsField) {
  const Config config = Parsed({{"HOROVOD_TIMELINE", "a file.json"},
                                {"HOROVOD_FUSION_THRESHOLD", "1048577"},
                                {"HOROVOD_CYCLE_TIME", "3.5"},
                                {"HOROVOD_CACHE_CAPACITY", "17"},
                                {"HOROVOD_MPI_THREADS_DISABLE", "2"},
                                {"HOROVOD_HIERARCHICAL_ALLREDUCE", "yes"},
                                {"HOROVOD_STALL_CHECK_DISABLE", "On"},
                                {"HOROVOD_STALL_CHECK_TIME_SECONDS", "7"},
                                {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "8.25"},
                                {"HOROVOD_THREAD_AFFINITY", "3,0,1"},
                                {"HOROVOD_LOG_LEVEL", "Debug"},
                                {"HOROVOD_LOG_HIDE_TIME", "TRUE"},
                                {"HOROVOD_TF_INIT_TIMEOUT_SECONDS", "9"},
                                {"HOROVOD_TF_SHUTDOWN_TIMEOUT_SECONDS", "1e1"}});
  EXPECT_EQ(config.timeline_path, "a file.json");
  EXPECT_EQ(config.fusion_threshold_bytes, 1048577);
  EXPECT_EQ(config.cycle_time, microseconds(3500));
  EXPECT_EQ(config.cache_capacity, 17);
  EXPECT_TRUE(config.mpi_threads_disable);
  EXPECT_TRUE(config.hierarchical_allreduce);
  EXPECT_TRUE(config.stall_check_disable);
  EXPECT_EQ(config.stall_warning_time, seconds(7));
  EXPECT_EQ(config.stall_shutdown_time, milliseconds(8250));
  EXPECT_EQ(config.thread_affinity, (std::vector<int>{3, 0, 1}));
  EXPECT_EQ(config.log_level, LogLevel::kDebug);
  EXPECT_TRUE(config.log_hide_time);
  EXPECT_EQ(config.init_timeout, seconds(9));
  EXPECT_EQ(config.shutdown_timeout, seconds(10));
  EXPECT_TRUE(config.notices.empty());
}

TEST(Config, Description_ParsesBackToTheSameConfiguration) {
  const Environment environment = {{"HOROVOD_TIMELINE", "/t.json"},
                                   {"HOROVOD_FUSION_THRESHOLD", "1099511627776"},
                                   {"HOROVOD_CYCLE_TIME", "0.003"},
                                   {"HOROVOD_STALL_CHECK_TIME_SECONDS", "100000"},
                                   {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "31536000"},
                                   {"HOROVOD_LOG_LEVEL", "trace"},
                                   {"HOROVOD_THREAD_AFFINITY", "12,7"},
                                   {"HOROVOD_MPI_THREADS_DISABLE", "7"}};
  const std::string description = DescribeConfig(Parsed(environment));
  EXPECT_TRUE(Has(description, "HOROVOD_TIMELINE=/t.json\n")) << description;
  EXPECT_TRUE(Has(description, "HOROVOD_CYCLE_TIME=0.003\n")) << description;
  EXPECT_TRUE(Has(description, "HOROVOD_STALL_CHECK_TIME_SECONDS=100000\n")) << description;
  EXPECT_TRUE(Has(description, "HOROVOD_MPI_THREADS_DISABLE=true\n")) << description;
  Environment again;
  for (std::size_t at = 0; at < description.size();) {
    const std::size_t end = std::min(description.find('\n', at), description.size());
    const std::size_t equals = description.find('=', at);
    ASSERT_LT(equals, end);
    again.emplace_back(description.substr(at, equals - at),
                       description.substr(equals + 1, end - equals - 1));
    at = end + 1;
  }
  EXPECT_EQ(again.size(), ConfigVariables().size());
  EXPECT_EQ(DescribeConfig(Parsed(again)), description);
}

TEST(Config, Booleans_AreUnderstoodInEverySpelling) {
  for (const char* word : {"true", "TRUE", "True", "yes", "YES", "on", "oN", "1"}) {
    EXPECT_TRUE(Parsed({{"HOROVOD_LOG_HIDE_TIME", word}}).log_hide_time) << word;
    EXPECT_TRUE(Parsed({{"HOROVOD_MPI_THREADS_DISABLE", word}}).mpi_threads_disable) << word;
  }
  for (const char* word : {"false", "FALSE", "no", "No", "off", "OFF", "0"}) {
    EXPECT_FALSE(Parsed({{"HOROVOD_LOG_HIDE_TIME", word}}).log_hide_time) << word;
    EXPECT_FALSE(Parsed({{"HOROVOD_MPI_THREADS_DISABLE", word}}).mpi_threads_disable) << word;
  }
}

TEST(Config, ValuesThatAreNotUnderstood_AreErrorsNamingVariableAndValue) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> rows = {
      {"HOROVOD_FUSION_THRESHOLD",
       {"abc", "64MB", "1.5", "-1", "0x10", " 1", "1 ", "+1", "1e6", "1099511627777",
        "9223372036854775808", "99999999999999999999999999"}},
      {"HOROVOD_CACHE_CAPACITY", {"1048577", "-5", "many", "-9223372036854775809"}},
      {"HOROVOD_CYCLE_TIME",
       {"5ms", "-0.1", "nan", "NaN", "inf", "-inf", "1e999", "60000.1", "1,5", "1.2.3", ".",
        "0x1p3"}},
      {"HOROVOD_STALL_CHECK_TIME_SECONDS", {"0", "-60", "31536001", "1e-9", "one"}},
      {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
       {"-1", "never", "1e300", "1e-10", "0.0004", "0.00099", "-1e-10", "nan"}},
      {"HOROVOD_TF_INIT_TIMEOUT_SECONDS", {"0", "forever"}},
      {"HOROVOD_TF_SHUTDOWN_TIMEOUT_SECONDS", {"0", "30s"}},
      {"HOROVOD_HIERARCHICAL_ALLREDUCE", {"2", "-1", "maybe", "truee", "t", "1 "}},
      {"HOROVOD_MPI_THREADS_DISABLE", {"-1", "1.0", "00x", "99999999999999999999"}},
      {"HOROVOD_STALL_CHECK_DISABLE", {"10"}},
      {"HOROVOD_LOG_HIDE_TIME", {"y"}},
      {"HOROVOD_LOG_LEVEL", {"warn", "2", "verbose"}},
      {"HOROVOD_THREAD_AFFINITY", {",", "1,", ",1", "1,,2", "-1", "0-3", "1, 2", "65536", "all"}},
  };
  for (const auto& [name, values] : rows) {
    for (const std::string& value : values) {
      const std::string error = ErrorOf({{name, value}});
      EXPECT_TRUE(Has(error, name + " is set to \"" + value + "\"; understood is ")) << error;
    }
  }
}

TEST(Config, EmptyValue_IsAnErrorForEveryVariable) {
  for (const ConfigVariable& variable : ConfigVariables()) {
    const std::string name(variable.name);
    const std::string error = ErrorOf({{name, ""}});
    EXPECT_TRUE(Has(error, name + " is set to \"\"")) << error;
  }
}

TEST(Config, Limits_AreUnderstoodAndFractionsAreExact) {
  EXPECT_EQ(Parsed({{"HOROVOD_FUSION_THRESHOLD", "0"}}).fusion_threshold_bytes, 0);
  EXPECT_EQ(Parsed({{"HOROVOD_FUSION_THRESHOLD", "1099511627776"}}).fusion_threshold_bytes,
            std::int64_t{1} << 40);
  EXPECT_EQ(Parsed({{"HOROVOD_CACHE_CAPACITY", "1048576"}}).cache_capacity, 1 << 20);
  EXPECT_EQ(Parsed({{"HOROVOD_CACHE_CAPACITY", "0"}}).cache_capacity, 0);
  EXPECT_EQ(Parsed({{"HOROVOD_CYCLE_TIME", "0.000001"}}).cycle_time, nanoseconds(1));
  // These come out a little less when they are multiplied.
  EXPECT_EQ(Parsed({{"HOROVOD_CYCLE_TIME", "0.043"}}).cycle_time, microseconds(43));
  EXPECT_EQ(Parsed({{"HOROVOD_TF_INIT_TIMEOUT_SECONDS", "1.001"}}).init_timeout,
            milliseconds(1001));
  EXPECT_EQ(Parsed({{"HOROVOD_CYCLE_TIME", "60000"}}).cycle_time, seconds(60));
  EXPECT_EQ(Parsed({{"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "0"}}).stall_shutdown_time,
            Duration::zero());
  EXPECT_EQ(Parsed({{"HOROVOD_STALL_CHECK_TIME_SECONDS", "0.001"},
                    {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "0.001"}})
                .stall_shutdown_time,
            milliseconds(1));
}

// "never" must be asked for: no time may be rounded to it.
TEST(Config, ZeroThatMeansNever_IsNotReachedByRounding) {
  int special = 0;
  for (const ConfigVariable& variable : ConfigVariables()) {
    const auto* field = std::get_if<DurationField>(&variable.field);
    if (field == nullptr || !field->zero_is_special) continue;
    ++special;
    const std::string name(variable.name);
    EXPECT_TRUE(Parsed({{name, "0"}}).*field->member == Duration::zero()) << name;
    EXPECT_TRUE(Has(ErrorOf({{name, "1e-10"}}), "understood is 0 or a number from 0.001 to"))
        << name;
  }
  EXPECT_EQ(special, 2);  // the stall check's limit and the grace of an interrupted program
}

TEST(Config, ErrorText_SaysWhatIsUnderstood) {
  EXPECT_EQ(ErrorOf({{"HOROVOD_CYCLE_TIME", "5ms"}}),
            "HOROVOD_CYCLE_TIME is set to \"5ms\"; understood is a number from 0 to 60000 "
            "(milliseconds)");
  EXPECT_EQ(ErrorOf({{"HOROVOD_CACHE_CAPACITY", "x"}}),
            "HOROVOD_CACHE_CAPACITY is set to \"x\"; understood is a whole number from 0 to "
            "1048576 (tensors)");
  EXPECT_EQ(ErrorOf({{"HOROVOD_LOG_HIDE_TIME", "2"}}),
            "HOROVOD_LOG_HIDE_TIME is set to \"2\"; understood is true, yes, on or 1; false, no, "
            "off or 0");
  EXPECT_TRUE(Has(ErrorOf({{"HOROVOD_MPI_THREADS_DISABLE", "-1"}}), "or a positive whole number"));
  EXPECT_TRUE(
      Has(ErrorOf({{"HOROVOD_LOG_LEVEL", "loud"}}), "trace, debug, info, warning, error or fatal"));
}

TEST(Config, SeveralErrors_AreAllInOneTextAndChangeNothing) {
  Config config;
  config.cache_capacity = 4711;
  const Status status = ParseConfig({{"HOROVOD_CACHE_CAPACITY", "1"},
                                     {"HOROVOD_CYCLE_TIME", "soon"},
                                     {"HOROVOD_TF_WRONG", "1"},
                                     {"HOROVOD_LOG_LEVEL", "7"}},
                                    &config);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Has(status.message(), "HOROVOD_CYCLE_TIME is set to \"soon\"")) << status;
  EXPECT_TRUE(Has(status.message(), "\nHOROVOD_LOG_LEVEL is set to \"7\"")) << status;
  EXPECT_TRUE(Has(status.message(), "\nHOROVOD_TF_WRONG is not known")) << status;
  EXPECT_FALSE(Has(status.message(), "HOROVOD_CACHE_CAPACITY")) << status;
  EXPECT_EQ(config.cache_capacity, 4711);
}

TEST(Config, HostileValue_IsShortenedAndKeptOnOneLine) {
  const std::string error =
      ErrorOf({{"HOROVOD_LOG_LEVEL", "a\nb\x1b[2J" + std::string(5000, 'x')}});
  EXPECT_LT(error.size(), 300u);
  EXPECT_TRUE(Has(error, "\"a?b?[2Jxxx")) << error;
  EXPECT_TRUE(Has(error, "xxx...\"")) << error;
}

TEST(Config, UnknownOwnName_IsAnErrorThatNamesTheNearest) {
  EXPECT_EQ(ErrorOf({{"HOROVOD_TF_INIT_TIMEOUT", "5"}}),
            "HOROVOD_TF_INIT_TIMEOUT is not known; the nearest known name is "
            "HOROVOD_TF_INIT_TIMEOUT_SECONDS");
  EXPECT_TRUE(Has(ErrorOf({{"HOROVOD_TF_SHUTDOWN_TIMOUT_SECONDS", "5"}}),
                  "is HOROVOD_TF_SHUTDOWN_TIMEOUT_SECONDS"));
  EXPECT_TRUE(Has(ErrorOf({{"HOROVOD_TF_CYCLE_TIME", "5"}}), "is HOROVOD_CYCLE_TIME"));
}

TEST(Config, UnknownFamilyName_IsANoticeThatSuggestsOnlyWhatIsNear) {
  const Config config = Parsed({{"HOROVOD_FUSION_TRESHOLD", "5"}, {"HOROVOD_COLOUR", "red"}});
  EXPECT_EQ(config.notices, (std::vector<std::string>{
                                "HOROVOD_COLOUR is not known and has no effect",
                                "HOROVOD_FUSION_TRESHOLD is not known and has no effect; did you "
                                "mean HOROVOD_FUSION_THRESHOLD?"}));
  EXPECT_EQ(config.fusion_threshold_bytes, 64 << 20);
}

TEST(Config, OtherPeoplesVariables_AreNotLookedAt) {
  EXPECT_TRUE(Parsed({{"PATH", "/bin"},
                      {"HOROVOD", "x"},
                      {"horovod_timeline", "x"},
                      {"MY_HOROVOD_TIMELINE", "x"},
                      {"", "x"}})
                  .notices.empty());
}

TEST(Config, VariablesOfTheReferenceSystem_GetANoticeWithTheReason) {
  const Config config = Parsed({{"HOROVOD_CONTROLLER", "gloo"},
                                {"HOROVOD_AUTOTUNE", ""},
                                {"HOROVOD_AUTOTUNE_LOG", "x"},
                                {"HOROVOD_WITH_TENSORFLOW", "1"},
                                {"HOROVOD_GPU_OPERATIONS", "NCCL"}});
  ASSERT_EQ(config.notices.size(), 5u);
  EXPECT_EQ(config.notices[0], "HOROVOD_AUTOTUNE has no effect: there is no automatic tuning");
  EXPECT_EQ(config.notices[1], "HOROVOD_AUTOTUNE_LOG has no effect: there is no automatic tuning");
  EXPECT_TRUE(Has(config.notices[2], "HOROVOD_CONTROLLER has no effect: "));
  EXPECT_TRUE(Has(config.notices[3], "HOROVOD_GPU_OPERATIONS has no effect: "));
  EXPECT_TRUE(Has(config.notices[4], "HOROVOD_WITH_TENSORFLOW has no effect: "));
}

TEST(Config, EveryIgnoredName_GetsExactlyOneNotice) {
  for (const IgnoredVariable& ignored : IgnoredVariables()) {
    std::string name(ignored.name);
    if (name.back() == '*') name.back() = 'Q';
    const Config config = Parsed({{name, "1"}});
    ASSERT_EQ(config.notices.size(), 1u) << name;
    EXPECT_EQ(config.notices[0], name + " has no effect: " + std::string(ignored.reason));
  }
}

TEST(Config, NameThatIsThereTwice_CountsTheFirstTime) {
  EXPECT_EQ(
      Parsed({{"HOROVOD_CACHE_CAPACITY", "3"}, {"HOROVOD_CACHE_CAPACITY", "bad"}}).cache_capacity,
      3);
}

TEST(Config, StallShutdown_StandsAsItIsSet) {
  for (const char* warning : {"1", "60", "90", "3600"}) {
    const Config config = Parsed({{"HOROVOD_STALL_CHECK_TIME_SECONDS", warning},
                                  {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "45.5"}});
    EXPECT_EQ(config.stall_shutdown_time, milliseconds(45500));
    EXPECT_TRUE(config.notices.empty());
  }
  const Config never = Parsed(
      {{"HOROVOD_STALL_CHECK_TIME_SECONDS", "90"}, {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "0"}});
  EXPECT_EQ(never.stall_shutdown_time, Duration::zero());
}

TEST(Config, StallShutdownThatIsNotSet_DoesNotForestallTheWarning) {
  const auto limit = [](const char* warning) {
    return Parsed({{"HOROVOD_STALL_CHECK_TIME_SECONDS", warning}}).stall_shutdown_time;
  };
  EXPECT_EQ(limit("1"), seconds(600));
  EXPECT_EQ(limit("60"), seconds(600));
  EXPECT_EQ(limit("3600"), seconds(36000));
}

TEST(Config, DynamicTimeline_IsNoFileOfThatName) {
  const Config config = Parsed({{"HOROVOD_TIMELINE", "DYNAMIC"}});
  EXPECT_EQ(config.timeline_path, "");
  EXPECT_EQ(config.notices.size(), 0u);
}

TEST(Config, Launcher_IsRecognisedByEachOfItsVariables) {
  int size = 2;
  for (const LauncherVariable& variable : LauncherVariables()) {
    const std::string name(variable.name);
    const Config config = Parsed({{name, std::to_string(size)}});
    EXPECT_EQ(config.launcher_size, size) << name;
    EXPECT_EQ(config.launcher_variable, name);
    EXPECT_TRUE(config.notices.empty()) << name;
    ++size;
  }
  const Config both = Parsed({{"PMI_SIZE", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_EQ(both.launcher_size, 4);
  EXPECT_EQ(both.launcher_variable, "OMPI_COMM_WORLD_SIZE");
}

TEST(Config, WhatALauncherSaysOfTheRank_IsKept) {
  const Config config = Parsed({{"OMPI_COMM_WORLD_SIZE", "4"},
                                {"OMPI_COMM_WORLD_RANK", "3"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                {"PMIX_NAMESPACE", "job@1"},
                                {"PMI_RANK", "1"}});
  EXPECT_EQ(config.launcher_rank, 3);
  EXPECT_EQ(config.launcher_local_size, 2);
  EXPECT_EQ(config.launcher_job, "job@1");
  const Config mpich = Parsed({{"PMI_SIZE", "4"}, {"PMI_RANK", "0"}, {"MPI_LOCALNRANKS", "4"}});
  EXPECT_EQ(mpich.launcher_rank, 0);
  EXPECT_EQ(mpich.launcher_local_size, 4);
  EXPECT_EQ(mpich.launcher_job, "");
}

TEST(Config, GarbageAboutTheRank_IsAsGoodAsNothing) {
  for (const char* value : {"", "x", "-1", "4"}) {
    EXPECT_EQ(Parsed({{"PMI_SIZE", "4"}, {"PMI_RANK", value}}).launcher_rank, -1) << value;
  }
  for (const char* value : {"", "x", "0", "5"}) {
    EXPECT_EQ(Parsed({{"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", value}}).launcher_local_size, 0)
        << value;
  }
}

TEST(Config, BatchSystemAllocation_IsNoLauncher) {
  EXPECT_EQ(Parsed({{"SLURM_NTASKS", "8"}, {"SLURM_NPROCS", "8"}}).launcher_size, 0);
}

// Ignored, it would make every process a world of its own.
TEST(Config, GarbageFromALauncher_IsAnErrorInEachOfItsVariables) {
  for (const LauncherVariable& variable : LauncherVariables()) {
    const std::string name(variable.name);
    for (const char* value :
         {"", "many", "0", "-4", "4 ", " 4", "+4", "0x4", "99999999999", "2147483648"}) {
      EXPECT_EQ(ErrorOf({{name, value}}),
                name + " is set to \"" + value +
                    "\"; understood is a number of processes, a whole number from 1 to 2147483647");
    }
    EXPECT_EQ(Parsed({{name, "2147483647"}}).launcher_size, 2147483647);
  }
}

TEST(Config, GarbageFromALauncher_IsAnErrorBesideAnotherThatIsUnderstood) {
  EXPECT_TRUE(Has(ErrorOf({{"OMPI_COMM_WORLD_SIZE", "x"}, {"PMI_SIZE", "2"}}), "OMPI_COMM_WORLD"));
  const std::string error =
      ErrorOf({{"OMPI_COMM_WORLD_SIZE", "2"}, {"PMI_SIZE", "y"}, {"HOROVOD_CYCLE_TIME", "soon"}});
  EXPECT_TRUE(Has(error, "HOROVOD_CYCLE_TIME is set to \"soon\"")) << error;
  EXPECT_TRUE(Has(error, "\nPMI_SIZE is set to \"y\"")) << error;
}

TEST(Config, ProcessEnvironment_HasWhatIsSet) {
  ASSERT_EQ(::setenv("HVD_TEST_VARIABLE", "a=b=", 1), 0);
  ASSERT_EQ(::setenv("HVD_TEST_EMPTY", "", 1), 0);
  const Environment environment = ReadProcessEnvironment();
  const auto count = [&](const std::string& name, const std::string& value) {
    return std::count(environment.begin(), environment.end(), std::make_pair(name, value));
  };
  EXPECT_EQ(count("HVD_TEST_VARIABLE", "a=b="), 1);
  EXPECT_EQ(count("HVD_TEST_EMPTY", ""), 1);
  ::unsetenv("HVD_TEST_VARIABLE");
  ::unsetenv("HVD_TEST_EMPTY");
}

TEST(Config, Tables_NameEachVariableOnceAndExplainIt) {
  std::set<std::string> names;
  for (const ConfigVariable& variable : ConfigVariables()) {
    EXPECT_TRUE(names.insert(std::string(variable.name)).second) << variable.name;
    EXPECT_FALSE(variable.doc.empty()) << variable.name;
  }
  for (const LauncherVariable& variable : LauncherVariables()) {
    EXPECT_TRUE(names.insert(std::string(variable.name)).second) << variable.name;
    EXPECT_FALSE(variable.launcher.empty()) << variable.name;
  }
  for (const IgnoredVariable& variable : IgnoredVariables()) {
    EXPECT_TRUE(names.insert(std::string(variable.name)).second) << variable.name;
    EXPECT_FALSE(variable.reason.empty()) << variable.name;
  }
}

constexpr char kPage[] = "docs/environment.md";  // tests run from the repository's root

TEST(Config, CommittedPage_IsWhatTheTableSays) {
  std::ifstream file(kPage);
  ASSERT_TRUE(file.is_open()) << kPage << " is not there: run from the repository's root";
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(text, EnvironmentMarkdown()) << "make docs writes it anew";
}

TEST(Config, Page_NamesEveryVariable) {
  const std::string page = EnvironmentMarkdown();
  for (const ConfigVariable& variable : ConfigVariables()) {
    EXPECT_TRUE(Has(page, "| `" + std::string(variable.name) + "` | ")) << variable.name;
  }
  for (const IgnoredVariable& variable : IgnoredVariables()) {
    EXPECT_TRUE(Has(page, "| `" + std::string(variable.name) + "` | ")) << variable.name;
  }
  for (const LauncherVariable& variable : LauncherVariables()) {
    EXPECT_TRUE(Has(page, "| `" + std::string(variable.name) + "` | ")) << variable.name;
  }
}

}  // namespace
}  // namespace horovod_tf
