#include "horovod_tf/common/base/config.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <climits>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

#include "horovod_tf/common/base/check.h"
#include "horovod_tf/common/base/config_table.h"
#include "horovod_tf/common/base/utf8.h"

namespace horovod_tf {
namespace {

constexpr std::string_view kFamilyPrefix = "HOROVOD_";
constexpr std::string_view kOwnPrefix = "HOROVOD_TF_";

// Sorted, so that notices come in the same order on every rank.
using Values = std::map<std::string_view, std::string_view>;

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// A value as it may stand in a message: of bounded length, on one line, and UTF-8.
std::string Quoted(std::string_view value) {
  constexpr std::size_t kLongest = 80;
  std::string text = Utf8Prefix(value, kLongest);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, '?');
  return '"' + text + (value.size() > text.size() ? "...\"" : "\"");
}

std::string NotUnderstood(std::string_view name, std::string_view value,
                          const std::string& understood) {
  return std::string(name) + " is set to " + Quoted(value) + "; understood is " + understood;
}

constexpr int kLargestProcessor = 65535;

// ---- numbers ------------------------------------------------------------------------------------

// The whole text as a number; nothing for garbage, trailing garbage and overflow. Unlike strtol and
// strtod it knows no locale, no leading blanks and no hexadecimal.
template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

// The shortest text without an exponent that reads back as the same number.
std::string FormatNumber(double value) {
  std::array<char, 400> text{};
  const std::to_chars_result result =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  HVD_CHECK(result.ec == std::errc(), "a number longer than any double");
  return {text.data(), result.ptr};
}

template <typename Number>
bool Within(const std::optional<Number>& value, Number min, Number max) {
  // Written so that NaN is outside.
  return value.has_value() && *value >= min && *value <= max;
}

// ---- the kinds of variable ----------------------------------------------------------------------
// For each kind: take a value (false: not understood), write one, say what is understood.

bool Take(const PathField& field, std::string_view text, Config* config) {
  config->*field.member = text;
  return !text.empty();
}
std::string Write(const PathField& field, const Config& config) { return config.*field.member; }
std::string Understood(const PathField&) { return "the path of a file"; }

bool Take(const ProcessorsField& field, std::string_view text, Config* config) {
  std::vector<int> processors;
  for (bool more = true; more;) {
    const std::size_t comma = text.find(',');
    more = comma != std::string_view::npos;
    const auto value = ParseNumber<int>(text.substr(0, comma));
    if (!Within(value, 0, kLargestProcessor)) return false;
    processors.push_back(*value);
    if (more) text.remove_prefix(comma + 1);
  }
  config->*field.member = std::move(processors);
  return true;
}
std::string Write(const ProcessorsField& field, const Config& config) {
  std::string text;
  for (const int processor : config.*field.member) {
    text += (text.empty() ? "" : ",") + std::to_string(processor);
  }
  return text;
}
std::string Understood(const ProcessorsField&) {
  return "a number from 0 to " + std::to_string(kLargestProcessor) +
         ", or several with commas between them";
}

bool Take(const IntegerField& field, std::string_view text, Config* config) {
  const auto value = ParseNumber<std::int64_t>(text);
  if (!Within(value, field.min, field.max)) return false;
  config->*field.member = *value;
  return true;
}
std::string Write(const IntegerField& field, const Config& config) {
  return std::to_string(config.*field.member);
}
std::string Understood(const IntegerField& field) {
  return "a whole number from " + std::to_string(field.min) + " to " + std::to_string(field.max);
}

bool Take(const BoolField& field, std::string_view text, Config* config) {
  const std::string word = Lower(text);
  const auto is_one_of = [&word](std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  const bool positive =
      field.any_positive_integer && ParseNumber<std::int64_t>(text).value_or(0) > 0;
  const bool yes = positive || is_one_of({"true", "yes", "on", "1"});
  config->*field.member = yes;
  return yes || is_one_of({"false", "no", "off", "0"});
}
std::string Write(const BoolField& field, const Config& config) {
  return config.*field.member ? "true" : "false";
}
std::string Understood(const BoolField& field) {
  return field.any_positive_integer
             ? "true, yes, on or a positive whole number; false, no, off or 0"
             : "true, yes, on or 1; false, no, off or 0";
}

bool Take(const DurationField& field, std::string_view text, Config* config) {
  const auto value = ParseNumber<double>(text);
  const bool zero = field.zero_is_special && value == 0.0;
  if (!zero && !Within(value, field.min, field.max)) return false;
  // Rounded and not cut off, so that a value is described as it was written.
  const double nanoseconds = *value * field.unit_seconds * 1e9;
  config->*field.member = std::chrono::nanoseconds(std::llround(nanoseconds));
  return true;
}
std::string Write(const DurationField& field, const Config& config) {
  const std::chrono::nanoseconds nanoseconds = config.*field.member;
  return FormatNumber(static_cast<double>(nanoseconds.count()) / (field.unit_seconds * 1e9));
}
std::string Understood(const DurationField& field) {
  return (field.zero_is_special ? "0 or a number from " : "a number from ") +
         FormatNumber(field.min) + " to " + FormatNumber(field.max);
}

bool Take(const LogLevelField& field, std::string_view text, Config* config) {
  const std::optional<LogLevel> level = LogLevelFromName(text);
  if (level.has_value()) config->*field.member = *level;
  return level.has_value();
}
std::string Write(const LogLevelField& field, const Config& config) {
  return std::string(LogLevelName(config.*field.member));
}
std::string Understood(const LogLevelField&) {
  return "trace, debug, info, warning, error or fatal";
}

// ---- the same for a row of the table ------------------------------------------------------------

bool TakeValue(const ConfigVariable& variable, std::string_view text, Config* config) {
  return std::visit([&](const auto& field) { return Take(field, text, config); }, variable.field);
}

std::string WriteValue(const ConfigVariable& variable, const Config& config) {
  return std::visit([&](const auto& field) { return Write(field, config); }, variable.field);
}

std::string WhatIsUnderstood(const ConfigVariable& variable) {
  std::string text =
      std::visit([](const auto& field) { return Understood(field); }, variable.field);
  if (!variable.unit.empty()) text.append(" (").append(variable.unit).append(")");
  return text;
}

// ---- names --------------------------------------------------------------------------------------

// How many letters must be inserted, removed or changed to turn one into the other.
std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, diagonal + 1, row[j] + 1});
    }
  }
  return row[b.size()];
}

