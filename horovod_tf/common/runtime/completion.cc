#include "horovod_tf/common/runtime/completion.h"

#include <cstdio>
#include <exception>
#include <vector>

#include "horovod_tf/common/base/check.h"
#include "horovod_tf/common/runtime/guest.h"

namespace horovod_tf {
namespace {

void ReportException(const char* what) {
  std::fprintf(stderr, "horovod_tf: a completion's callback threw an exception, ignored: %s\n",
               what);
}

template <typename Call>
void CallGuest(Call&& call) {
  try {
    call();
  } catch (const std::exception& e) {
    ReportException(e.what());
  } catch (...) {
    ReportException("of a type not derived from std::exception");
  }
}

struct Due {
  Completion::Callback callback;
  Status status;
};

// Takes it, so that what the callback owns ends here, which may make others due.
void Run(Due due) {
  CallGuest([&due] { due.callback(due.status); });
}

// What became due inside the callback that this thread runs; null while it runs none. A pointer, as
// it must not need a destructor when a thread ends.
std::vector<Due>*& DueOnThisThread() {
  thread_local std::vector<Due>* due = nullptr;
  return due;
}

}  // namespace

Completion& Completion::operator=(Completion&& other) noexcept {
  if (this == &other) return *this;
  // The old content is finished last: by then this one is whole, whatever the callback does.
  Completion old(std::move(*this));
  Swap(other);
  return *this;
}

Completion::~Completion() {
  if (pending()) Finish(Status::Aborted("The operation was dropped before it was finished"));
}

void Completion::AddBefore(std::function<void()> before) {
  HVD_CHECK(pending() && before_ == nullptr, "a completion takes one hook, while it is pending");
  before_ = std::move(before);
}

void Completion::Translate(std::function<Status(const Status&)> translate) {
  HVD_CHECK(pending(), "a completion is translated while it is pending");
  callback_ = [callback = std::move(callback_), translate = std::move(translate)](
                  const Status& status) { callback(status.ok() ? status : translate(status)); };
}

void Completion::Finish(const Status& status) {
  HVD_CHECK(pending(), "a completion is finished once");
  // Emptied first: a second finish is then impossible, also for one that the callback starts.
  const std::function<void()> before = std::exchange(before_, nullptr);
  Due first{std::exchange(callback_, nullptr), status};
  if (before != nullptr) CallGuest(before);
  std::vector<Due>*& due_on_this_thread = DueOnThisThread();
  if (due_on_this_thread != nullptr) {
    due_on_this_thread->push_back(std::move(first));
    return;
  }
  std::vector<Due> due;
  due_on_this_thread = &due;
  {
    const CallbackMark mark;
    Run(std::move(first));
    while (!due.empty()) {
      for (Due& next : std::exchange(due, {})) Run(std::move(next));
    }
  }
  due_on_this_thread = nullptr;
}

void Completion::Swap(Completion& other) noexcept {
  before_.swap(other.before_);
  callback_.swap(other.callback_);
}

}  // namespace horovod_tf
