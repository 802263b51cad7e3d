#include "horovod_tf/common/protocol/inquiries.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace horovod_tf {
namespace {

constexpr Duration kLongestLead = std::chrono::seconds(2);
constexpr std::size_t kRanksInText = 20;
constexpr std::size_t kTensorsInSentence = 3;

// "'x' (for 61 s), 'y' (for 61 s) and 3 more".
std::string TensorList(const std::vector<WaitingTensor>& waiting, Duration ago) {
  std::string text;
  const std::size_t listed = std::min(waiting.size(), kTensorsInSentence);
  for (std::size_t i = 0; i < listed; ++i) {
    if (i > 0) text += ", ";
    text += "'" + waiting[i].name + "' (for " +
            SecondsText(OfMilliseconds(waiting[i].milliseconds) + ago) + ")";
  }
  if (waiting.size() > listed) text += " and " + std::to_string(waiting.size() - listed) + " more";
  return text;
}

}  // namespace

Duration InquiryLead(const StallOptions& options) {
  Duration shortest = options.warning_time;
  if (options.shutdown_time > Duration::zero()) {
    shortest = std::min(shortest, options.shutdown_time);
  }
  return std::min(kLongestLead, shortest / 4);
}

std::string DescribeReport(const Report& report, Duration ago) {
  const std::string time = SecondsText(OfMilliseconds(report.milliseconds) + ago);
  const std::string last =
      report.executed == 0 ? "hvd.init()"
                           : report.last + ", its collective " + std::to_string(report.executed);
  if (report.waiting.empty()) return "is in user code for " + time + ", since " + last;
  return "waits for " + TensorList(report.waiting, ago) + "; " + time + " ago it finished " + last;
}

std::string DescribeSilence(Duration silence) {
  return "has not answered for " + SecondsText(silence) +
         ": its process is stopped or overloaded, its host is out of reach, or it is in the middle "
         "of a long operation";
}

TimePoint Inquiries::NextAsk(TimePoint complaint) const {
  if (complaint == kNever || asked_for_ == complaint) return complaint;
  return complaint - std::min(lead_, complaint.time_since_epoch());
}

std::vector<int> Inquiries::Ask(TimePoint complaint, const std::vector<int>& ranks, TimePoint now) {
  std::vector<int> to_ask;
  if (now < NextAsk(complaint) || asked_for_ == complaint) return to_ask;
  asked_for_ = complaint;
  for (const int rank : ranks) {
    Known& known = known_[rank];
    if (known.asked.has_value()) continue;
    known.asked = now;
    to_ask.push_back(rank);
  }
  return to_ask;
}

void Inquiries::OnReport(int rank, Report report, TimePoint now) {
  Known& known = known_[rank];
  known.asked.reset();
  known.report = std::move(report);
  known.reported = now;
}

std::string Inquiries::Describe(const std::vector<int>& ranks, TimePoint now) const {
  std::string text;
  const std::size_t listed = std::min(ranks.size(), kRanksInText);
  for (std::size_t i = 0; i < listed; ++i) {
    const auto found = known_.find(ranks[i]);
    if (found == known_.end()) continue;
    text += "\nRank " + std::to_string(ranks[i]) + " " + Describe(found->second, now) + ".";
  }
  if (ranks.size() > listed) {
    text += "\n... and " + std::to_string(ranks.size() - listed) + " ranks more";
  }
  return text;
}

std::string Inquiries::Describe(const Known& known, TimePoint now) const {
  std::string text;
  if (known.asked == now) return "is being asked what it does";
  if (known.asked.has_value()) text = DescribeSilence(now - *known.asked);
  if (!known.report.has_value()) return text;
  const std::string did = DescribeReport(*known.report, now - known.reported);
  return text.empty() ? did : text + ". Its last answer: it " + did;
}

}  // namespace horovod_tf
