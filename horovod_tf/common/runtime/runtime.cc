#include "horovod_tf/common/runtime/runtime.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <system_error>
#include <thread>

#include "horovod_tf/common/base/check.h"
#include "horovod_tf/common/base/mutex.h"
#include "horovod_tf/common/runtime/control_loop.h"
#include "horovod_tf/common/runtime/guest.h"
#include "horovod_tf/common/runtime/opening.h"
#include "horovod_tf/common/runtime/status_desk.h"
#include "horovod_tf/common/runtime/tensor_queue.h"
#include "horovod_tf/common/runtime/thread_affinity.h"
#include "horovod_tf/common/runtime/timeline.h"

namespace horovod_tf {
namespace {

// How long a thread has to notice that its job has failed before it is left behind, and to answer a
// question.
constexpr Duration kGrace = std::chrono::seconds(2);
// The same for one that is over its time to start.
constexpr Duration kGraceOfStart = std::chrono::milliseconds(500);

RuntimeOptions WithLogger(RuntimeOptions options) {
  HVD_CHECK(options.transport != nullptr, "a runtime needs a transport");
  if (options.logger == nullptr) {
    options.logger =
        std::make_shared<Logger>(options.config.log_level, options.config.log_hide_time);
  }
  // A set's ranks have other numbers in the job.
  if (options.process_set.empty()) options.logger->set_rank(options.transport->rank());
  return options;
}

}  // namespace

// Members are in three groups: constant after construction; for any thread; for the background
// thread until it has ended.
class Runtime::Impl : public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(RuntimeOptions options)
      : options_(WithLogger(std::move(options))),
        transport_(*options_.transport),
        clock_(*options_.clock),
        logger_(*options_.logger),
        lifecycle_(clock_),
        queue_(transport_.size()),
        status_desk_(clock_) {}

