#include "test/cpp/support/json_check.h"

#include <cstdint>
#include <cstdlib>

namespace horovod_tf {
namespace {

// Thread rule: used on one thread, once.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::optional<Json> Read(std::string* error) {
    Json value;
    if (Value(&value, 0)) {
      SkipBlanks();
      if (at_ == text_.size()) return value;
      Fail("something after the value");
    }
    *error = error_ + " at byte " + std::to_string(at_) + " of " + std::to_string(text_.size());
    return std::nullopt;
  }

 private:
  bool Fail(const char* why) {
    if (error_.empty()) error_ = why;
    return false;
  }
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool Take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool TakeWord(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return Fail("an unknown word");
    at_ += word.size();
    return true;
  }
  void SkipBlanks() {
    while (Take(' ') || Take('\n') || Take('\r') || Take('\t')) continue;
  }

  bool Value(Json* value, int depth) {
    if (depth > 50) return Fail("too deep");
    SkipBlanks();
    switch (Peek()) {
      case '{':
        return Object(value, depth);
      case '[':
        return Array(value, depth);
      case '"':
        value->type = Json::Type::kString;
        return String(&value->string);
      case 't':
      case 'f':
        value->type = Json::Type::kBool;
        value->boolean = Peek() == 't';
        return TakeWord(value->boolean ? "true" : "false");
      case 'n':
        return TakeWord("null");
      default:
        return Number(value);
    }
  }

  bool Object(Json* value, int depth) {
    value->type = Json::Type::kObject;
    Take('{');
    SkipBlanks();
    if (Take('}')) return true;
    do {
      SkipBlanks();
      std::string key;
      if (!String(&key)) return false;
      if (value->object.count(key) != 0) return Fail("a key twice");
      SkipBlanks();
      if (!Take(':')) return Fail("no colon");
      if (!Value(&value->object[key], depth + 1)) return false;
      SkipBlanks();
    } while (Take(','));
    return Take('}') || Fail("an object without end");
  }

  bool Array(Json* value, int depth) {
    value->type = Json::Type::kArray;
    Take('[');
    SkipBlanks();
    if (Take(']')) return true;
    do {
      value->array.emplace_back();
      if (!Value(&value->array.back(), depth + 1)) return false;
      SkipBlanks();
    } while (Take(','));
    return Take(']') || Fail("an array without end");
  }

  std::size_t Digits() {
    const std::size_t start = at_;
    while (Peek() >= '0' && Peek() <= '9') ++at_;
    return at_ - start;
  }

  bool Number(Json* value) {
    const std::size_t start = at_;
    Take('-');
    if (!Take('0') && Digits() == 0) return Fail("no value");
    if (Take('.') && Digits() == 0) return Fail("no digit after the point");
    if (Take('e') || Take('E')) {
      if (!Take('+')) Take('-');
      if (Digits() == 0) return Fail("no digit in the exponent");
    }
    value->type = Json::Type::kNumber;
    value->number = std::strtod(std::string(text_.substr(start, at_ - start)).c_str(), nullptr);
    return true;
  }

  bool String(std::string* string) {
    if (!Take('"')) return Fail("no string");
    while (!Take('"')) {
      if (at_ >= text_.size()) return Fail("a string without end");
      if (static_cast<unsigned char>(Peek()) < ' ') return Fail("a control character");
      const bool taken = Take('\\') ? Escape(string) : Utf8(string);
      if (!taken) return false;
    }
    return true;
  }

  bool Escape(std::string* string) {
    constexpr std::string_view kLetters = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const std::size_t letter = kLetters.find(Peek());
    if (letter != std::string_view::npos && Peek() != '\0') {
      ++at_;
      *string += kMeanings[letter];
      return true;
    }
    if (!Take('u')) return Fail("an unknown escape");
    std::uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      const std::size_t digit = kDigits.find(Peek());
      if (digit == std::string_view::npos || Peek() == '\0') return Fail("no \\u0000");
      code = code * 16 + static_cast<std::uint32_t>(digit);
      ++at_;
    }
    // Only what our writer makes: no code beyond the basic plane is written as an escape.
    if (code >= 0xd800 && code <= 0xdfff) return Fail("half a character");
    AppendUtf8(code, string);
    return true;
  }

  static void AppendUtf8(std::uint32_t code, std::string* string) {
    const auto append = [string](std::uint32_t byte) { *string += static_cast<char>(byte); };
    if (code < 0x80) {
      append(code);
    } else if (code < 0x800) {
      append(0xc0 | code >> 6);
      append(0x80 | (code & 0x3f));
    } else {
      append(0xe0 | code >> 12);
      append(0x80 | (code >> 6 & 0x3f));
      append(0x80 | (code & 0x3f));
    }
  }

  // Decodes, so that it checks in another way than the code under test does.
  bool Utf8(std::string* string) {
    const auto lead = static_cast<unsigned char>(Peek());
    const int more = lead < 0x80 ? 0 : lead >> 5 == 6 ? 1 : lead >> 4 == 14 ? 2 : 3;
    if (more == 3 && lead >> 3 != 30) return Fail("no UTF-8");
    std::uint32_t code = lead & (more == 0 ? 0x7fU : 0x3fU >> more);
    string->push_back(Peek());
    ++at_;
    for (int i = 0; i < more; ++i, ++at_) {
      const auto next = static_cast<unsigned char>(Peek());
      if (next >> 6 != 2) return Fail("UTF-8 cut off");
      code = code << 6 | (next & 0x3fU);
      string->push_back(Peek());
    }
    constexpr std::uint32_t kSmallest[] = {0, 0x80, 0x800, 0x10000};
    const bool surrogate = code >= 0xd800 && code <= 0xdfff;
    return (code >= kSmallest[more] && code <= 0x10ffff && !surrogate) || Fail("no character");
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  std::string error_;
};

}  // namespace

const Json& Json::operator[](const std::string& key) const {
  static const Json kNothing;
  const auto it = object.find(key);
  return it == object.end() ? kNothing : it->second;
}

std::optional<Json> ParseJson(std::string_view text, std::string* error) {
  return Reader(text).Read(error);
}

}  // namespace horovod_tf
