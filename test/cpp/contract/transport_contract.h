// What every Transport promises, as a suite that runs on any of them. A test says what one rank
// does and sees; ranks share nothing but the transport, so the same bodies run as threads of one
// process and as processes of one job.
//
// To use it, link transport_contract.cc and instantiate TransportContract with
// INSTANTIATE_TEST_SUITE_P and one TransportFactory per number of ranks.
#ifndef TEST_CPP_CONTRACT_TRANSPORT_CONTRACT_H_
#define TEST_CPP_CONTRACT_TRANSPORT_CONTRACT_H_

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "horovod_tf/common/transport/transport.h"

namespace horovod_tf {

struct TransportFactory {
  std::string name;  // letters and digits, for the test's name
  int size = 1;
  // A fresh job's endpoints that live in this process: all of them for threads, one for processes.
  std::function<std::vector<std::unique_ptr<Transport>>()> make;
};

// For gtest, in failures.
inline void PrintTo(const TransportFactory& factory, std::ostream* out) { *out << factory.name; }

// No wait in a test is longer: what takes longer hangs.
inline constexpr Duration kHangs = std::chrono::seconds(20);
// An abort has reached everybody by then.
inline constexpr Duration kAbortBound = std::chrono::seconds(5);

inline TimePoint FromNow(Duration delay) { return Clock::Real().Now() + delay; }

// The next message; DeadlineExceeded if none comes, and Receive's error if it fails.
inline Status ReceiveNext(Transport& transport, Incoming* message, Duration limit = kHangs) {
  const TimePoint deadline = FromNow(limit);
  for (;;) {
    bool got = false;
    HVD_RETURN_IF_ERROR(transport.Receive(message, &got));
    if (got) return Status::Ok();
    if (Clock::Real().Now() >= deadline) return Status::DeadlineExceeded("no message came");
    transport.Wait(deadline, Expectation::kAnswer);
  }
}

// Waits until the endpoint has failed, as one that has nothing else to do would.
inline Status WaitForFailure(Transport& transport, Duration limit = kAbortBound) {
  const TimePoint deadline = FromNow(limit);
  while (transport.health().ok() && Clock::Real().Now() < deadline)
    transport.Wait(deadline, Expectation::kNothing);
  return transport.health();
}

// `size` bytes that tell sender, receiver and position.
inline std::string PatternBytes(int from, int to, std::size_t size) {
  std::string block;
  for (int i = 0; i < 251; ++i) block.push_back(static_cast<char>(i * 7 + from * 31 + to * 3));
  std::string bytes;
  bytes.reserve(size + block.size());
  while (bytes.size() < size) bytes += block;
  bytes.resize(size);
  return bytes;
}

class TransportContract : public testing::TestWithParam<TransportFactory> {
 protected:
  using Body = std::function<void(std::unique_ptr<Transport>&)>;

  int size() const { return GetParam().size; }

  // Runs `body` for every rank of a fresh job that lives here, each on its own thread.
  void OnEveryRank(const Body& body) {
    std::vector<std::unique_ptr<Transport>> endpoints = GetParam().make();
    std::vector<std::thread> threads;
    threads.reserve(endpoints.size());
    std::atomic<std::size_t> done{0};
    for (std::unique_ptr<Transport>& endpoint : endpoints) {
      threads.emplace_back([&] {
        body(endpoint);
        ++done;
        // As a background thread would: what it has sent may wait for it.
        while (endpoint != nullptr && done < endpoints.size()) {
          endpoint->Wait(FromNow(std::chrono::milliseconds(5)), Expectation::kNothing);
          std::this_thread::yield();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Receives from every other rank until it has `count` from each, and hands each message to
  // `check` with its number among those of its sender.
  void ReceiveFromAll(Transport& transport, int count,
                      const std::function<void(const Incoming&, int)>& check) {
    std::vector<int> received(static_cast<std::size_t>(size()), 0);
    for (int left = count * (size() - 1); left > 0; --left) {
      Incoming message;
      const Status status = ReceiveNext(transport, &message);
      ASSERT_TRUE(status.ok()) << status << " on rank " << transport.rank() << ", missing " << left;
      ASSERT_GE(message.from, 0);
      ASSERT_LT(message.from, size());
      ASSERT_NE(message.from, transport.rank());
      int& number = received[static_cast<std::size_t>(message.from)];
      ASSERT_LT(number, count) << "from rank " << message.from;
      check(message, number++);
    }
  }
};

}  // namespace horovod_tf

#endif  // TEST_CPP_CONTRACT_TRANSPORT_CONTRACT_H_
