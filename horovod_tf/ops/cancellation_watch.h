// CancellationWatch: what ends the wait of one operation when its step is cancelled.
#ifndef HOROVOD_TF_OPS_CANCELLATION_WATCH_H_
#define HOROVOD_TF_OPS_CANCELLATION_WATCH_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "tensorflow/core/framework/cancellation.h"

namespace horovod_tf {

// Order of calls: Start, (submit with ticket()), Submitted; Stop when the submission has been
// answered, perhaps before Submitted is called. TensorFlow's callback only makes a note for the
// background thread: done() must not be called on its stack, and nothing here waits for it.
//
// Thread rule: Stop may be called on another thread than the rest.
class CancellationWatch {
 public:
  // `manager` may be null: then the step cannot be cancelled. It lives until done() is called.
  explicit CancellationWatch(tensorflow::CancellationManager* manager);

  // False: the step is cancelled already, and nothing must be submitted.
  bool Start();
  // Never used before in this process.
  std::uint64_t ticket() const { return state_->ticket; }
  void Submitted();
  // REQUIRES: done() has not been called.
  void Stop();

 private:
  // What the callback uses: it may run after Stop, when the operation is gone.
  struct State {
    std::uint64_t ticket = 0;
    std::atomic<bool> cancelled{false};
  };

  tensorflow::CancellationManager* const manager_;
  tensorflow::CancellationToken token_ = tensorflow::CancellationManager::kInvalidToken;
  const std::shared_ptr<State> state_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_OPS_CANCELLATION_WATCH_H_
