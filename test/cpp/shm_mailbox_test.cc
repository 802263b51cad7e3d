#include "horovod_tf/common/shm/shm_mailbox.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace horovod_tf {
namespace {

class ShmMailboxTest : public testing::Test {
 protected:
  ShmMailboxTest() {
    EXPECT_TRUE(ShmSegment::Create(1, 4096, &segment_).ok());
    // As if so many words had gone by: the counts wrap around in every test that is long enough.
    const std::uint64_t begin = ~std::uint64_t{0} - ShmMailbox::kWords + 1;
    box().reserved = begin;
    box().taken = begin;
  }
  ShmMailbox& box() { return segment_->mailbox(0); }

  // Takes one; -1: there was none.
  int Take(std::string* bytes = nullptr, bool* last = nullptr) {
    Letter letter;
    if (!TakeLetter(box(), &letter, &room_wanted_)) return -1;
    if (bytes != nullptr) *bytes = letter.bytes;
    if (last != nullptr) *last = letter.last;
    return letter.from;
  }

  std::shared_ptr<ShmSegment> segment_;
  bool room_wanted_ = false;
};

TEST_F(ShmMailboxTest, Empty_NothingIsTaken) {
  EXPECT_FALSE(HasLetter(box()));
  EXPECT_EQ(Take(), -1);
}

TEST_F(ShmMailboxTest, LettersOfEveryLength_ComeOutAsTheyWentIn) {
  for (std::size_t length = 0; length <= Letter::kMostBytes; ++length) {
    const std::string bytes(length, static_cast<char>('a' + length % 26));
    ASSERT_TRUE(PutLetter(box(), static_cast<int>(length % 1024), length % 3 == 0, bytes));
    ASSERT_TRUE(HasLetter(box()));
    std::string taken;
    bool last = false;
    ASSERT_EQ(Take(&taken, &last), static_cast<int>(length % 1024));
    ASSERT_EQ(taken, bytes);
    ASSERT_EQ(last, length % 3 == 0);
    ASSERT_FALSE(HasLetter(box()));
  }
}

TEST_F(ShmMailboxTest, Full_RefusesAndSaysSoWhenThereIsRoomAgain) {
  int put = 0;
  while (PutLetter(box(), 7, true, std::to_string(put))) ++put;
  EXPECT_EQ(put, static_cast<int>(ShmMailbox::kWords / 2));  // two words each
  std::string bytes;
  ASSERT_EQ(Take(&bytes), 7);
  EXPECT_EQ(bytes, "0");
  EXPECT_TRUE(room_wanted_);
  ASSERT_EQ(Take(&bytes), 7);
  EXPECT_FALSE(room_wanted_) << "it has been said";
  EXPECT_TRUE(PutLetter(box(), 8, true, "more"));
  EXPECT_TRUE(PutLetter(box(), 8, true, "more"));
  EXPECT_FALSE(PutLetter(box(), 8, true, "too much"));
  for (int i = 2; i < put; ++i) {
    ASSERT_EQ(Take(&bytes), 7);
    ASSERT_EQ(bytes, std::to_string(i));
  }
  EXPECT_EQ(Take(&bytes), 8);
}

// A rank that dies in the middle of it holds back what others put in later, and is found by its
// end; until then it looks like an empty mailbox.
TEST_F(ShmMailboxTest, ReservedAndNotYetWritten_IsNotTaken) {
  box().reserved += 3;
  ASSERT_TRUE(PutLetter(box(), 1, true, "later"));
  EXPECT_FALSE(HasLetter(box()));
  EXPECT_EQ(Take(), -1);
}

TEST_F(ShmMailboxTest, ManySenders_EachOnesLettersComeInOrderAndWhole) {
  constexpr int kSenders = 4;
  constexpr int kLetters = 4000;
  const auto text = [](int from, int number) {
    return std::to_string(number) + std::string(static_cast<std::size_t>(number * 13 % 200 + from),
                                                static_cast<char>('a' + from));
  };
  std::vector<std::thread> senders;
  for (int from = 0; from < kSenders; ++from) {
    senders.emplace_back([&, from] {
      for (int number = 0; number < kLetters; ++number) {
        while (!PutLetter(box(), from, true, text(from, number))) std::this_thread::yield();
      }
    });
  }
  std::vector<int> next(kSenders, 0);
  for (int left = kSenders * kLetters; left > 0;) {
    std::string bytes;
    const int from = Take(&bytes);
    if (from < 0) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(bytes, text(from, next[static_cast<std::size_t>(from)]++));
    --left;
  }
  for (std::thread& sender : senders) sender.join();
}

}  // namespace
}  // namespace horovod_tf
