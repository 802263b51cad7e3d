#include "horovod_tf/common/shm/shm_join.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "horovod_tf/common/collectives/shm_backend.h"
#include "horovod_tf/common/shm/shm_socket.h"
#include "test/cpp/contract/backend_contract.h"
#include "test/cpp/support/thread_exchange.h"

namespace horovod_tf {
namespace {

constexpr std::size_t kChunkBytes = 8192;

struct Joined {
  Status status;
  Status reason;
  ShmMembership membership;
};

using Change = std::function<void(int rank, ShmOptions* options)>;

// Every rank on a thread of its own, each with a mapping of its own.
std::vector<Joined> Join(int size, const Change& change = {}, int exchange_fails_at = -1) {
  const auto hub = std::make_shared<ExchangeHub>(static_cast<std::size_t>(size));
  std::vector<Joined> joined(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadExchange exchange(hub, rank, exchange_fails_at);
      ShmOptions options;
      options.chunk_bytes = kChunkBytes;
      options.host = "host";
      if (change) change(rank, &options);
      Joined& it = joined[static_cast<std::size_t>(rank)];
      it.status = JoinShm(exchange, options, &it.membership, &it.reason);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return joined;
}

void ExpectNobodyJoined(const std::vector<Joined>& joined, const std::string& reason) {
  for (const Joined& it : joined) {
    EXPECT_TRUE(it.status.ok()) << it.status;
    EXPECT_NE(it.reason.ToString().find(reason), std::string::npos) << it.reason;
    EXPECT_EQ(it.reason.ToString(), joined[0].reason.ToString());
    EXPECT_EQ(it.membership.segment, nullptr);
    EXPECT_EQ(it.membership.processes, nullptr);
  }
}

int OpenDescriptors() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

int MappedSegments() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:horovod_tf") != std::string::npos) ++count;
  }
  return count;
}

TEST(ShmJoin, AllOnOneHost_ShareOneSegment) {
  for (int size : {1, 2, 3, 8}) {
    const std::vector<Joined> joined = Join(size);
    for (int rank = 0; rank < size; ++rank) {
      const Joined& it = joined[static_cast<std::size_t>(rank)];
      ASSERT_TRUE(it.status.ok() && it.reason.ok()) << it.status << it.reason;
      EXPECT_EQ(it.membership.rank, rank);
      EXPECT_EQ(it.membership.segment->ranks(), size);
      EXPECT_EQ(it.membership.segment->slot_bytes(), kChunkBytes);
      // All are this one process, which nobody has to watch.
      EXPECT_FALSE(it.membership.processes->watches(rank));
      // Each has a mapping of its own of the same memory.
      *it.membership.segment->slot(rank, 0) = static_cast<unsigned char>(rank + 1);
    }
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(*joined[0].membership.segment->slot(rank, 0), rank + 1);
    }
  }
}

TEST(ShmJoin, TheRanksOfAJob_Work) {
  const auto make = [](int size) {
    std::vector<std::unique_ptr<CollectiveBackend>> backends;
    for (Joined& it : Join(size)) backends.push_back(MakeShmBackend(std::move(it.membership)));
    return std::make_unique<ThreadedWorld>(std::move(backends));
  };
  make(4)->Run([](ContractRank& rank) {
    std::vector<float> data(100000, static_cast<float>(rank.rank + 1));
    Batch batch;
    batch.tensors.push_back({"x",
                             {DataType::kFloat32, {100000}, data.data()},
                             {DataType::kFloat32, {100000}, data.data()},
                             {}});
    rank.RunOk(batch);
    EXPECT_EQ(data, std::vector<float>(100000, 10.0F));
  });
}

