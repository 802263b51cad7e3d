// FaultTransport: a transport with one planned fault, around any other transport.
#ifndef TEST_CPP_SUPPORT_FAULT_TRANSPORT_H_
#define TEST_CPP_SUPPORT_FAULT_TRANSPORT_H_

#include <atomic>
#include <memory>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/transport/transport.h"

namespace horovod_tf {

enum class FaultCall { kSend, kBroadcast, kReceive, kAny };
enum class FaultAction {
  kFail,      // the call returns Unavailable; the message is lost
  kDrop,      // the call says OK; the message is lost
  kTruncate,  // the message loses its second half, at least one byte
  kCorrupt,   // one bit in the middle of the message is flipped
  kDelay,     // the call takes `delay` of real time longer
};

// A call of Receive counts when it takes a message, so that the count does not depend on how often
// somebody looks; a Broadcast counts as one call, whatever the number of ranks.
struct FaultPlan {
  FaultCall call = FaultCall::kAny;
  int k = 0;  // the k-th of these calls, from 1; 0 is never
  FaultAction action = FaultAction::kFail;
  Duration delay{};
};

// How often each was called. Outlives the transport, which the one under test destroys.
// Thread rule: any thread.
struct FaultCounters {
  std::atomic<int> sends{0};
  std::atomic<int> broadcasts{0};
  std::atomic<int> receives{0};
  std::atomic<int> faults{0};  // 1 once the planned fault has happened

  int any() const { return sends + broadcasts + receives; }
};

// `counters` may be null.
std::unique_ptr<Transport> MakeFaultTransport(std::unique_ptr<Transport> inner, FaultPlan plan,
                                              std::shared_ptr<FaultCounters> counters = nullptr);

}  // namespace horovod_tf

#endif  // TEST_CPP_SUPPORT_FAULT_TRANSPORT_H_
