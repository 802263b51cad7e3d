// The table of environment variables: the one source for parsing, for describing what is in force,
// for the defaults and for docs/environment.md. A new variable is one row here.
#ifndef HOROVOD_TF_COMMON_BASE_CONFIG_TABLE_H_
#define HOROVOD_TF_COMMON_BASE_CONFIG_TABLE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "horovod_tf/common/base/config.h"
#include "horovod_tf/common/base/table.h"

namespace horovod_tf {

// Where a value goes and which values are understood. One struct per kind of variable.
struct PathField {
  std::string Config::*member;
};
struct IntegerField {
  std::int64_t Config::*member;
  std::int64_t min;
  std::int64_t max;
};
struct BoolField {
  bool Config::*member;
  bool any_positive_integer = false;  // also understood as true
};
// A number, fractions allowed, of `unit_seconds` each.
struct DurationField {
  Duration Config::*member;
  double unit_seconds;
  double min;
  double max;
  // 0 is understood besides and is no short time but something else ("never"): no time that is
  // meant may come near it, let alone be rounded to it.
  bool zero_is_special = false;
};
// Numbers of processors with commas between them.
struct ProcessorsField {
  std::vector<int> Config::*member;
};
struct LogLevelField {
  LogLevel Config::*member;
};
using ConfigField =
    std::variant<PathField, IntegerField, BoolField, DurationField, ProcessorsField, LogLevelField>;

struct ConfigVariable {
  std::string_view name;
  ConfigField field;
  std::string_view default_text;  // as it would be written in the environment; empty: unset
  std::string_view unit;          // "bytes"; empty where the value has none
  std::string_view doc;
};

// All variables, in the order of the documentation.
Table<ConfigVariable> ConfigVariables();

// A variable of the reference system that has no effect here. A name that ends in '*' stands for
// all names that begin like it.
struct IgnoredVariable {
  std::string_view name;
  std::string_view reason;
};
Table<IgnoredVariable> IgnoredVariables();

// A variable in which a launcher says how many processes it started, and those in which it says
// more; empty where there is none.
struct LauncherVariable {
  std::string_view name;
  std::string_view launcher;
  std::string_view rank;
  std::string_view local_size;
  std::string_view job;
};
// The first that is set counts.
Table<LauncherVariable> LauncherVariables();

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_BASE_CONFIG_TABLE_H_