TEST(ShmJoin, AfterwardsAndInBetween_NothingIsLeftOpenOrMapped) {
  const int descriptors = OpenDescriptors();
  {
    const std::vector<Joined> joined = Join(3);
    EXPECT_EQ(MappedSegments(), 3);
    // Neither sockets nor the memory's; the ranks are one process here, which needs no pidfd.
    EXPECT_EQ(OpenDescriptors(), descriptors);
  }
  EXPECT_EQ(MappedSegments(), 0);
  EXPECT_EQ(OpenDescriptors(), descriptors);
  for (int fails_at = 0; fails_at < 4; ++fails_at) (void)Join(3, {}, fails_at);
  (void)Join(3, [](int rank, ShmOptions* options) { options->disable = rank == 1; });
  EXPECT_EQ(MappedSegments(), 0);
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST(ShmJoin, OneRankDisablesIt_NobodyJoinsAndAllSayWho) {
  const std::vector<Joined> joined =
      Join(3, [](int rank, ShmOptions* options) { options->disable = rank == 2; });
  ExpectNobodyJoined(joined, "Unimplemented: rank 2: HOROVOD_TF_SHM_DISABLE is set");
}

TEST(ShmJoin, SeveralHosts_NobodyJoins) {
  const std::vector<Joined> joined =
      Join(3, [](int rank, ShmOptions* options) { options->host = rank < 2 ? "one" : "two"; });
  ExpectNobodyJoined(joined, "Unimplemented: rank 2 is on host two and rank 0 on host one");
}

TEST(ShmJoin, OnlyRankZerosChunkCounts) {
  const std::vector<Joined> joined = Join(
      2, [](int rank, ShmOptions* options) { options->chunk_bytes = rank == 0 ? 4096 : 65536; });
  for (const Joined& it : joined) EXPECT_EQ(it.membership.segment->slot_bytes(), 4096U);
}

TEST(ShmJoin, ExchangeFails_IsAnErrorAndNotAFallback) {
  for (int fails_at = 0; fails_at < 4; ++fails_at) {
    for (const Joined& it : Join(2, {}, fails_at)) {
      EXPECT_EQ(it.status.ToString(), "Unavailable: the wire is cut");
      EXPECT_EQ(it.membership.segment, nullptr);
    }
  }
}

// A limit of this process for as long as it lives.
class ResourceLimit {
 public:
  ResourceLimit(__rlimit_resource resource, rlim_t limit) : resource_(resource) {
    getrlimit(resource, &before_);
    const rlimit now{limit, before_.rlim_max};
    setrlimit(resource, &now);
  }
  ~ResourceLimit() { setrlimit(resource_, &before_); }
  ResourceLimit(const ResourceLimit&) = delete;
  ResourceLimit& operator=(const ResourceLimit&) = delete;

 private:
  const __rlimit_resource resource_;
  rlimit before_{};
};

TEST(ShmJoin, FilesMayNotBeSoLarge_NobodyJoinsAndNoSignalComes) {
  const ResourceLimit limit(RLIMIT_FSIZE, 8192);
  ExpectNobodyJoined(Join(2), "rank 0: files may have 8192 bytes at most (ulimit -f)");
}

TEST(ShmJoin, NoMoreFilesMayBeOpened_NobodyJoins) {
  const int descriptors = OpenDescriptors();
  {
    const ResourceLimit limit(RLIMIT_NOFILE, 3);
    ExpectNobodyJoined(Join(2), "rank 0: memfd_create: Too many open files");
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST(ShmJoin, SlotsOfManyRanks_StayWithinTheLimit) {
  EXPECT_EQ(ShmSlotBytes(2, 256 << 10, 32 << 20), std::size_t{256} << 10);
  EXPECT_EQ(ShmSlotBytes(2, 5000, 32 << 20), 4096U);
  EXPECT_EQ(ShmSlotBytes(2, 1, 32 << 20), 4096U);
  for (int ranks : {1, 2, 3, 64, 100, 1024}) {
    const std::size_t slot = ShmSlotBytes(ranks, 16 << 20, 32 << 20);
    EXPECT_EQ(slot % 4096, 0U);
    EXPECT_LE(ShmSegment::Bytes(ranks, slot), std::size_t{64} << 20);
  }
}

TEST(ShmSegment, ADescriptorOfSomethingElse_IsRefused) {
  std::shared_ptr<ShmSegment> segment;
  UniqueFd unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 1 << 20), 0);
  EXPECT_EQ(ShmSegment::Map(std::move(unsealed), 2, &segment).ToString(),
            "FailedPrecondition: what arrived is no segment");
  UniqueFd zero(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(zero.get(), 1 << 20), 0);
  ASSERT_EQ(fcntl(zero.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(ShmSegment::Map(std::move(zero), 2, &segment).ToString(),
            "FailedPrecondition: the segment that arrived is not of this job");
  EXPECT_EQ(ShmSegment::Map(UniqueFd(-1), 2, &segment).code(), StatusCode::kUnavailable);
  std::shared_ptr<ShmSegment> of_three;
  ASSERT_TRUE(ShmSegment::Create(3, 4096, &of_three).ok());
  UniqueFd copy(dup(of_three->descriptor().get()));
  EXPECT_EQ(ShmSegment::Map(std::move(copy), 2, &segment).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(segment, nullptr);
}

TEST(ShmSegment, ItsSize_CannotBeChangedByAnybody) {
  std::shared_ptr<ShmSegment> segment;
  ASSERT_TRUE(ShmSegment::Create(2, 4096, &segment).ok());
  EXPECT_NE(ftruncate(segment->descriptor().get(), 4096), 0);
  EXPECT_NE(ftruncate(segment->descriptor().get(), 1 << 30), 0);
}

TEST(ShmSocket, NobodyListens_IsToldWithTheReason) {
  UniqueFd connection;
  EXPECT_EQ(ConnectToRank("horovod_tf-nobody", &connection).ToString(),
            "Unavailable: connecting to rank 0's socket: Connection refused");
}

TEST(ShmSocket, NothingWasSent_DoesNotWait) {
  UniqueFd listener;
  UniqueFd connection;
  UniqueFd descriptor;
  std::string name;
  ASSERT_TRUE(ListenForRanks(2, &listener, &name).ok());
  EXPECT_FALSE(SendDescriptorToAll(listener, 1, listener).ok());  // nobody has connected
  ASSERT_TRUE(ConnectToRank(name, &connection).ok());
  EXPECT_EQ(ReceiveDescriptor(connection, &descriptor).code(), StatusCode::kUnavailable);
  EXPECT_FALSE(descriptor.valid());
}

}  // namespace
}  // namespace horovod_tf
