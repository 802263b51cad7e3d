#include "horovod_tf/common/base/utf8.h"

#include <algorithm>
#include <array>

namespace horovod_tf {

std::size_t Utf8Length(std::string_view text) {
  struct Lead {
    unsigned char first, last;                // range of the leading byte
    std::size_t length;                       // of the sequence
    unsigned char second_first, second_last;  // range of the byte after it
  };
  static constexpr std::array<Lead, 9> kLeads = {{
      {0x00, 0x7f, 1, 0x00, 0x00},
      {0xc2, 0xdf, 2, 0x80, 0xbf},
      {0xe0, 0xe0, 3, 0xa0, 0xbf},
      {0xe1, 0xec, 3, 0x80, 0xbf},
      {0xed, 0xed, 3, 0x80, 0x9f},
      {0xee, 0xef, 3, 0x80, 0xbf},
      {0xf0, 0xf0, 4, 0x90, 0xbf},
      {0xf1, 0xf3, 4, 0x80, 0xbf},
      {0xf4, 0xf4, 4, 0x80, 0x8f},
  }};
  const auto byte = [&text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto within = [](unsigned char value, unsigned char first, unsigned char last) {
    return value >= first && value <= last;
  };
  for (const Lead& lead : kLeads) {
    if (!within(byte(0), lead.first, lead.last)) continue;
    if (lead.length > text.size()) return 0;
    if (lead.length == 1) return 1;
    if (!within(byte(1), lead.second_first, lead.second_last)) return 0;
    for (std::size_t i = 2; i < lead.length; ++i) {
      if (!within(byte(i), 0x80, 0xbf)) return 0;
    }
    return lead.length;
  }
  return 0;
}

std::size_t CopyUtf8(std::string_view text, char* buffer, std::size_t size) {
  std::size_t used = 0;
  while (used < text.size()) {
    const std::size_t length = Utf8Length(text.substr(used));
    const std::size_t step = std::max<std::size_t>(length, 1);
    if (step > size - used) break;
    if (length == 0) {
      buffer[used] = '?';
    } else {
      std::copy_n(text.data() + used, length, buffer + used);
    }
    used += step;
  }
  return used;
}

std::string Utf8Prefix(std::string_view text, std::size_t longest) {
  std::string prefix(std::min(text.size(), longest), '\0');
  prefix.resize(CopyUtf8(text, prefix.data(), prefix.size()));
  return prefix;
}

}  // namespace horovod_tf
