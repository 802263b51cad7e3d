// SignalWatch: does something on a thread of its own when the process gets a signal.
#ifndef HOROVOD_TF_COMMON_BASE_SIGNAL_WATCH_H_
#define HOROVOD_TF_COMMON_BASE_SIGNAL_WATCH_H_

#include <functional>
#include <memory>

namespace horovod_tf {

// As long as it lives, and only if nobody else handles the signal when it is made; whoever installs
// a handler later gets the signal instead. At most one at a time for a signal.
//
// Thread rule: made and destroyed by any thread; `action` runs on the watch's thread.
class SignalWatch {
 public:
  SignalWatch(int signal, std::function<void()> action);
  // Waits for an action that runs. Afterwards the signal does nothing: one that comes late must not
  // kill the process.
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // Whether the signal was free.
  bool watching() const { return impl_ != nullptr; }

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_BASE_SIGNAL_WATCH_H_
