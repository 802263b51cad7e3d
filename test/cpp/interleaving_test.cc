// Thousands of random interleavings of submissions, announcements, decisions and deliveries,
// checked against a model that knows nothing of ids, logs or time: a round of a tensor is right
// when the requests of all ranks go together, and every rank learns that once.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "horovod_tf/common/protocol/request_checks.h"
#include "test/cpp/support/step_cluster.h"

namespace horovod_tf {
namespace {

constexpr int kTensors = 4;
constexpr int kRounds = 5;
constexpr std::int64_t kThreshold = 64;

struct Case {
  int ranks = 3;
  std::int64_t capacity = 0;
  std::uint32_t seed = 0;
  Duration cycle_time{0};
  bool shutdown = false;  // somebody asks at a random moment
};

class Dice {
 public:
  explicit Dice(std::uint32_t seed) : engine_(seed) {}
  // 0 to n - 1; the same on every platform, unlike std's distributions.
  int Roll(int n) { return static_cast<int>(engine_() % static_cast<std::uint32_t>(n)); }
  bool OneIn(int n) { return Roll(n) == 0; }

 private:
  std::mt19937 engine_;
};

std::string NameOf(int tensor) { return std::string(1, static_cast<char>('a' + tensor)); }

// What every rank asks for, for every tensor and round.
class Plan {
 public:
  Plan(int ranks, Dice* dice) : ranks_(ranks) {
    for (int tensor = 0; tensor < kTensors; ++tensor) {
      Request base = Base(tensor, dice);
      for (int round = 0; round < kRounds; ++round) {
        if (dice->OneIn(4)) base.shape.set_dim(0, 1 + dice->Roll(20));  // changes from here on
        if (dice->OneIn(12)) base = Base(tensor, dice);
        std::vector<Request> requests(static_cast<std::size_t>(ranks), base);
        for (int rank = 0; rank < ranks; ++rank) {
          Request& request = requests[static_cast<std::size_t>(rank)];
          if (request.kind == CollectiveKind::kAllgather)
            request.shape.set_dim(0, rank + round / 2);
          if (request.kind == CollectiveKind::kAlltoall)
            request = AlltoallRequest(request, rank, ranks, round / 2);
          if (request.device != kCpuDevice) request.device = rank % 2;
        }
        if (dice->OneIn(5)) Spoil(&requests[static_cast<std::size_t>(dice->Roll(ranks))], dice);
        requests_[{tensor, round}] = std::move(requests);
      }
    }
  }

  const Request& At(int tensor, int round, int rank) const {
    return requests_.at({tensor, round})[static_cast<std::size_t>(rank)];
  }
  // What the round must come to.
  Status Outcome(int tensor, int round, TensorDefinition* definition) const {
    const std::vector<Request>& requests = requests_.at({tensor, round});
    Status status = CheckRequests(requests);
    if (status.ok()) *definition = Define(requests);
    return status;
  }

 private:
  // That of `rank`, which has r + more rows for rank r; sometimes one more if its number is odd.
  static Request AlltoallRequest(Request request, int rank, int ranks, int more) {
    request.splits.clear();
    std::int64_t rows = 0;
    for (int to = 0; to < ranks; ++to) {
      request.splits.push_back(to + more + rank % 2 * (more % 2));
      rows += request.splits.back();
    }
    request.shape.set_dim(0, rows);
    return request;
  }

