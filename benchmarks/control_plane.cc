// What negotiation costs: jobs of 1 to 512 ranks and 1 to 1000 tensors, stepped by hand on one
// thread, without a transport. All ranks of a simulated job ask for the same, so one Negotiator
// makes the message that every rank sends; rank 0 takes a copy from each.
//
//   control_plane                                   the whole table; JSON lines on stdout
//   control_plane --ranks R --tensors T --steps S   one case (under callgrind, for instance)
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "horovod_tf/common/base/check.h"
#include "horovod_tf/common/protocol/coordinator.h"
#include "horovod_tf/common/protocol/negotiator.h"

namespace horovod_tf {
namespace {

// The goal for a steady step of this many tensors and ranks.
constexpr int kGoalRanks = 64;
constexpr int kGoalTensors = 1000;
constexpr double kGoalMicroseconds = 1000;
constexpr std::size_t kGoalBytes = 200;

struct Step {
  double coordinator_us = 0;  // rank 0: decode and count all messages, decide, encode the log
  double rank_us = 0;         // any rank: submit all, announce, encode; decode and apply the log
  std::size_t announce_bytes = 0;
  std::size_t log_bytes = 0;
};

double Now() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - TimePoint{})
      .count();
}

class Job {
 public:
  Job(int ranks, int tensors) : ranks_(ranks), coordinator_(Options(ranks)), negotiator_(0, ranks) {
    for (int i = 0; i < tensors; ++i) {
      Request request;
      request.name =
          "DistributedOptimizer_Allreduce/HorovodAllreduce_gradient_" + std::to_string(i) + "_0";
      request.shape = TensorShape{256, 64 + i % 7};
      requests_.push_back(std::move(request));
    }
  }

  Step Run() {
    Step step;
    std::vector<Request> requests = requests_;  // the caller's work
    const double submit_start = Now();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      negotiator_.Submit(std::move(requests[i]), i);
    }
    Announce announce;
    HVD_CHECK(negotiator_.TakeAnnounce(&announce), "there is something to say");
    const std::string message = EncodeMessage(std::move(announce));
    step.rank_us += Now() - submit_start;
    step.announce_bytes = message.size();

    const std::vector<std::string> messages(static_cast<std::size_t>(ranks_), message);
    const double coordinator_start = Now();
    for (int rank = 0; rank < ranks_; ++rank) {
      const Announce received = Decode<Announce>(messages[static_cast<std::size_t>(rank)]);
      Check(coordinator_.OnAnnounce(rank, received, TimePoint{}));
    }
    Log log;
    coordinator_.Advance(TimePoint{}, &log);
    const std::string log_message = EncodeMessage(std::move(log));
    step.coordinator_us = Now() - coordinator_start;
    step.log_bytes = log_message.size();

    const double log_start = Now();
    std::vector<Response> responses;
    Check(negotiator_.OnLog(Decode<Log>(log_message), &responses));
    step.rank_us += Now() - log_start;
    std::size_t executed = 0;
    for (const Response& response : responses) executed += response.tokens.size();
    HVD_CHECK(executed == requests_.size(), "every tensor is executed");
    return step;
  }

 private:
  static CoordinatorOptions Options(int ranks) {
    CoordinatorOptions options;
    options.size = ranks;
    options.stall.warning_time = FromSeconds(60);
    return options;
  }
  static void Check(const Status& status) { HVD_CHECK(status.ok(), status.ToString()); }
  template <typename T>
  T Decode(const std::string& bytes) const {
    Message message;
    std::uint32_t process_set = 0;
    Check(DecodeMessage(bytes, DecodeLimits{ranks_}, &message, &process_set));
    return std::get<T>(std::move(message));
  }

  const int ranks_;
  Coordinator coordinator_;
  Negotiator negotiator_;
  std::vector<Request> requests_;
};

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Step MedianOf(const std::vector<Step>& steps) {
  Step median = steps.back();  // bytes are the same in all of them
  std::vector<double> coordinator;
  std::vector<double> rank;
  for (const Step& step : steps) {
    coordinator.push_back(step.coordinator_us);
    rank.push_back(step.rank_us);
  }
  median.coordinator_us = Median(std::move(coordinator));
  median.rank_us = Median(std::move(rank));
  return median;
}

