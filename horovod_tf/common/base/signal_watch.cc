#include "horovod_tf/common/base/signal_watch.h"

#include <semaphore.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

namespace horovod_tf {
namespace {

// One for each signal: all that a handler, which may run at any time and interrupts anything, may
// touch.
std::array<sem_t, NSIG> semaphores;

sem_t* SemaphoreOf(int signal) { return &semaphores[static_cast<std::size_t>(signal)]; }

void OnSignal(int signal) {
  const int error = errno;
  sem_post(SemaphoreOf(signal));
  errno = error;
}

bool HandledBy(int signal, void (*handler)(int)) {
  struct sigaction now {};
  return sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
         now.sa_handler == handler;
}

void Handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // who is interrupted by it need not know
  sigaction(signal, &action, nullptr);
}

}  // namespace

class SignalWatch::Impl {
 public:
  Impl(int signal, std::function<void()> action) : signal_(signal), action_(std::move(action)) {
    sem_init(SemaphoreOf(signal_), /*pshared=*/0, 0);  // forgets what came meanwhile
    thread_ = std::thread([this] { Loop(); });
    Handle(signal_, OnSignal);
  }
  ~Impl() {
    ending_.store(true, std::memory_order_release);
    sem_post(SemaphoreOf(signal_));
    thread_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

 private:
  void Loop() {
    while (true) {
      while (sem_wait(SemaphoreOf(signal_)) != 0) {
      }
      if (ending_.load(std::memory_order_acquire)) return;
      action_();
    }
  }

  const int signal_;
  const std::function<void()> action_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

SignalWatch::SignalWatch(int signal, std::function<void()> action) {
  if (!HandledBy(signal, SIG_DFL) && !HandledBy(signal, OnSignal)) return;
  try {
    impl_ = std::make_unique<Impl>(signal, std::move(action));
  } catch (const std::system_error&) {
    // No thread to be had: the job goes on without.
  }
}

SignalWatch::~SignalWatch() = default;

}  // namespace horovod_tf
