#include "horovod_tf/common/runtime/completion.h"

#include <cstdio>
#include <exception>

#include "horovod_tf/common/base/check.h"

namespace horovod_tf {
namespace {

void ReportException(const char* what) {
  std::fprintf(stderr, "horovod_tf: a completion's callback threw an exception, ignored: %s\n",
               what);
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

void Completion::Finish(const Status& status) {
  HVD_CHECK(pending(), "a completion is finished once");
  // Emptied first: a second finish is then impossible, also for one that the callback starts.
  const std::function<void()> before = std::exchange(before_, nullptr);
  const Callback callback = std::exchange(callback_, nullptr);
  try {
    if (before != nullptr) before();
    callback(status);
  } catch (const std::exception& e) {
    ReportException(e.what());
  } catch (...) {
    ReportException("of a type not derived from std::exception");
  }
}

void Completion::Swap(Completion& other) noexcept {
  before_.swap(other.before_);
  callback_.swap(other.callback_);
}

}  // namespace horovod_tf
