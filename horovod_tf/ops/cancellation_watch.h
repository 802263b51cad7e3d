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
// To be held by a shared pointer: the callback has one too, and may run when the operation is gone.
//
// Thread rule: Stop may be called on another thread than the rest.
class CancellationWatch : public std::enable_shared_from_this<CancellationWatch> {
 public:
  // `manager` may be null: then the step cannot be cancelled. It lives until done() is called.
  explicit CancellationWatch(tensorflow::CancellationManager* manager);

  // False: the step is cancelled already, and nothing must be submitted.
  bool Start();
  // Never used before in this process.
  std::uint64_t ticket() const { return ticket_; }
  void Submitted();
  // REQUIRES: done() has not been called.
  void Stop();

 private:
  void Cancel();

  // Not for the callback: it may be gone by then.
  tensorflow::CancellationManager* const manager_;
  tensorflow::CancellationToken token_ = tensorflow::CancellationManager::kInvalidToken;
  const std::uint64_t ticket_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_OPS_CANCELLATION_WATCH_H_
