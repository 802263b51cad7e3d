#include "horovod_tf/common/runtime/guest.h"

namespace horovod_tf {
namespace {

// Without a destructor: threads may still ask while they, or the process, end.
struct Marks {
  std::atomic<bool>* background;  // null: not a background thread
  bool callback;
};

Marks& ThisThread() {
  thread_local Marks marks{};
  return marks;
}

void MarkCallback(bool inside) {
  Marks& marks = ThisThread();
  marks.callback = inside;
  if (marks.background != nullptr) marks.background->store(inside, std::memory_order_relaxed);
}

}  // namespace

bool OnGuestThread() {
  const Marks& marks = ThisThread();
  return marks.background != nullptr || marks.callback;
}

BackgroundMark::BackgroundMark(std::atomic<bool>* in_callback) {
  ThisThread().background = in_callback;
}
BackgroundMark::~BackgroundMark() { ThisThread().background = nullptr; }

CallbackMark::CallbackMark() { MarkCallback(true); }
CallbackMark::~CallbackMark() { MarkCallback(false); }

}  // namespace horovod_tf
