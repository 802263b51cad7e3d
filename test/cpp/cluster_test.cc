// Whole jobs: N ranks as N runtimes in one process, on several topologies.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "test/cpp/support/cpu_share.h"
#include "test/cpp/support/local_cluster.h"

namespace horovod_tf {
namespace {

struct Layout {
  const char* name;
  std::vector<std::string> hosts;
};

class ClusterOn : public ::testing::TestWithParam<Layout> {
 protected:
  ClusterOptions Options() const { return ClusterOptions{GetParam().hosts, TestConfig(), {}, {}}; }
};

INSTANTIATE_TEST_SUITE_P(
    Layouts, ClusterOn,
    ::testing::Values(Layout{"OneRank", OneHost(1)}, Layout{"TwoRanks", OneHost(2)},
                      Layout{"ThreeRanks", OneHost(3)}, Layout{"FiveRanks", OneHost(5)},
                      Layout{"EightRanks", OneHost(8)}, Layout{"TwoByTwo", {"a", "a", "b", "b"}},
                      Layout{"TwoPlusOne", {"a", "a", "b"}},
                      Layout{"ReversedHosts", {"b", "b", "a", "a"}}),
    [](const auto& layout) { return std::string(layout.param.name); });

// A job's tensors: every kind and type, roots and sizes that vary.
std::vector<TestSpec> MixedSpecs(int count, int ranks, const std::string& prefix) {
  const DataType dtypes[] = {DataType::kFloat32, DataType::kInt64, DataType::kInt32};
  std::vector<TestSpec> specs;
  for (int i = 0; i < count; ++i) {
    TestSpec spec;
    spec.name = prefix + "/" + std::to_string(i);
    spec.kind = CollectiveKinds()[static_cast<std::size_t>(i % 7 < 4 ? 0 : i % 5)].kind;
    spec.dtype = dtypes[i % 5 % 3];
    spec.elements = i % 11 * 13;  // also 0
    spec.root = i % ranks;
    spec.columns = 1 + i % 3;
    specs.push_back(spec);
  }
  return specs;
}

// All of `specs` on one rank, in an order of its own, from `threads` threads.
std::vector<TestTensorPtr> SubmitShuffled(Runtime& runtime, std::vector<TestSpec> specs, int rank,
                                          int size, int threads) {
  std::shuffle(specs.begin(), specs.end(), std::mt19937(static_cast<unsigned>(1000 + rank)));
  std::vector<TestTensorPtr> tensors(specs.size());
  OnEveryRank(threads, [&](int thread) {
    for (auto i = static_cast<std::size_t>(thread); i < specs.size();
         i += static_cast<std::size_t>(threads)) {
      tensors[i] = Submit(runtime, specs[i], rank, size);
    }
  });
  return tensors;
}

TEST_P(ClusterOn, SubmissionsInDifferentOrders_AllResultsAreRight) {
  LocalCluster cluster(Options());
  ASSERT_TRUE(cluster.Started());
  for (int step = 0; step < 3; ++step) {  // the same names again: by id from the second step on
    const std::vector<TestSpec> specs = MixedSpecs(42, cluster.size(), "mixed");
    OnEveryRank(cluster.size(), [&](int rank) {
      for (const auto& tensor :
           SubmitShuffled(cluster.rank(rank), specs, rank, cluster.size(), 3)) {
        ASSERT_TRUE(tensor->Wait());
        ASSERT_TRUE(tensor->Correct());
      }
    });
  }
  for (const Status& status : cluster.Stop()) EXPECT_TRUE(status.ok()) << status;
}

TEST_P(ClusterOn, EveryRank_KnowsWhereItIs) {
  LocalCluster cluster(Options());
  ASSERT_TRUE(cluster.Started());
  for (int rank = 0; rank < cluster.size(); ++rank) {
    const Topology expected = MakeTopology(GetParam().hosts, rank);
    const Topology& actual = cluster.rank(rank).topology();
    EXPECT_EQ(actual.rank, rank);
    EXPECT_EQ(actual.size, cluster.size());
    EXPECT_EQ(actual.local_rank, expected.local_rank);
    EXPECT_EQ(actual.local_size, expected.local_size);
    EXPECT_EQ(actual.cross_rank, expected.cross_rank);
    EXPECT_EQ(actual.cross_size, expected.cross_size);
    EXPECT_EQ(actual.homogeneous, expected.homogeneous);
    EXPECT_EQ(actual.host_of_rank, expected.host_of_rank);
  }
}

TEST_P(ClusterOn, SettingsOfRankZeroThatTurnThingsOff_GiveTheSameResults) {
  ClusterOptions options = Options();
  options.config.cache_capacity = 0;
  options.config.fusion_threshold_bytes = 0;
  LocalCluster cluster(options);
  ASSERT_TRUE(cluster.Started());
  for (int step = 0; step < 2; ++step) {
    for (const TestSpec& spec : MixedSpecs(21, cluster.size(), "plain")) {
      ASSERT_TRUE(cluster.Works(spec));
    }
  }
}

TEST(Cluster, CacheSmallerThanTheJob_GivesTheSameResults) {
  ClusterOptions options{OneHost(3), TestConfig(), {}, {}};
  options.config.cache_capacity = 5;
  LocalCluster cluster(options);
  ASSERT_TRUE(cluster.Started());
  for (int step = 0; step < 4; ++step) {
    const std::vector<TestSpec> specs = MixedSpecs(23, cluster.size(), "crowded");
    OnEveryRank(cluster.size(), [&](int rank) {
      for (const auto& tensor :
           SubmitShuffled(cluster.rank(rank), specs, rank, cluster.size(), 1)) {
        ASSERT_TRUE(tensor->Wait());
        ASSERT_TRUE(tensor->Correct());
      }
    });
  }
}

TEST(Cluster, CycleTime_WaitsForMoreAndGivesTheSameResults) {
  ClusterOptions options{OneHost(2), TestConfig(), {}, {}};
  options.config.cycle_time = FromSeconds(0.002);
  LocalCluster cluster(options);
  ASSERT_TRUE(cluster.Started());
  for (const TestSpec& spec : MixedSpecs(15, 2, "patient")) ASSERT_TRUE(cluster.Works(spec));
}

// ---- mismatches --------------------------------------------------------------------------------

struct Mismatch {
  const char* name;
  TestSpec usual;
  TestSpec odd;  // what rank 1 of 3 submits
  const char* text;
};

TestSpec Spec(CollectiveKind kind, const std::function<void(TestSpec*)>& change = nullptr) {
  TestSpec spec{"odd/tensor"};
  spec.kind = kind;
  if (change) change(&spec);
  return spec;
}

std::vector<Mismatch> Mismatches() {
  const auto reduce = CollectiveKind::kAllreduce;
  const auto gather = CollectiveKind::kAllgather;
  const auto broadcast = CollectiveKind::kBroadcast;
  const auto exchange = CollectiveKind::kAlltoall;
  const auto scatter = CollectiveKind::kReducescatter;
  const auto int32 = [](TestSpec* s) { s->dtype = DataType::kInt32; };
  const auto longer = [](TestSpec* s) { s->elements = 6; };
  const auto scalar = [](TestSpec* s) { s->scalar = true; };
  return {
      {"dtype", Spec(reduce), Spec(reduce, int32), "Mismatched data types"},
      {"kind", Spec(reduce), Spec(broadcast), "Mismatched"},
      {"allreduce shape", Spec(reduce), Spec(reduce, longer), "Mismatched ALLREDUCE tensor shapes"},
      {"broadcast shape", Spec(broadcast), Spec(broadcast, longer),
       "Mismatched BROADCAST tensor shapes"},
      {"gather scalar", Spec(gather), Spec(gather, scalar), "rank-zero"},
      {"gather columns", Spec(gather), Spec(gather, [](TestSpec* s) { s->columns = 3; }),
       "Mismatched ALLGATHER tensor shapes"},
      {"alltoall scalar", Spec(exchange), Spec(exchange, scalar), "rank-zero"},
      {"alltoall columns", Spec(exchange), Spec(exchange, [](TestSpec* s) { s->columns = 3; }),
       "Mismatched ALLTOALL tensor shapes"},
      {"reducescatter shape", Spec(scatter), Spec(scatter, longer),
       "Mismatched REDUCESCATTER tensor shapes"},
      {"root", Spec(broadcast), Spec(broadcast, [](TestSpec* s) { s->root = 2; }), "root ranks"},
  };
}

TEST(Cluster, Mismatch_ReachesAllRanksAndTheNextCollectiveWorks) {
  LocalCluster cluster(3);
  ASSERT_TRUE(cluster.Started());
  // Twice: at first in full, then against the definition that the collective in between made.
  for (int round = 0; round < 2; ++round) {
    for (const Mismatch& mismatch : Mismatches()) {
      SCOPED_TRACE(mismatch.name);
      std::vector<TestTensorPtr> tensors;
      for (int rank = 0; rank < 3; ++rank) {
        const TestSpec& spec = rank == 1 ? mismatch.odd : mismatch.usual;
        tensors.push_back(Submit(cluster.rank(rank), spec, rank, 3));
      }
      for (const TestTensorPtr& tensor : tensors) {
        ASSERT_TRUE(tensor->Wait());
        EXPECT_TRUE(tensor->FailedWith(mismatch.text));
        EXPECT_TRUE(tensor->FailedWith("odd/tensor"));
        EXPECT_EQ(tensor->status().code(), StatusCode::kFailedPrecondition);
        EXPECT_EQ(tensor->status().message(), tensors[0]->status().message());
      }
      EXPECT_TRUE(cluster.Works(mismatch.usual));
    }
  }
  for (const Status& status : cluster.Stop()) EXPECT_TRUE(status.ok()) << status;
}

TEST(Cluster, MismatchBesideOthers_OnlyThatTensorFails) {
  LocalCluster cluster(2);
  ASSERT_TRUE(cluster.Started());
  for (int round = 0; round < 5; ++round) {
    const std::vector<TestSpec> specs = MixedSpecs(10, 2, "beside");
    std::vector<TestTensorPtr> bad;
    std::vector<TestTensorPtr> good;
    for (int rank = 0; rank < 2; ++rank) {
      for (const TestSpec& spec : specs) good.push_back(Submit(cluster.rank(rank), spec, rank, 2));
      TestSpec odd{"odd"};
      odd.elements = 3 + rank;
      bad.push_back(Submit(cluster.rank(rank), odd, rank, 2));
    }
    for (const TestTensorPtr& tensor : bad) {
      ASSERT_TRUE(tensor->Wait());
      EXPECT_TRUE(tensor->FailedWith("[3]"));
      EXPECT_TRUE(tensor->FailedWith("[4]"));
    }
    for (const TestTensorPtr& tensor : good) {
      ASSERT_TRUE(tensor->Wait());
      EXPECT_TRUE(tensor->Correct());
    }
  }
}

TEST(Cluster, ShapeThatChangesOnAllRanks_Works) {
  LocalCluster cluster(3);
  ASSERT_TRUE(cluster.Started());
  for (const std::int64_t elements : {4, 4, 9, 9, 0, 4}) {
    TestSpec spec{"ragged"};
    spec.elements = elements;
    EXPECT_TRUE(cluster.Works(spec));
  }
}

// ---- shutdown ----------------------------------------------------------------------------------

TEST(Cluster, ShutdownFromAnyRank_EveryRankIsToldWhoAndWhy) {
  for (int asker = 0; asker < 3; ++asker) {
    LocalCluster cluster(3);
    ASSERT_TRUE(cluster.Started());
    ASSERT_TRUE(cluster.Works(TestSpec{"warm"}));
    // Each rank waits for something that no other rank has.
    std::vector<TestTensorPtr> waiting;
    for (int rank = 0; rank < 3; ++rank) {
      waiting.push_back(
          Submit(cluster.rank(rank), TestSpec{"only/" + std::to_string(rank)}, rank, 3));
    }
    EXPECT_TRUE(cluster.rank(asker).Stop("early stopping").ok());
    for (const TestTensorPtr& tensor : waiting) {
      ASSERT_TRUE(tensor->Wait());
      EXPECT_TRUE(tensor->FailedWith("Horovod has been shut down"));
      EXPECT_TRUE(tensor->FailedWith("rank " + std::to_string(asker)));
      EXPECT_TRUE(tensor->FailedWith("early stopping"));
      EXPECT_EQ(tensor->status().code(), StatusCode::kUnknown);
    }
    // The others have stopped without asking, and refuse with the same text.
    for (int rank = 0; rank < 3; ++rank) {
      const TestTensorPtr late = Submit(cluster.rank(rank), TestSpec{"late"}, rank, 3);
      EXPECT_TRUE(late->FailedWith("early stopping"));
      EXPECT_TRUE(cluster.rank(rank).Stop("me too").ok());
      EXPECT_EQ(cluster.rank(rank).state(), RuntimeState::kStopped);
      EXPECT_EQ(waiting[static_cast<std::size_t>(rank)]->calls(), 1);
    }
  }
}

TEST(Cluster, ShutdownFromAllRanksAtOnce_IsOrderly) {
  for (int round = 0; round < 30; ++round) {
    LocalCluster cluster(3);
    ASSERT_TRUE(cluster.Started());
    const std::vector<TestTensorPtr> tensors = cluster.SubmitOnAll(TestSpec{"last"});
    for (const Status& status : cluster.Stop("epochs are over")) EXPECT_TRUE(status.ok());
    for (const TestTensorPtr& tensor : tensors) {
      EXPECT_EQ(tensor->calls(), 1);
      EXPECT_TRUE(tensor->status().ok() || tensor->FailedWith("epochs are over"));
    }
  }
}

TEST(Cluster, RankThatIsDestroyed_StopsTheOthersWithoutFailure) {
  for (int round = 0; round < 20; ++round) {
    ClusterOptions options{OneHost(3), TestConfig(), {}, {}};
    LocalCluster cluster(options);
    ASSERT_TRUE(cluster.Started());
    const TestTensorPtr waiting = Submit(cluster.rank(0), TestSpec{"waiting"}, 0, 3);
    cluster.Destroy(1 + round % 2);
    ASSERT_TRUE(waiting->Wait());
    EXPECT_TRUE(waiting->FailedWith("Horovod has been shut down"));
  }
}

// ---- start -------------------------------------------------------------------------------------

TEST(Cluster, RankThatIsLate_IsNamedToThoseThatWaited) {
  ClusterOptions options{{"a", "b", "c"}, TestConfig(), {}, {}};
  options.config.init_timeout = FromSeconds(0.1);
  options.customize = [](int rank, RuntimeOptions* o) {
    if (rank != 0) o->config.init_timeout = FromSeconds(kTestSeconds);
  };
  LocalCluster cluster(options);
  Status zero;
  Status two;
  std::thread first([&] { zero = cluster.rank(0).Start(); });
  std::thread third([&] { two = cluster.rank(2).Start(); });
  first.join();
  third.join();
  EXPECT_EQ(zero.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(zero.message().find("missing: rank 1"), std::string::npos) << zero;
  EXPECT_NE(two.message().find("rank 0 failed"), std::string::npos) << two;
  EXPECT_NE(two.message().find("missing: rank 1"), std::string::npos) << two;
  const Status late = cluster.rank(1).Start();
  EXPECT_NE(late.message().find("rank 0 failed"), std::string::npos) << late;
  LocalCluster second(3);
  EXPECT_TRUE(second.Started());
}

TEST(Cluster, RankThatIsABitLate_IsWaitedFor) {
  LocalCluster cluster(3);
  OnEveryRank(3, [&](int rank) {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_TRUE(cluster.rank(rank).Start().ok());
  });
  EXPECT_TRUE(cluster.Works(TestSpec{"together"}));
}

TEST(Cluster, DifferentAgreements_FailEveryStartWithBothValues) {
  ClusterOptions options{{"a", "b", "c"}, TestConfig(), {}, {}};
  options.customize = [](int rank, RuntimeOptions* o) {
    o->agreements = {{"MPI library", rank == 1 ? "Open MPI 4.1" : "MPICH 4.0"}};
  };
  LocalCluster cluster(options);
  for (const Status& status : cluster.Start()) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    for (const char* part : {"MPI library", "Open MPI 4.1", "MPICH 4.0", "rank 0", "rank 1"}) {
      EXPECT_NE(status.message().find(part), std::string::npos) << part << " in " << status;
    }
  }
  LocalCluster second(3);
  EXPECT_TRUE(second.Started());
}

TEST(Cluster, DifferentConfiguration_FailsOnlyWhereItMustBeShared) {
  ClusterOptions shared{OneHost(2), TestConfig(), {}, {}};
  shared.customize = [](int rank, RuntimeOptions* o) {
    o->config.hierarchical_allreduce = rank == 1;
  };
  LocalCluster refused(shared);
  for (const Status& status : refused.Start()) {
    EXPECT_NE(status.message().find("HOROVOD_HIERARCHICAL_ALLREDUCE"), std::string::npos);
  }
  ClusterOptions own{OneHost(2), TestConfig(), {}, {}};
  own.customize = [](int rank, RuntimeOptions* o) {
    o->config.fusion_threshold_bytes = rank * 1000;
    o->config.cache_capacity = rank * 10;
    o->config.stall_check_disable = rank == 1;
  };
  LocalCluster accepted(own);
  EXPECT_TRUE(accepted.Started());
}

// ---- stall -------------------------------------------------------------------------------------

TEST(Cluster, StalledTensor_IsLoggedByRankZeroAndMayStillFinish) {
  Mutex mutex;
  std::string lines;
  ClusterOptions options{OneHost(3), TestConfig(), {}, {}};
  options.config.stall_warning_time = FromSeconds(0.02);
  options.customize = [&](int rank, RuntimeOptions* o) {
    o->logger =
        std::make_shared<Logger>(LogLevel::kWarning, true, [&, rank](std::string_view line) {
          EXPECT_EQ(rank, 0);
          MutexLock lock(mutex);
          lines += line;
        });
  };
  LocalCluster cluster(options);
  ASSERT_TRUE(cluster.Started());
  std::vector<TestTensorPtr> tensors = {Submit(cluster.rank(2), TestSpec{"slow/one"}, 2, 3)};
  const TimePoint deadline = TestDeadline();
  const auto warned = [&] {
    MutexLock lock(mutex);
    return lines.find("slow/one") != std::string::npos;
  };
  while (!warned() && Clock::Real().Now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(warned());
  for (const int rank : {0, 1}) {
    tensors.push_back(Submit(cluster.rank(rank), TestSpec{"slow/one"}, rank, 3));
  }
  for (const TestTensorPtr& tensor : tensors) {
    ASSERT_TRUE(tensor->Wait());
    EXPECT_TRUE(tensor->Correct());
  }
}

TEST(Cluster, StalledTooLong_StopsAllRanksNamingTheTensor) {
  ClusterOptions options{OneHost(2), TestConfig(), {}, {}};
  options.config.stall_warning_time = FromSeconds(0.01);
  options.config.stall_shutdown_time = FromSeconds(0.03);
  LocalCluster cluster(options);
  ASSERT_TRUE(cluster.Started());
  const TestTensorPtr tensor = Submit(cluster.rank(1), TestSpec{"forgotten"}, 1, 2);
  ASSERT_TRUE(tensor->Wait());
  EXPECT_TRUE(tensor->FailedWith("forgotten"));
  EXPECT_TRUE(tensor->FailedWith("Rank 0 is in user code for"));
  for (const Status& status : cluster.Stop()) EXPECT_TRUE(status.ok()) << status;
}

// ---- load --------------------------------------------------------------------------------------

TEST(Cluster, Idle_UsesNoCpu) {
  LocalCluster cluster(4);
  ASSERT_TRUE(cluster.Started());
  ASSERT_TRUE(cluster.Works(TestSpec{"warm"}));
  const TestTensorPtr pending = Submit(cluster.rank(1), TestSpec{"pending"}, 1, 4);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const CpuShare share(CLOCK_PROCESS_CPUTIME_ID);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(share.Value(), 0.25);
  EXPECT_EQ(pending->calls(), 0);
}

constexpr int kStressRanks = 4;
constexpr int kStressThreads = 8;
constexpr int kStressTensors = 500;

TEST(ClusterStress, EveryThreadOfEveryRank_AllResultsAreRight) {
  LocalCluster cluster(kStressRanks);
  ASSERT_TRUE(cluster.Started());
  const std::vector<TestSpec> specs =
      MixedSpecs(kStressThreads * kStressTensors, kStressRanks, "stress");
  OnEveryRank(kStressRanks, [&](int rank) {
    for (const TestTensorPtr& tensor :
         SubmitShuffled(cluster.rank(rank), specs, rank, kStressRanks, kStressThreads)) {
      ASSERT_TRUE(tensor->Wait());
      ASSERT_TRUE(tensor->Correct());
    }
  });
  for (const Status& status : cluster.Stop()) EXPECT_TRUE(status.ok()) << status;
}

TEST(ClusterStress, ShutdownInTheMiddle_EveryTensorEndsOnce) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    std::mt19937 random(seed);
    LocalCluster cluster(kStressRanks);
    ASSERT_TRUE(cluster.Started());
    const std::vector<TestSpec> specs = MixedSpecs(600, kStressRanks, "cut");
    const int asker = static_cast<int>(random() % kStressRanks);
    const auto delay = std::chrono::microseconds(random() % 5000);
    std::thread stopper([&] {
      std::this_thread::sleep_for(delay);
      EXPECT_TRUE(cluster.rank(asker).Stop("the clock struck").ok());
    });
    OnEveryRank(kStressRanks, [&](int rank) {
      for (const TestTensorPtr& tensor :
           SubmitShuffled(cluster.rank(rank), specs, rank, kStressRanks, kStressThreads)) {
        ASSERT_TRUE(tensor->Wait());
        ASSERT_TRUE(tensor->status().ok() ? tensor->Correct()
                                          : tensor->FailedWith("the clock struck"));
      }
    });
    stopper.join();
    for (const Status& status : cluster.Stop()) EXPECT_TRUE(status.ok()) << status;
  }
}

}  // namespace
}  // namespace horovod_tf