struct Nearest {
  std::string_view name;
  std::size_t distance;
};

Nearest NearestVariable(std::string_view name) {
  Nearest nearest{{}, SIZE_MAX};
  for (const ConfigVariable& variable : ConfigVariables()) {
    const std::size_t distance = EditDistance(name, variable.name);
    if (distance < nearest.distance) nearest = {variable.name, distance};
  }
  return nearest;
}

template <typename Row>
bool HasName(Table<Row> rows, std::string_view name) {
  return std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return row.name == name; });
}

bool Matches(const IgnoredVariable& ignored, std::string_view name) {
  if (ignored.name.back() != '*') return name == ignored.name;
  return StartsWith(name, ignored.name.substr(0, ignored.name.size() - 1));
}

// Looks at a name that is set: an error, a notice, or nothing to say.
void JudgeName(std::string_view name, std::vector<std::string>* errors,
               std::vector<std::string>* notices) {
  constexpr std::size_t kSlipOfTheFinger = 3;
  if (!StartsWith(name, kFamilyPrefix) || HasName(ConfigVariables(), name) ||
      HasName(LauncherVariables(), name)) {
    return;
  }
  const Nearest nearest = NearestVariable(name);
  if (StartsWith(name, kOwnPrefix)) {
    errors->push_back(std::string(name) + " is not known; the nearest known name is " +
                      std::string(nearest.name));
    return;
  }
  for (const IgnoredVariable& ignored : IgnoredVariables()) {
    if (!Matches(ignored, name)) continue;
    notices->push_back(std::string(name) + " has no effect: " + std::string(ignored.reason));
    return;
  }
  std::string notice = std::string(name) + " is not known and has no effect";
  if (nearest.distance <= kSlipOfTheFinger) {
    notice.append("; did you mean ").append(nearest.name).append("?");
  }
  notices->push_back(notice);
}

// ---- what concerns more than one variable -------------------------------------------------------

std::string_view ValueOf(const Values& values, std::string_view name) {
  const auto it = values.find(name);
  return it == values.end() ? std::string_view() : it->second;
}

// For texts only, so that what is not understood is as good as not there.
void ReadPlace(const Values& values, const LauncherVariable& variable, Config* config) {
  const auto number = [&values](std::string_view name) {
    return ParseNumber<int>(ValueOf(values, name));
  };
  const auto rank = number(variable.rank);
  const auto local_size = number(variable.local_size);
  if (Within(rank, 0, config->launcher_size - 1)) config->launcher_rank = *rank;
  if (Within(local_size, 1, config->launcher_size)) config->launcher_local_size = *local_size;
  config->launcher_job = ValueOf(values, variable.job);
}

