// UTF-8: what a byte sequence is, and how a text is cut without breaking a character.
#ifndef HOROVOD_TF_COMMON_BASE_UTF8_H_
#define HOROVOD_TF_COMMON_BASE_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace horovod_tf {

// How many bytes the UTF-8 sequence at the start of `text` has; 0 if it is none (cut off, overlong,
// a surrogate, beyond U+10FFFF). REQUIRES: !text.empty().
std::size_t Utf8Length(std::string_view text);

// Copies as much of `text` as fits into `size` bytes, whole characters only, with '?' for every
// byte that is no UTF-8. Returns how many bytes it wrote, which is how many of `text` it used.
// Allocates nothing, and writes no zero byte at the end.
std::size_t CopyUtf8(std::string_view text, char* buffer, std::size_t size);

// The same as a string of at most `longest` bytes.
std::string Utf8Prefix(std::string_view text, std::size_t longest);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_BASE_UTF8_H_
