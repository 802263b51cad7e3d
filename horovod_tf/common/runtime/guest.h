// Which threads run other people's code for us: a job's background thread, and any thread while it
// runs a completion's callback. Code on them is a guest: it must never wait for the library, nor
// take down what it stands on.
#ifndef HOROVOD_TF_COMMON_RUNTIME_GUEST_H_
#define HOROVOD_TF_COMMON_RUNTIME_GUEST_H_

#include <atomic>

namespace horovod_tf {

// Whether the calling thread is one of these now.
bool OnGuestThread();

// Marks the calling thread as a job's background thread while it lives. `in_callback` then says
// whether that thread is inside a callback, for those who wait for it.
//
// Thread rule: made and destroyed by the thread that it marks, at most one at a time.
class BackgroundMark {
 public:
  explicit BackgroundMark(std::atomic<bool>* in_callback);
  ~BackgroundMark();
  BackgroundMark(const BackgroundMark&) = delete;
  BackgroundMark& operator=(const BackgroundMark&) = delete;
};

// Marks the calling thread as running a callback while it lives.
//
// Thread rule: as BackgroundMark.
class CallbackMark {
 public:
  CallbackMark();
  ~CallbackMark();
  CallbackMark(const CallbackMark&) = delete;
  CallbackMark& operator=(const CallbackMark&) = delete;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_GUEST_H_