  Request Base(int tensor, Dice* dice) const {
    const TensorShape shape{1 + dice->Roll(8)};
    Request request;
    switch (dice->Roll(8)) {
      case 0:
        request = AllgatherRequest(NameOf(tensor), {1, 3});
        break;
      case 1:
        request = BroadcastRequest(NameOf(tensor), shape, dice->Roll(ranks_));
        break;
      case 2:
        request = AllgatherRequest(NameOf(tensor), {1, 3});
        request.kind = CollectiveKind::kAlltoall;
        break;
      case 3:
        request = AllreduceRequest(NameOf(tensor), shape);
        request.kind = CollectiveKind::kReducescatter;
        break;
      default:
        request = AllreduceRequest(NameOf(tensor), shape);
        break;
    }
    if (dice->OneIn(4)) request.dtype = DataType::kFloat64;
    if (dice->OneIn(4)) request.device = 0;
    if (Info(request.kind).reduces && dice->OneIn(4)) {
      request.prescale = 0.5;
      request.reduce_op = ReduceOp::kMax;
    }
    return request;
  }
  static void Spoil(Request* request, Dice* dice) {
    switch (dice->Roll(5)) {
      case 0:
        request->dtype = DataType::kInt32;
        break;
      case 1:
        *request = BroadcastRequest(request->name, request->shape, 0);
        break;
      case 2:
        request->shape = {1, 2, 3};
        break;
      case 3:
        request->device = request->device == kCpuDevice ? 0 : kCpuDevice;
        break;
      default:
        request->shape = TensorShape{99};
        break;
    }
    if (request->splits.empty()) return;
    std::fill(request->splits.begin(), request->splits.end(), 0);
    request->splits[0] = request->shape.dim(0);
  }

  const int ranks_;
  std::map<std::pair<int, int>, std::vector<Request>> requests_;
};

bool SameDefinition(const TensorDefinition& a, const TensorDefinition& b) {
  return a.common == b.common && a.first_dims == b.first_dims && a.devices == b.devices;
}

class Interleaving {
 public:
  explicit Interleaving(const Case& a_case)
      : case_(a_case),
        dice_(a_case.seed),
        plan_(a_case.ranks, &dice_),
        cluster_(a_case.ranks, Options(a_case)),
        submitted_(static_cast<std::size_t>(a_case.ranks), std::vector<int>(kTensors, 0)) {}

  void Run() {
    for (int steps = 0; !Finished(); ++steps) {
      ASSERT_LT(steps, 200000) << "does not come to an end";
      ASSERT_TRUE(cluster_.failure().ok()) << cluster_.failure();
      Step();
    }
    cluster_.Settle();
    ASSERT_TRUE(cluster_.failure().ok()) << cluster_.failure();
    CheckSameEverywhere();
    CheckAnsweredOnce();
    CheckBatches();
    CheckEmpty();
    CheckAgainstModel();
  }
  // How the run exercised the protocol, so that a test can see that it did.
  std::size_t Count(std::size_t record_index) const {
    return static_cast<std::size_t>(
        std::count_if(cluster_.log().begin(), cluster_.log().end(),
                      [&](const LogRecord& record) { return record.index() == record_index; }));
  }

 private:
  static CoordinatorOptions Options(const Case& a_case) {
    CoordinatorOptions options = StepCluster::DefaultOptions();
    options.capacity = a_case.capacity;
    options.fusion_threshold = kThreshold;
    options.cycle_time = a_case.cycle_time;
    options.stall.enabled = false;
    return options;
  }

  void Step() {
    const int rank = dice_.Roll(case_.ranks);
    cluster_.now += std::chrono::milliseconds(dice_.Roll(3));
    switch (dice_.Roll(6)) {
      case 0:
      case 1:
        TrySubmit(rank, dice_.Roll(kTensors));
        break;
      case 2:
        cluster_.Announce(rank);
        break;
      case 3:
        cluster_.Collect(rank);
        break;
      case 4:
        cluster_.Advance();
        break;
      default:
        cluster_.Deliver(rank);
        break;
    }
    if (case_.shutdown && dice_.OneIn(60)) cluster_.RequestShutdown(rank, "a test");
  }
  void TrySubmit(int rank, int tensor) {
    int& round = submitted_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(tensor)];
    if (round == kRounds || cluster_.InFlight(rank, NameOf(tensor)) || Stopped(rank)) return;
    cluster_.Submit(rank, plan_.At(tensor, round, rank));
    ++round;
  }
  bool Stopped(int rank) const {
    const auto& events = cluster_.events(rank);
    return !events.empty() && events.back().type == Response::Type::kShutdown;
  }
  bool Finished() const {
    for (int rank = 0; rank < case_.ranks; ++rank) {
      if (Stopped(rank)) continue;
      const std::vector<int>& rounds = submitted_[static_cast<std::size_t>(rank)];
      if (std::any_of(rounds.begin(), rounds.end(), [](int round) { return round < kRounds; }) ||
          !cluster_.InFlight(rank).empty()) {
        return false;
      }
    }
    return true;
  }

