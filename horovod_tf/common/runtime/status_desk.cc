#include "horovod_tf/common/runtime/status_desk.h"

#include <utility>

#include "horovod_tf/common/protocol/inquiries.h"
#include "horovod_tf/common/protocol/stall_monitor.h"

namespace horovod_tf {
namespace {

std::string MissingText(const WaitingTensor& tensor) {
  const std::vector<int> ranks(tensor.missing_ranks.begin(), tensor.missing_ranks.end());
  return "\n  '" + tensor.name + "' for " + SecondsText(OfMilliseconds(tensor.milliseconds)) +
         " [missing ranks: " + RankList(ranks) + "]";
}

std::string WaitingText(const StatusAnswer& answer) {
  if (answer.report.waiting.empty()) return "";
  std::string text = "\nwaiting on this rank:";
  for (const WaitingTensor& tensor : answer.report.waiting) {
    text += "\n  '" + tensor.name + "' for " + SecondsText(OfMilliseconds(tensor.milliseconds));
  }
  if (!answer.complete) return text + "\nrank 0, which knows who is missing, has not answered";
  if (answer.waiting.empty()) return text + "\nno rank is missing, as rank 0 sees it";
  text += "\nwho is missing, as rank 0 sees it:";
  for (const WaitingTensor& tensor : answer.waiting) text += MissingText(tensor);
  return text;
}

}  // namespace

StatusAnswer StatusDesk::Ask(const std::function<void()>& wake, TimePoint deadline) {
  MutexLock turn(one_at_a_time_);
  {
    MutexLock lock(mutex_);
    answer_ = StatusAnswer();
  }
  wanted_.store(true, std::memory_order_release);
  wake();
  MutexLock lock(mutex_);
  while (!answer_.complete && clock_.Now() < deadline) clock_.WaitUntil(changed_, mutex_, deadline);
  return answer_;
}

void StatusDesk::SayHere(Report report, bool complete) {
  MutexLock lock(mutex_);
  answer_.here = true;
  answer_.report = std::move(report);
  answer_.complete = complete;
  changed_.NotifyAll();
}

void StatusDesk::SayWaiting(std::vector<WaitingTensor> waiting) {
  MutexLock lock(mutex_);
  if (!answer_.here) return;
  answer_.waiting = std::move(waiting);
  answer_.complete = true;
  changed_.NotifyAll();
}

std::string StatusText(const StatusAnswer& answer, int rank, int size, const std::string& host,
                       const std::string& config) {
  std::string text = "rank " + std::to_string(rank) + " of " + std::to_string(size) + " on " + host;
  if (!answer.ended.ok()) {
    text += " takes no more tensors: " + answer.ended.message();
  } else if (answer.here) {
    text += " " + DescribeReport(answer.report, Duration::zero()) + WaitingText(answer);
  } else {
    text +=
        " does not answer: its background thread is in the middle of an operation, or in a "
        "tensor's completion callback";
  }
  return config.empty() ? text : text + "\nenvironment in force:\n" + config;
}

}  // namespace horovod_tf
