#include "horovod_tf/common/c_api.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <thread>

#include "horovod_tf/common/base/utf8.h"

namespace {

// Leaves the process without a job.
class CApi : public ::testing::Test {
 protected:
  ~CApi() override { (void)horovod_shutdown(); }
};

using Question = int (*)(void);
constexpr Question kQuestions[] = {
    horovod_rank,       horovod_size,       horovod_local_rank,     horovod_local_size,
    horovod_cross_rank, horovod_cross_size, horovod_is_homogeneous, horovod_mpi_threads_supported};

TEST_F(CApi, BeforeInit_QuestionsAnswerMinusOneAndSayWhy) {
  EXPECT_EQ(horovod_is_initialized(), 0);
  for (const Question ask : kQuestions) {
    EXPECT_EQ(ask(), -1);
    EXPECT_NE(std::string(horovod_last_error()).find("use hvd.init()"), std::string::npos);
    EXPECT_EQ(horovod_last_error_code(), 9);
  }
}

TEST_F(CApi, AfterInit_QuestionsDescribeAWorldOfOne) {
  ASSERT_EQ(horovod_init(), 0);
  ASSERT_EQ(horovod_init(), 0);
  EXPECT_EQ(horovod_is_initialized(), 1);
  EXPECT_EQ(horovod_rank(), 0);
  EXPECT_EQ(horovod_size(), 1);
  EXPECT_EQ(horovod_local_rank(), 0);
  EXPECT_EQ(horovod_local_size(), 1);
  EXPECT_EQ(horovod_cross_rank(), 0);
  EXPECT_EQ(horovod_cross_size(), 1);
  EXPECT_EQ(horovod_is_homogeneous(), 1);
  EXPECT_EQ(horovod_mpi_threads_supported(), 0);
  EXPECT_EQ(horovod_shutdown(), 0);
  EXPECT_EQ(horovod_shutdown(), 0);
  EXPECT_EQ(horovod_is_initialized(), 0);
  for (const Question ask : kQuestions) EXPECT_EQ(ask(), -1);
}

TEST_F(CApi, InitThatFails_KeepsTextAndCode) {
  setenv("HOROVOD_CYCLE_TIME", "soon", 1);
  EXPECT_EQ(horovod_init(), -1);
  unsetenv("HOROVOD_CYCLE_TIME");
  EXPECT_NE(std::string(horovod_last_error()).find("HOROVOD_CYCLE_TIME"), std::string::npos);
  EXPECT_EQ(horovod_last_error_code(), 3);
  EXPECT_EQ(horovod_init(), 0);
}

TEST_F(CApi, LastError_BelongsToTheThreadThatFailed) {
  std::thread([] {
    EXPECT_STREQ(horovod_last_error(), "");
    EXPECT_EQ(horovod_last_error_code(), 0);
    EXPECT_EQ(horovod_rank(), -1);
    EXPECT_STRNE(horovod_last_error(), "");
  }).join();
  std::thread([] { EXPECT_STREQ(horovod_last_error(), ""); }).join();
}

TEST_F(CApi, LastError_OutlivesTheThreadsOwnObjects) {
  // As in a C program: exit handlers run when the main thread's objects are gone.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        atexit([] {
          if (horovod_rank() != -1 || horovod_last_error_code() != 9) _Exit(1);
          const std::string text = horovod_last_error();
          _Exit(text.find("use hvd.init()") != std::string::npos ? 0 : 2);
        });
        (void)horovod_rank();
        exit(3);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(CApi, LastError_IsUtf8WhereverItsValuesAreCut) {
  // 3 bytes a character, which no length of ours is a multiple of.
  std::string value;
  for (int i = 0; i < 100; ++i) value += "\xe2\x82\xac";
  for (const std::string shift : {"", "x", "xx"}) {
    setenv("HOROVOD_CYCLE_TIME", (shift + value).c_str(), 1);
    EXPECT_EQ(horovod_init(), -1);
    unsetenv("HOROVOD_CYCLE_TIME");
    const std::string text = horovod_last_error();
    EXPECT_NE(text.find("\xe2\x82\xac..."), std::string::npos) << text;
    EXPECT_EQ(horovod_tf::Utf8Prefix(text, text.size()), text);
  }
  setenv("HOROVOD_CYCLE_TIME", "no\xff", 1);
  EXPECT_EQ(horovod_init(), -1);
  unsetenv("HOROVOD_CYCLE_TIME");
  EXPECT_NE(std::string(horovod_last_error()).find("\"no?\""), std::string::npos);
}

TEST_F(CApi, Texts_AreThere) {
  EXPECT_STREQ(horovod_version(), "0.1.0");
  EXPECT_NE(std::string(horovod_environment_markdown()).find("HOROVOD_FUSION_THRESHOLD"),
            std::string::npos);
}

}  // namespace