  void CheckSameEverywhere() const {  // I1
    for (int rank = 1; rank < case_.ranks; ++rank) {
      ASSERT_EQ(cluster_.events(rank).size(), cluster_.events(0).size());
      for (std::size_t i = 0; i < cluster_.events(0).size(); ++i) {
        const StepCluster::Event& first = cluster_.events(0)[i];
        const StepCluster::Event& other = cluster_.events(rank)[i];
        ASSERT_EQ(other.type, first.type);
        ASSERT_EQ(other.status.ToString(), first.status.ToString());
        if (first.type == Response::Type::kShutdown) continue;  // ranks differ in what waits
        ASSERT_EQ(other.names, first.names);
        ASSERT_EQ(other.definitions.size(), first.definitions.size());
        for (std::size_t k = 0; k < first.definitions.size(); ++k) {
          ASSERT_TRUE(SameDefinition(other.definitions[k], first.definitions[k]));
        }
      }
    }
  }

  void CheckAnsweredOnce() const {  // I2
    for (int rank = 0; rank < case_.ranks; ++rank) {
      for (const int answers : cluster_.answers(rank)) ASSERT_EQ(answers, 1) << "rank " << rank;
    }
  }

  void CheckBatches() const {  // I3, I4
    for (const StepCluster::Event& event : cluster_.events(0)) {
      if (event.type != Response::Type::kExecute) continue;
      ASSERT_FALSE(event.definitions.empty());
      const TensorDefinition& first = event.definitions.front();
      std::int64_t bytes = 0;
      for (const TensorDefinition& definition : event.definitions) {
        ASSERT_EQ(definition.common.kind, first.common.kind);
        ASSERT_EQ(definition.common.dtype, first.common.dtype);
        ASSERT_EQ(definition.common.reduce_op, first.common.reduce_op);
        ASSERT_EQ(definition.devices, first.devices);
        bytes += definition.bytes();
      }
      if (event.definitions.size() == 1) continue;
      ASSERT_TRUE(Info(first.common.kind).fusable);
      ASSERT_LE(bytes, kThreshold);
    }
  }

  void CheckEmpty() {  // I5
    ASSERT_TRUE(cluster_.Quiet());
    ASSERT_TRUE(cluster_.coordinator().Pending().empty());
    ASSERT_EQ(cluster_.coordinator().NextDeadline(), kNever);
    for (int rank = 0; rank < case_.ranks; ++rank) ASSERT_TRUE(cluster_.InFlight(rank).empty());
  }

  // I6: the model does not know about the cache, so every capacity that agrees with it agrees with
  // capacity 0.
  void CheckAgainstModel() const {
    std::map<std::string, int> rounds;
    for (const StepCluster::Event& event : cluster_.events(0)) {
      if (event.type == Response::Type::kShutdown) continue;
      for (std::size_t i = 0; i < event.names.size(); ++i) {
        const int tensor = event.names[i][0] - 'a';
        TensorDefinition expected;
        const Status status = plan_.Outcome(tensor, rounds[event.names[i]]++, &expected);
        ASSERT_EQ(event.type == Response::Type::kExecute, status.ok()) << status;
        if (status.ok()) {
          ASSERT_TRUE(SameDefinition(event.definitions[i], expected)) << event.names[i];
        } else {
          ASSERT_EQ(event.status.ToString(), status.ToString());
        }
      }
    }
    if (case_.shutdown) return;
    for (int tensor = 0; tensor < kTensors; ++tensor) ASSERT_EQ(rounds[NameOf(tensor)], kRounds);
  }

