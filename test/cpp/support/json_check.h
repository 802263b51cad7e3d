// A strict JSON reader for tests: what it takes, every reader takes.
#ifndef HOROVOD_TF_TEST_CPP_SUPPORT_JSON_CHECK_H_
#define HOROVOD_TF_TEST_CPP_SUPPORT_JSON_CHECK_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace horovod_tf {

// Thread rule: a value; no rule of its own.
struct Json {
  enum class Type { kNull, kBool, kNumber, kString, kArray, kObject };
  Type type = Type::kNull;
  bool boolean = false;
  double number = 0;
  std::string string;
  std::vector<Json> array;
  std::map<std::string, Json> object;

  // The member, or a null value if there is none.
  const Json& operator[](const std::string& key) const;
};

// The value, or nothing, and then `error` says where and why, for anything that RFC 8259 does not
// allow, and for a key that is there twice.
std::optional<Json> ParseJson(std::string_view text, std::string* error);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_TEST_CPP_SUPPORT_JSON_CHECK_H_
