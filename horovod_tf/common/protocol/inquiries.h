// Inquiries: what rank 0 learns of the ranks that others wait for, before it complains of them.
// Pure: time is an argument.
#ifndef HOROVOD_TF_COMMON_PROTOCOL_INQUIRIES_H_
#define HOROVOD_TF_COMMON_PROTOCOL_INQUIRIES_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/protocol/message.h"
#include "horovod_tf/common/protocol/stall_monitor.h"

namespace horovod_tf {

// How long before a complaint those are asked whom it is about: what answers in that time is alive.
Duration InquiryLead(const StallOptions& options);

// "is in user code for 61 s, since ...": the rest of a sentence about the rank that has sent
// `report` so long ago.
std::string DescribeReport(const Report& report, Duration ago);
// "has not answered for 2 s: ...".
std::string DescribeSilence(Duration silence);

// Thread rule: one thread at a time.
class Inquiries {
 public:
  explicit Inquiries(Duration lead) : lead_(lead) {}

  // When to ask, if there will be a complaint at `complaint`: a little before it, or when it is
  // due once that has been done.
  TimePoint NextAsk(TimePoint complaint) const;
  // Whom of `ranks` to ask now for this complaint: none twice, and none that owes an answer.
  std::vector<int> Ask(TimePoint complaint, const std::vector<int>& ranks, TimePoint now);
  void OnReport(int rank, Report report, TimePoint now);

  // A line for each of `ranks`, but not for more than a few: what it does, or that it is silent.
  std::string Describe(const std::vector<int>& ranks, TimePoint now) const;

 private:
  struct Known {
    std::optional<TimePoint> asked;  // and has not answered since
    std::optional<Report> report;
    TimePoint reported;
  };
  std::string Describe(const Known& known, TimePoint now) const;

  const Duration lead_;
  std::optional<TimePoint> asked_for_;
  std::map<int, Known> known_;  // of those that have been asked
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_PROTOCOL_INQUIRIES_H_
