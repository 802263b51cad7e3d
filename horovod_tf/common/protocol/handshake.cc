#include "horovod_tf/common/protocol/handshake.h"

#include <algorithm>

#include "horovod_tf/common/base/check.h"

namespace horovod_tf {
namespace {

using Agreements = std::vector<std::pair<std::string, std::string>>;

std::optional<std::string> Find(const Agreements& agreements, const std::string& name) {
  const auto found = std::find_if(agreements.begin(), agreements.end(),
                                  [&](const auto& agreement) { return agreement.first == name; });
  return found == agreements.end() ? std::nullopt : std::optional<std::string>(found->second);
}

std::string RankOnHost(std::size_t rank, const Hello& hello) {
  return "rank " + std::to_string(rank) + " on " + hello.host;
}

// Two ranks' views of one setting, and what to say when they differ.
struct Difference {
  std::string name;
  std::optional<std::string> first;
  std::optional<std::string> other;
};

std::optional<Difference> FirstDifference(const Hello& first, const Hello& other) {
  if (first.library_version != other.library_version) {
    return Difference{"version of the library", first.library_version, other.library_version};
  }
  for (const auto& [name, value] : first.agreements) {
    std::optional<std::string> theirs = Find(other.agreements, name);
    if (theirs != value) return Difference{name, value, std::move(theirs)};
  }
  for (const auto& [name, value] : other.agreements) {
    if (!Find(first.agreements, name).has_value()) return Difference{name, std::nullopt, value};
  }
  if (first.agreements == other.agreements) return std::nullopt;
  // The same names and values, so other builds of what should be one table.
  const auto names = [](const Agreements& agreements) {
    std::string text;
    for (const auto& agreement : agreements) text += (text.empty() ? "" : ", ") + agreement.first;
    return text;
  };
  return Difference{"order of the settings", names(first.agreements), names(other.agreements)};
}

std::string Quoted(const std::optional<std::string>& value) {
  return value.has_value() ? "'" + *value + "'" : "no such setting";
}

}  // namespace

Handshake::Handshake(int size) : hellos_(static_cast<std::size_t>(size)) {}

Status Handshake::OnHello(int rank, Hello hello) {
  const auto index = static_cast<std::size_t>(rank);
  if (rank < 0 || index >= hellos_.size()) {
    return Status::InvalidArgument("Hello from rank " + std::to_string(rank) + " on " + hello.host +
                                   ", but the job has " + std::to_string(hellos_.size()) +
                                   " ranks.");
  }
  if (hellos_[index].has_value()) {
    return Status::InvalidArgument("Rank " + std::to_string(rank) + " said hello twice (from " +
                                   hellos_[index]->host + " and from " + hello.host + ").");
  }
  hellos_[index] = std::move(hello);
  ++arrived_;
  return Status::Ok();
}

Welcome Handshake::Conclude() const {
  HVD_CHECK(complete(), "the handshake ended before every rank had said hello");
  const Hello& first = *hellos_.front();
  Welcome welcome;
  for (std::size_t rank = 0; rank < hellos_.size(); ++rank) {
    const Hello& hello = *hellos_[rank];
    if (const auto difference = FirstDifference(first, hello); difference.has_value()) {
      return {Status::FailedPrecondition(
                  "The ranks do not agree on " + difference->name + ": " + RankOnHost(0, first) +
                  " has " + Quoted(difference->first) + ", but " + RankOnHost(rank, hello) +
                  " has " + Quoted(difference->other) + ". Start all ranks with the same."),
              {}};
    }
    welcome.hosts.push_back(hello.host);
  }
  return welcome;
}

std::string Handshake::Progress() const {
  std::string present;
  std::string missing;
  for (std::size_t rank = 0; rank < hellos_.size(); ++rank) {
    std::string& list = hellos_[rank].has_value() ? present : missing;
    if (!list.empty()) list += ", ";
    list += hellos_[rank].has_value() ? RankOnHost(rank, *hellos_[rank])
                                      : "rank " + std::to_string(rank);
  }
  std::string text =
      std::to_string(arrived_) + " of " + std::to_string(hellos_.size()) + " ranks arrived";
  if (!present.empty()) text += " (" + present + ")";
  if (!missing.empty()) text += "; missing: " + missing;
  return text;
}

}  // namespace horovod_tf
