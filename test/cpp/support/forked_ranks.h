// Ranks as forked processes, which share a segment by inheritance.
#ifndef HOROVOD_TF_TEST_CPP_SUPPORT_FORKED_RANKS_H_
#define HOROVOD_TF_TEST_CPP_SUPPORT_FORKED_RANKS_H_

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "horovod_tf/common/collectives/shm_backend.h"
#include "test/cpp/contract/contract_world.h"

namespace horovod_tf {

// Thread rule: one thread, and no other in the process.
class ForkedRanks {
 public:
  static constexpr unsigned kSeconds = 60;  // an alarm ends a rank that hangs

  ForkedRanks(int size, std::size_t slot_bytes) {
    const Status status = ShmSegment::Create(size, slot_bytes, &segment_);
    EXPECT_TRUE(status.ok()) << status;
    void* const page =
        mmap(nullptr, PidsBytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pids_ = static_cast<std::atomic<pid_t>*>(page);
  }
  ~ForkedRanks() {
    for (pid_t child : children_) {
      if (child > 0) kill(child, SIGKILL);
    }
    for (std::size_t rank = 0; rank < children_.size(); ++rank) (void)Wait(static_cast<int>(rank));
    munmap(pids_, PidsBytes());
  }
  ForkedRanks(const ForkedRanks&) = delete;
  ForkedRanks& operator=(const ForkedRanks&) = delete;

  int size() const { return segment_->ranks(); }
  const ShmSegment& segment() const { return *segment_; }

  // Every rank runs `body` in a process of its own and ends with what it returns; 255 if an
  // expectation failed.
  void StartMembers(const std::function<int(ShmMembership membership)>& body) {
    children_.resize(static_cast<std::size_t>(size()));
    std::fflush(nullptr);  // or every child would write what is buffered once more
    for (int rank = 0; rank < size(); ++rank) {
      const pid_t child = fork();
      if (child == 0) RunChild(rank, body);
      children_[static_cast<std::size_t>(rank)] = child;
      pids_[rank].store(child);
    }
  }
  // The same with a backend.
  void Start(const std::function<int(ContractRank& rank)>& body) {
    StartMembers([&body](ShmMembership membership) {
      const int rank = membership.rank;
      const std::unique_ptr<CollectiveBackend> backend = MakeShmBackend(std::move(membership));
      ContractContext context(Deadline());
      ContractRank it{rank, *backend, context};
      return body(it);
    });
  }
  static std::chrono::steady_clock::time_point Deadline() {
    return std::chrono::steady_clock::now() + std::chrono::seconds(kSeconds);
  }
  void Signal(int rank, int signal) { kill(children_[static_cast<std::size_t>(rank)], signal); }
  // The exit status; 1000 + the signal that ended it.
  int Wait(int rank) {
    pid_t& child = children_[static_cast<std::size_t>(rank)];
    int status = 0;
    if (child <= 0 || waitpid(child, &status, 0) != child) return -1;
    child = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

 private:
  // One for each rank, and how many have seen all the others.
  std::size_t PidsBytes() const { return (static_cast<std::size_t>(size()) + 1) * sizeof(*pids_); }

  [[noreturn]] void RunChild(int rank, const std::function<int(ShmMembership)>& body) {
    alarm(kSeconds);
    const int result =
        body(MakeMembership(rank, segment_, OpenSiblings(rank), PatienceFor(size(), 2)));
    _exit(testing::Test::HasFailure() ? 255 : result);
  }

  // The parent writes down whom it has forked; a rank waits until it has forked all, and does not
  // end before all have seen it.
  std::vector<UniqueFd> OpenSiblings(int rank) {
    std::vector<UniqueFd> processes(static_cast<std::size_t>(size()));
    for (int other = 0; other < size(); ++other) {
      while (pids_[other].load() == 0) usleep(100);
      if (other == rank) continue;
      processes[static_cast<std::size_t>(other)] = OpenProcess(pids_[other].load());
      EXPECT_TRUE(processes[static_cast<std::size_t>(other)].valid()) << "no pidfd_open here";
    }
    std::atomic<pid_t>& ready = pids_[size()];
    ready.fetch_add(1);
    while (ready.load() < size()) usleep(100);
    return processes;
  }

  std::shared_ptr<ShmSegment> segment_;
  std::vector<pid_t> children_;
  std::atomic<pid_t>* pids_ = nullptr;  // shared
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_TEST_CPP_SUPPORT_FORKED_RANKS_H_