// A launcher's variable that is not understood is an error: without it each of its processes would
// take itself for the only one, and they would train apart.
void ReadLauncher(const Values& values, Config* config, std::vector<std::string>* errors) {
  for (const LauncherVariable& variable : LauncherVariables()) {
    const auto it = values.find(variable.name);
    if (it == values.end()) continue;
    const auto size = ParseNumber<int>(it->second);
    if (!Within(size, 1, INT_MAX)) {
      errors->push_back(NotUnderstood(
          variable.name, it->second,
          "a number of processes, a whole number from 1 to " + std::to_string(INT_MAX)));
    } else if (config->launcher_size == 0) {
      config->launcher_size = *size;
      config->launcher_variable = variable.name;
      ReadPlace(values, variable, config);
    }
  }
}

// Whoever waits longer for the warning must not be ended before it by a default.
void ReconcileStallTimes(const Values& values, Config* config) {
  constexpr int kWarningsBeforeTheEnd = 10;
  if (values.count("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS") > 0) return;
  config->stall_shutdown_time =
      std::max(config->stall_shutdown_time, kWarningsBeforeTheEnd * config->stall_warning_time);
}

void Reconcile(const Values& values, Config* config) {
  // That one may be started later, which needs no leave here.
  if (config->timeline_path == "DYNAMIC") config->timeline_path.clear();
  ReconcileStallTimes(values, config);
}

std::string Join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    if (!text.empty()) text += '\n';
    text += line;
  }
  return text;
}

}  // namespace

Config Config::Defaults() {
  Config config;
  for (const ConfigVariable& variable : ConfigVariables()) {
    if (variable.default_text.empty()) continue;
    HVD_CHECK(TakeValue(variable, variable.default_text, &config), variable.name);
  }
  return config;
}

Environment ReadProcessEnvironment() {
  Environment environment;
  if (environ == nullptr) return environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

Status ParseConfig(const Environment& environment, Config* config) {
  Values values;
  // Of a name that is there twice the first counts, as with getenv.
  for (const auto& [name, value] : environment) values.emplace(name, value);

  Config parsed = Config::Defaults();
  std::vector<std::string> errors;
  for (const ConfigVariable& variable : ConfigVariables()) {
    const auto it = values.find(variable.name);
    if (it == values.end() || TakeValue(variable, it->second, &parsed)) continue;
    errors.push_back(NotUnderstood(variable.name, it->second, WhatIsUnderstood(variable)));
  }
  for (const auto& [name, value] : values) JudgeName(name, &errors, &parsed.notices);
  ReadLauncher(values, &parsed, &errors);
  if (!errors.empty()) return Status::InvalidArgument(Join(errors));
  Reconcile(values, &parsed);
  *config = std::move(parsed);
  return Status::Ok();
}

std::string DescribeConfig(const Config& config) {
  std::vector<std::string> lines;
  for (const ConfigVariable& variable : ConfigVariables()) {
    lines.push_back(std::string(variable.name) + "=" + WriteValue(variable, config));
  }
  return Join(lines);
}

std::string EnvironmentMarkdown() {
  std::vector<std::string> lines = {
      "# Environment variables",
      "",
      "Generated from `horovod_tf/common/base/config_table.cc`, which is also what the library "
      "parses with: change it there.",
      "",
      "The environment is read once, by `init()`. A value that is not understood is an error that "
      "names the variable, the value and what is understood; so is an empty value: unset the "
      "variable for its default. Words are understood in any case of letters. An unknown name that "
      "begins with `HOROVOD_TF_` is an error too; other unknown names that begin with `HOROVOD_` "
      "get a warning.",
      "",
      "| variable | default | understood | meaning |",
      "|---|---|---|---|",
  };
  const auto code = [](std::string_view text) { return "`" + std::string(text) + "`"; };
  for (const ConfigVariable& variable : ConfigVariables()) {
    const std::string_view value = variable.default_text;
    lines.push_back("| " + code(variable.name) + " | " + (value.empty() ? "unset" : code(value)) +
                    " | " + WhatIsUnderstood(variable) + " | " + std::string(variable.doc) + " |");
  }
  lines.insert(lines.end(),
               {"", "## Set by launchers", "",
                "Says how many processes were started. The first that is set counts; "
                "in any of them a value that is no whole number from 1 on is an error.",
                "", "| variable | launcher |", "|---|---|"});
  for (const LauncherVariable& variable : LauncherVariables()) {
    lines.push_back("| " + code(variable.name) + " | " + std::string(variable.launcher) + " |");
  }
  lines.insert(lines.end(), {"", "## Without effect", "",
                             "Variables of the reference system that change nothing here. One that "
                             "is set gets a warning with the reason; `*` stands for any ending.",
                             "", "| variable | reason |", "|---|---|"});
  for (const IgnoredVariable& variable : IgnoredVariables()) {
    lines.push_back("| " + code(variable.name) + " | " + std::string(variable.reason) + " |");
  }
  return Join(lines) + "\n";
}

}  // namespace horovod_tf
