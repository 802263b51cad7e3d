#include "horovod_tf/common/base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace horovod_tf {
namespace {

// Characters of one to four bytes: at every length, only whole ones are kept.
TEST(Utf8, EveryCut_FallsBetweenCharacters) {
  const std::string text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";
  const std::size_t kept[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11};
  for (std::size_t longest = 0; longest < std::size(kept); ++longest) {
    EXPECT_EQ(Utf8Prefix(text, longest), text.substr(0, kept[longest])) << longest;
  }
}

TEST(Utf8, BytesThatAreNone_BecomeQuestionMarks) {
  EXPECT_EQ(Utf8Prefix("a\xff"
                       "b",
                       9),
            "a?b");
  EXPECT_EQ(Utf8Prefix("\xe2\x82", 9), "??");            // the text itself ends in a character
  EXPECT_EQ(Utf8Prefix("\xed\xa0\x80", 9), "???");       // a surrogate
  EXPECT_EQ(Utf8Prefix("\xc0\xaf", 9), "??");            // overlong
  EXPECT_EQ(Utf8Prefix("\xf4\x90\x80\x80", 9), "????");  // beyond U+10FFFF
}

TEST(Utf8, Copy_SaysHowMuchItUsedAndWritesNoMore) {
  char buffer[5] = {'x', 'x', 'x', 'x', 'x'};
  EXPECT_EQ(CopyUtf8("\xe2\x82\xac\xe2\x82\xac", buffer, 4), 3u);
  EXPECT_EQ(std::string(buffer, 5), "\xe2\x82\xacxx");
}

}  // namespace
}  // namespace horovod_tf
