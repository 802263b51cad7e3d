#include "horovod_tf/common/shm/shm_mailbox.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "horovod_tf/common/base/check.h"

namespace horovod_tf {
namespace {

using Word = std::uint64_t;

constexpr Word kPresent = Word{1} << 63;
constexpr Word kLast = Word{1} << 62;
constexpr unsigned kFromShift = 32;
constexpr Word kFromMask = (Word{1} << 24) - 1;
constexpr Word kLengthMask = (Word{1} << kFromShift) - 1;

// A letter is a word that says all about it, and then its bytes in whole words.
std::size_t WordsOf(std::size_t bytes) { return 1 + (bytes + sizeof(Word) - 1) / sizeof(Word); }

std::atomic<Word>& At(ShmMailbox& mailbox, Word position) {
  return mailbox.ring[position % ShmMailbox::kWords];
}

// Where a letter of so many words begins; false if there is no room.
bool Reserve(ShmMailbox& mailbox, std::size_t words, Word* begin) {
  *begin = mailbox.reserved.load(std::memory_order_relaxed);
  do {
    // Sequentially consistent, as `room_wanted`: see PutLetter. What is taken may by now be more
    // than was reserved when this began: then the exchange fails.
    const Word taken = mailbox.taken.load(std::memory_order_seq_cst);
    const auto used = static_cast<std::int64_t>(*begin + words - taken);
    if (used > static_cast<std::int64_t>(ShmMailbox::kWords)) return false;
  } while (
      !mailbox.reserved.compare_exchange_weak(*begin, *begin + words, std::memory_order_relaxed));
  return true;
}

}  // namespace

bool PutLetter(ShmMailbox& mailbox, int from, bool last, std::string_view bytes) {
  HVD_CHECK(bytes.size() <= Letter::kMostBytes, "a letter that is too long");
  const std::size_t words = WordsOf(bytes.size());
  Word begin = 0;
  if (!Reserve(mailbox, words, &begin)) {
    // The owner counts what it has taken and then looks whether room is wanted; this says that it
    // is and then looks what was taken: one of them sees the other.
    mailbox.room_wanted.store(1, std::memory_order_seq_cst);
    if (!Reserve(mailbox, words, &begin)) return false;
  }
  for (std::size_t done = 0, i = 1; done < bytes.size(); done += sizeof(Word), ++i) {
    Word word = 0;
    std::memcpy(&word, bytes.data() + done, std::min(sizeof word, bytes.size() - done));
    At(mailbox, begin + i).store(word, std::memory_order_relaxed);
  }
  const Word head = kPresent | (last ? kLast : 0) | static_cast<Word>(from) << kFromShift |
                    static_cast<Word>(bytes.size());
  At(mailbox, begin).store(head, std::memory_order_release);
  return true;
}

bool HasLetter(const ShmMailbox& mailbox) {
  const Word taken = mailbox.taken.load(std::memory_order_relaxed);
  return mailbox.ring[taken % ShmMailbox::kWords].load(std::memory_order_acquire) != 0;
}

// What is taken becomes zero: a word that says nothing yet is how a letter looks that is still
// being written.
bool TakeLetter(ShmMailbox& mailbox, Letter* letter, bool* room_wanted) {
  *room_wanted = false;
  const Word begin = mailbox.taken.load(std::memory_order_relaxed);
  const Word head = At(mailbox, begin).load(std::memory_order_acquire);
  if (head == 0) return false;
  const auto length = static_cast<std::size_t>(head & kLengthMask);
  HVD_CHECK(length <= Letter::kMostBytes, "a mailbox that somebody has written over");
  letter->from = static_cast<int>(head >> kFromShift & kFromMask);
  letter->last = (head & kLast) != 0;
  letter->bytes.resize(length);
  for (std::size_t done = 0, i = 1; done < length; done += sizeof(Word), ++i) {
    std::atomic<Word>& place = At(mailbox, begin + i);
    const Word word = place.load(std::memory_order_relaxed);
    place.store(0, std::memory_order_relaxed);
    std::memcpy(letter->bytes.data() + done, &word, std::min(sizeof word, length - done));
  }
  At(mailbox, begin).store(0, std::memory_order_relaxed);
  mailbox.taken.store(begin + WordsOf(length), std::memory_order_seq_cst);
  if (mailbox.room_wanted.load(std::memory_order_seq_cst) != 0) {
    *room_wanted = mailbox.room_wanted.exchange(0, std::memory_order_seq_cst) != 0;
  }
  return true;
}

}  // namespace horovod_tf
