// CancellationWatch: what ends the wait of a step's operations when the step is cancelled.
#ifndef HOROVOD_TF_OPS_CANCELLATION_WATCH_H_
#define HOROVOD_TF_OPS_CANCELLATION_WATCH_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "tensorflow/core/framework/cancellation.h"

namespace horovod_tf {

// One for all operations that a step has in flight, since TensorFlow's own list of callbacks gets
// slow with its length. Order of calls for each operation: Join, (submit with ticket()), Submitted;
// Leave when the submission has been answered, perhaps before Submitted is called.
//
// TensorFlow's callback only makes a note for the background thread: done() must not be called on
// its stack, and nothing here waits for it. It may run when the operations are gone, so it shares
// the watch.
//
// Thread rule: any thread.
class CancellationWatch {
 public:
  // The step's watch, known by its manager; null: the step is cancelled already, and nothing must
  // be submitted. `manager` may be null: then the step cannot be cancelled. It lives until done()
  // of the step's last operation is called.
  static std::shared_ptr<CancellationWatch> Join(tensorflow::CancellationManager* manager);

  // What all that joined this watch is withdrawn by. 0: never. Not used by any other watch of this
  // process.
  std::uint64_t ticket() const { return ticket_; }
  void Submitted();
  // Once for each Join. REQUIRES: the operation's done() has not been called.
  void Leave();

 private:
  class Registry;

  CancellationWatch(tensorflow::CancellationManager* manager, std::uint64_t ticket)
      : manager_(manager), ticket_(ticket) {}
  void Cancel();

  // Not for the callback: it may be gone by then.
  tensorflow::CancellationManager* const manager_;
  tensorflow::CancellationToken token_ = tensorflow::CancellationManager::kInvalidToken;
  const std::uint64_t ticket_;
  std::atomic<bool> cancelled_{false};
  int users_ = 0;  // guarded by the registry's mutex
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_OPS_CANCELLATION_WATCH_H_