  const Case case_;
  Dice dice_;
  const Plan plan_;
  StepCluster cluster_;
  std::vector<std::vector<int>> submitted_;  // rounds, by rank and tensor
};

constexpr std::size_t kDefine = 0, kExecuteOnce = 2, kForget = 3, kError = 4, kShutdown = 5;

// Runs `count` cases that differ in their seed; how often each kind of record was seen.
std::map<std::size_t, std::size_t> RunMany(Case a_case, int count) {
  std::map<std::size_t, std::size_t> seen;
  for (int i = 0; i < count; ++i) {
    a_case.seed = static_cast<std::uint32_t>(1000 * a_case.ranks + i);
    SCOPED_TRACE("ranks " + std::to_string(a_case.ranks) + " capacity " +
                 std::to_string(a_case.capacity) + " seed " + std::to_string(a_case.seed));
    Interleaving interleaving(a_case);
    interleaving.Run();
    if (testing::Test::HasFatalFailure()) return seen;
    for (std::size_t record = kDefine; record <= kShutdown; ++record) {
      seen[record] += interleaving.Count(record);
    }
  }
  return seen;
}

TEST(Interleaving, AmpleTable_ThreeRanks) {
  auto seen = RunMany({3, 64}, 600);
  EXPECT_GT(seen[kDefine], 3000u);
  EXPECT_GT(seen[kError], 1000u);
  EXPECT_EQ(seen[kForget], 0u);
  EXPECT_EQ(seen[kExecuteOnce], 0u);
}

TEST(Interleaving, TableOfOne_ThreeRanks) {
  auto seen = RunMany({3, 1}, 500);
  EXPECT_GT(seen[kForget], 500u);
  EXPECT_GT(seen[kDefine], 500u);
  EXPECT_GT(seen[kExecuteOnce], 500u);
}

TEST(Interleaving, TableOfTwo_ThreeRanks) {
  auto seen = RunMany({3, 2}, 500);
  EXPECT_GT(seen[kForget], 500u);
  EXPECT_GT(seen[kDefine], 500u);
}

TEST(Interleaving, TableOfThree_ThreeRanks) {
  auto seen = RunMany({3, 3}, 500);
  EXPECT_GT(seen[kForget], 300u);
  EXPECT_GT(seen[kDefine], 500u);
}

TEST(Interleaving, NoTable_ThreeRanks) {
  auto seen = RunMany({3, 0}, 300);
  EXPECT_EQ(seen[kDefine], 0u);
  EXPECT_GT(seen[kExecuteOnce], 3000u);
}

TEST(Interleaving, EveryJobSizeAndCapacity) {
  for (const int ranks : {1, 2, 5, 8}) {
    for (const std::int64_t capacity : {0, 1, 2, 3, 64}) RunMany({ranks, capacity}, 40);
  }
}

TEST(Interleaving, CycleTimeHoldsBackButLosesNothing) {
  for (const std::int64_t capacity : {0, 2, 64}) {
    RunMany({3, capacity, 0, std::chrono::milliseconds(20)}, 100);
  }
}

TEST(Interleaving, ShutdownAtAnyMomentAnswersEverything) {
  for (const std::int64_t capacity : {0, 2, 64}) {
    for (const int ranks : {1, 3, 5}) {
      auto seen = RunMany({ranks, capacity, 0, std::chrono::milliseconds(3), true}, 60);
      EXPECT_GT(seen[kShutdown], 20u);
    }
  }
}

}  // namespace
}  // namespace horovod_tf