  // By the runtime; or by the thread that was left behind, as the last thing that it does.
  ~Impl() {
    // Backends first: what they still hold is finished now, while timeline and executor are there.
    options_.backends = BackendRegistry();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status Start() {
    lifecycle_.BeginStart();
    limit_.timeout = options_.config.init_timeout;
    limit_.deadline = std::min(AfterDelay(clock_.Now(), limit_.timeout), options_.start_deadline);
    try {
      MutexLock lock(join_mutex_);
      thread_ = std::thread([self = shared_from_this()] { self->ThreadMain(); });
    } catch (const std::system_error& e) {
      Fail(Status::ResourceExhausted(std::string("cannot start the background thread: ") +
                                     e.what()));
      lifecycle_.MarkThreadEnded();
    }
    AwaitStart();
    Status failed = failure();
    if (failed.ok()) return failed;
    const Duration left = std::max(limit_.deadline - clock_.Now(), kGrace);
    return AwaitEnd(std::min(left, options_.config.shutdown_timeout));
  }

  void Enqueue(std::vector<TensorEntry> group) {
    const Status refusal = lifecycle_.Refusal();
    if (!refusal.ok()) {
      FinishAll(std::move(group), refusal);
      return;
    }
    bool was_empty = false;
    // What it returns has been told to the completions.
    const Status added = queue_.Add(std::move(group), &was_empty);
    // The background thread looks into the queue before it sleeps.
    if (was_empty && !OnBackgroundThread()) transport_.Wake();
  }

  void Withdraw(TensorWithdrawal withdrawal) {
    bool was_empty = false;
    queue_.Withdraw(std::move(withdrawal), &was_empty);
    if (was_empty && !OnBackgroundThread()) transport_.Wake();
  }

  void Interrupt(std::string_view reason) {
    const Duration grace = options_.config.interrupt_grace;
    if (grace > Duration{0}) Withdraw({std::nullopt, grace, std::string(reason)});
  }

  void AskToStop(std::string_view reason) {
    if (state() == RuntimeState::kIdle) return;
    lifecycle_.AskToStop(reason);
    transport_.Wake();
  }

  // An abort ends what the background thread waits for, and is what it then fails with.
  void End(const Status& why, bool failed) {
    if (!failed) return AskToStop(why.message());
    transport_.Abort(why);
    transport_.Wake();
  }

  EndFunction Ender() {
    return [weak = weak_from_this()](const Status& why, bool failed) {
      if (const std::shared_ptr<Impl> self = weak.lock()) self->End(why, failed);
    };
  }

  Status Stop(std::string_view reason) {
    if (state() == RuntimeState::kIdle) return Status::Ok();
    AskToStop(reason);
    // A guest that waited would wait for itself.
    return OnGuestThread() ? Status::Ok() : AwaitEnd(options_.config.shutdown_timeout);
  }

  void StopBeforeDestruction() {
    HVD_CHECK(!OnBackgroundThread(), "a runtime was destroyed by one of its own callbacks");
    if (state() == RuntimeState::kIdle) {
      // The others may be waiting for this rank already.
      transport_.Abort(Status::Cancelled("it left the job before the job had begun"));
      return;
    }
    lifecycle_.AskToStop("its runtime was destroyed");
    transport_.Wake();
    // What became of it has been told to its tensors.
    const Status ended = AwaitEnd(options_.config.shutdown_timeout);
  }

  Status StartTimeline(const std::string& path) {
    if (transport_.rank() != 0) return Status::Ok();
    TimelineOptions timeline;
    timeline.path = path;
    return timeline_.Reopen(timeline, clock_);
  }

  void StopTimeline() { timeline_.Close(); }

  std::string Describe() {
    StatusAnswer answer;
    answer.ended = Refusal();
    // A callback that asks would wait for itself.
    if (answer.ended.ok() && !OnGuestThread()) {
      answer = status_desk_.Ask([this] { transport_.Wake(); }, AfterDelay(clock_.Now(), kGrace));
      if (!answer.here) answer.ended = Refusal();
    }
    const bool whole_job = options_.process_set.empty();
    const std::string text =
        StatusText(answer, transport_.rank(), transport_.size(), transport_.host(),
                   whole_job ? DescribeConfig(options_.config) : "");
    return whole_job ? text : options_.process_set + ": " + text;
  }

  RuntimeState state() const { return lifecycle_.state(); }
  Status failure() const { return lifecycle_.failure(); }
  Status Refusal() const { return lifecycle_.Refusal(); }
  const Topology& topology() const { return topology_; }
  bool OnBackgroundThread() const {
    return thread_id_.load(std::memory_order_acquire) == std::this_thread::get_id();
  }

 private:
  void ThreadMain() {
    const BackgroundMark mark(&in_callback_);
    thread_id_.store(std::this_thread::get_id(), std::memory_order_release);
    Status status;
    try {
      status = Run();
    } catch (const std::exception& e) {
      status = Status::Internal(std::string("the background thread met an exception: ") + e.what());
    } catch (...) {
      status = Status::Internal("the background thread met an exception of an unknown type");
    }
    if (!status.ok()) Fail(status);
    FinishEverything();
    if (status.ok()) transport_.Close();
    lifecycle_.FinishDraining();
    // Before the end is known: afterwards the system may give this thread's id to another.
    thread_id_.store(std::thread::id(), std::memory_order_release);
    lifecycle_.MarkThreadEnded();
  }

  // From the opening to the agreed end; an error is the end of the job.
  Status Run() {
    HVD_RETURN_IF_ERROR(Open());
    OpenTimeline();
    // After the timeline, whose thread has no reason to be where this one is.
    HVD_RETURN_IF_ERROR(BindThisThread(options_.config, topology_));
    loop_.emplace(LoopSurroundings{options_.config, clock_, logger_, transport_, options_.backends,
                                   queue_, transport_.rank() == 0 ? &timeline_ : nullptr,
                                   status_desk_});
    lifecycle_.FinishStart();
    while (loop_->shutdown().ok()) {
      if (std::optional<std::string> reason = lifecycle_.TakeStopRequest()) {
        loop_->RequestShutdown(*std::move(reason));
      }
      bool worked = false;
      HVD_RETURN_IF_ERROR(loop_->Turn(&worked));
      if (!worked) transport_.Wait(loop_->NextDeadline(), loop_->expectation());
    }
    return Status::Ok();
  }

  Status Open() {
    std::vector<std::string> hosts;
    HVD_RETURN_IF_ERROR(OpenJob(
        transport_, clock_, limit_, MakeHello(transport_, options_.config, options_.agreements),
        [this] { return lifecycle_.StopRequested(); }, &hosts));
    topology_ = MakeTopology(hosts, transport_.rank());
    return Status::Ok();
  }

  void OpenTimeline() {
    if (options_.config.timeline_path.empty()) return;
    const Status status = StartTimeline(options_.config.timeline_path);
    if (!status.ok()) {
      logger_.Log(LogLevel::kWarning, "no timeline is written: " + status.message());
    }
  }

  // The job has failed. The first failure anywhere in it is the one that all ranks speak of.
  void Fail(const Status& cause) {
    transport_.Abort(cause);
    const Status first = transport_.health();
    lifecycle_.Fail(first.ok() ? cause : first);
    const Status failed = failure();
    if (!failed.ok()) TellEnd(failed, /*failed=*/true);
  }

  void TellEnd(const Status& why, bool failed) {
    if (!end_told_.exchange(true) && options_.on_end) options_.on_end(why, failed);
  }

  // Everything that was submitted here and has no answer gets the one why there will be none.
  void FinishEverything() {
    Status why = failure();
    if (why.ok()) {
      why = loop_->shutdown();
      lifecycle_.BeginDraining(why);
      TellEnd(why, /*failed=*/false);
    }
    std::vector<TensorEntry> not_taken = queue_.Close(why);
    if (loop_) FinishAll(loop_->TakeAll(), why);
    FinishAll(std::move(not_taken), why);
  }

  // The background thread gives up in time by itself, unless a call of the system (the timeline's
  // file, say) does not return.
  void AwaitStart() {
    if (lifecycle_.WaitUntilStarted(limit_.deadline)) return;
    if (lifecycle_.WaitUntilStarted(AfterDelay(clock_.Now(), kGraceOfStart))) return;
    Fail(Status::DeadlineExceeded("hvd.init() did not end within " + SecondsText(limit_.timeout) +
                                  ": the background thread does not come back"));
  }

  // Waits for the thread as long as `timeout` allows, then fails the job, and after some
  // more time leaves the thread behind: foreign code that never returns must not keep the program
  // from ending. Never called by a thread that a guest is on.
  Status AwaitEnd(Duration timeout) {
    {
      MutexLock lock(join_mutex_);
      if (!left_behind_.ok()) return left_behind_;
    }
    if (!lifecycle_.WaitUntilThreadEnded(AfterDelay(clock_.Now(), timeout))) {
      Fail(Status::DeadlineExceeded(
          "rank " + std::to_string(transport_.rank()) + " could not shut down within " +
          SecondsText(timeout) + " (HOROVOD_TF_SHUTDOWN_TIMEOUT_SECONDS): " +
          (in_callback_.load(std::memory_order_relaxed)
               ? "a tensor's completion callback has not returned"
               : "rank 0 did not answer, or an operation is still running")));
    }
    const bool ended = lifecycle_.WaitUntilThreadEnded(AfterDelay(clock_.Now(), kGrace));
    MutexLock lock(join_mutex_);
    if (!left_behind_.ok()) return left_behind_;
    if (ended) {
      if (thread_.joinable()) thread_.join();
      return failure();
    }
    // Everything that it may still touch stays alive on purpose: the thread holds it, and takes it
    // down if it ever ends.
    thread_.detach();
    left_behind_ =
        failure().WithContext(std::string("Horovod's background thread does not return from ") +
                              (in_callback_.load(std::memory_order_relaxed)
                                   ? "a tensor's completion callback"
                                   : "a backend, the transport or the framework") +
                              " and was left behind; tensors it holds may never finish");
    logger_.Log(LogLevel::kError, left_behind_.message());
    return left_behind_;
  }

  RuntimeOptions options_;
  StartLimit limit_;  // constant from the beginning of the start on
  Transport& transport_;
  const Clock& clock_;
  const Logger& logger_;

  RuntimeLifecycle lifecycle_;
  TensorQueue queue_;
  StatusDesk status_desk_;
  std::atomic<std::thread::id> thread_id_{};
  std::atomic<bool> in_callback_{false};  // where the background thread is
  std::atomic<bool> end_told_{false};
  Mutex join_mutex_;  // held while joining: all who wait for the end return after it
  std::thread thread_ HVD_GUARDED_BY(join_mutex_);
  Status left_behind_ HVD_GUARDED_BY(join_mutex_);  // not OK: nobody waits for the thread any more

  Topology topology_;  // constant from the end of the start on
  Timeline timeline_;  // for any thread
  std::optional<ControlLoop> loop_;
};

Runtime::Runtime(RuntimeOptions options) : impl_(std::make_shared<Impl>(std::move(options))) {}
Runtime::~Runtime() { impl_->StopBeforeDestruction(); }

Status Runtime::Start() { return impl_->Start(); }
void Runtime::Enqueue(std::vector<TensorEntry> group) { impl_->Enqueue(std::move(group)); }
void Runtime::Withdraw(std::uint64_t ticket, std::string_view reason) {
  impl_->Withdraw({ticket, Duration{0}, std::string(reason)});
}
void Runtime::Interrupt(std::string_view reason) { impl_->Interrupt(reason); }

Status Runtime::Stop(std::string_view reason) { return impl_->Stop(reason); }
void Runtime::AskToStop(std::string_view reason) { impl_->AskToStop(reason); }
EndFunction Runtime::Ender() { return impl_->Ender(); }
Status Runtime::StartTimeline(const std::string& path) { return impl_->StartTimeline(path); }
void Runtime::StopTimeline() { impl_->StopTimeline(); }
std::string Runtime::Describe() { return impl_->Describe(); }
RuntimeState Runtime::state() const { return impl_->state(); }
Status Runtime::failure() const { return impl_->failure(); }
Status Runtime::Refusal() const { return impl_->Refusal(); }
const Topology& Runtime::topology() const { return impl_->topology(); }
bool Runtime::OnBackgroundThread() const { return impl_->OnBackgroundThread(); }

}  // namespace horovod_tf