void Print(const char* name, int ranks, int tensors, const Step& step) {
  std::printf(
      "{\"benchmark\": \"control_plane\", \"step\": \"%s\", \"ranks\": %d, \"tensors\": %d, "
      "\"coordinator_us\": %.2f, \"rank_us\": %.2f, \"announce_bytes\": %zu, \"log_bytes\": %zu}\n",
      name, ranks, tensors, step.coordinator_us, step.rank_us, step.announce_bytes, step.log_bytes);
  std::fprintf(stderr, "%6d %8d  %-6s %14.2f %12.2f %14zu %10zu\n", ranks, tensors, name,
               step.coordinator_us, step.rank_us, step.announce_bytes, step.log_bytes);
}

// Prints PASS or MISS; false for a miss.
bool Judge(const Step& steady) {
  const bool pass = steady.coordinator_us < kGoalMicroseconds && steady.announce_bytes < kGoalBytes;
  std::fprintf(stderr,
               "%s: steady step of %d tensors at %d ranks: %.0f us on rank 0 (goal < %.0f), %zu "
               "bytes from each rank (goal < %zu)\n",
               pass ? "PASS" : "MISS", kGoalTensors, kGoalRanks, steady.coordinator_us,
               kGoalMicroseconds, steady.announce_bytes, kGoalBytes);
  return pass;
}

// First step: the median over jobs. Steady step: the median over the steps of one job.
bool RunTable() {
  std::fprintf(stderr, "%6s %8s  %-6s %14s %12s %14s %10s\n", "ranks", "tensors", "step",
               "rank 0 (us)", "a rank (us)", "announce bytes", "log bytes");
  bool pass = true;
  for (int ranks = 1; ranks <= 512; ranks *= 2) {
    for (int tensors = 1; tensors <= 1000; tensors *= 10) {
      const bool large = ranks * tensors > 20000;
      std::vector<Step> first(large ? 3 : 7);
      for (Step& step : first) step = Job(ranks, tensors).Run();
      Print("first", ranks, tensors, MedianOf(first));
      Job job(ranks, tensors);
      for (int i = 0; i < 3; ++i) job.Run();
      std::vector<Step> steady(large ? 31 : 101);
      for (Step& step : steady) step = job.Run();
      const Step median = MedianOf(steady);
      Print("steady", ranks, tensors, median);
      if (ranks == kGoalRanks && tensors == kGoalTensors) pass = Judge(median);
    }
  }
  return pass;
}

struct Arguments {
  int ranks = 0;
  int tensors = 0;
  int steps = 1;
};

bool Parse(int argc, char** argv, Arguments* arguments) {
  if (argc % 2 == 0) return false;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    char* end = nullptr;
    const long value = std::strtol(argv[i + 1], &end, 10);
    if (*end != '\0' || value < 1 || value > 1000000) return false;
    int* const target = name == "--ranks"     ? &arguments->ranks
                        : name == "--tensors" ? &arguments->tensors
                        : name == "--steps"   ? &arguments->steps
                                              : nullptr;
    if (target == nullptr) return false;
    *target = static_cast<int>(value);
  }
  return (arguments->ranks > 0) == (arguments->tensors > 0);
}

int Main(int argc, char** argv) {
  Arguments arguments;
  if (!Parse(argc, argv, &arguments)) {
    std::fprintf(stderr, "usage: %s [--ranks R --tensors T --steps S]\n", argv[0]);
    return 2;
  }
  if (arguments.ranks == 0) return RunTable() ? 0 : 1;
  Job job(arguments.ranks, arguments.tensors);
  Print("first", arguments.ranks, arguments.tensors, job.Run());
  std::vector<Step> steady(static_cast<std::size_t>(arguments.steps));
  for (Step& step : steady) step = job.Run();
  Print("steady", arguments.ranks, arguments.tensors, MedianOf(steady));
  return 0;
}

}  // namespace
}  // namespace horovod_tf

int main(int argc, char** argv) { return horovod_tf::Main(argc, argv); }
