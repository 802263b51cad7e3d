// Completion: how one submitted tensor ends, exactly once. Finishing consumes it; dropping it
// unfinished finishes it with Aborted, so no path, however broken, leaves the framework waiting.
#ifndef HOROVOD_TF_COMMON_RUNTIME_COMPLETION_H_
#define HOROVOD_TF_COMMON_RUNTIME_COMPLETION_H_

#include <functional>
#include <utility>

#include "horovod_tf/common/base/status.h"

namespace horovod_tf {

// Thread rule: one thread at a time; may be moved between threads.
class Completion {
 public:
  using Callback = std::function<void(const Status&)>;

  Completion() = default;  // nothing to finish
  explicit Completion(Callback callback) : callback_(std::move(callback)) {}
  Completion(Completion&& other) noexcept { Swap(other); }
  // Finishes what this one still had to finish with Aborted.
  Completion& operator=(Completion&& other) noexcept;
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;
  ~Completion();

  bool pending() const { return callback_ != nullptr; }
  // `before` runs first when this is finished (the queue forgets the name before the framework can
  // submit it again). REQUIRES: pending(), and none was added before.
  void AddBefore(std::function<void()> before);
  // From now on errors reach the callback as `translate` tells them. REQUIRES: pending().
  void Translate(std::function<Status(const Status&)> translate);
  // Calls back. The callback may submit tensors and may ask for shutdown. An exception that it
  // throws is reported on stderr and goes no further. Callbacks do not nest: one that becomes due
  // inside another, on the same thread, runs when that one has returned, so that a callback which
  // submits again when it is refused needs no stack (though it keeps its thread for ever).
  // REQUIRES: pending(), and no lock of ours is held.
  void Finish(const Status& status);

 private:
  void Swap(Completion& other) noexcept;

  std::function<void()> before_;
  Callback callback_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_COMPLETION_H_
