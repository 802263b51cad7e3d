#include "horovod_tf/common/c_api.h"

#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "horovod_tf/common/base/config.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/base/utf8.h"
#include "horovod_tf/common/runtime/process_runtime.h"
#include "horovod_tf/common/version.h"

namespace {

using horovod_tf::ProcessSetView;
using horovod_tf::Status;
using horovod_tf::Topology;

// What one thread has been told. Of each thread its own, as errno is: the text that one thread is
// about to read cannot be replaced by another's failure, and needs no lock. Without a destructor:
// exit handlers still ask when the thread's own objects are gone.
struct Told {
  int code;
  char text[8192];  // ends with a zero byte
};

Told& ThisThread() {
  thread_local Told told{};
  return told;
}

void Keep(horovod_tf::StatusCode code, std::string_view text) {
  Told& told = ThisThread();
  told.code = static_cast<int>(code);
  told.text[horovod_tf::CopyUtf8(text, told.text, sizeof(told.text) - 1)] = '\0';
}

// The border: nothing that is thrown behind it reaches the caller. 0, or -1 with the error kept.
template <typename Call>
int Guarded(Call&& call) {
  try {
    const Status status = call();
    if (status.ok()) return 0;
    Keep(status.code(), status.message());
  } catch (const std::exception& e) {
    // In one piece and without allocating: memory may be what ran out.
    Keep(horovod_tf::StatusCode::kUnknown, e.what());
  } catch (...) {
    Keep(horovod_tf::StatusCode::kUnknown, "an exception of an unknown type");
  }
  return -1;
}

// Answers what only a started library knows; -1 before.
template <typename Known, typename Answer>
int Ask(Known&& known, Answer&& answer) {
  int result = -1;
  const int rc = Guarded([&] {
    const auto value = known();
    if (!value) return horovod_tf::ProcessNotInitialized();
    result = answer(*value);
    return Status::Ok();
  });
  return rc == 0 ? result : -1;
}

int AskTopology(int Topology::*member) {
  return Ask(horovod_tf::ProcessTopology,
             [member](const Topology& topology) { return topology.*member; });
}

std::vector<int> ListOf(const int* ranks, int n) {
  return ranks == nullptr || n <= 0 ? std::vector<int>() : std::vector<int>(ranks, ranks + n);
}

int Write(const std::vector<int>& numbers, int* out, int n) {
  for (std::size_t i = 0; out != nullptr && i < numbers.size(); ++i) {
    if (static_cast<int>(i) < n) out[i] = numbers[i];
  }
  return static_cast<int>(numbers.size());
}

constexpr int kNoSuchSet = -3;
constexpr int kNoMember = -4;

template <typename Answer>
int AskSet(int id, Answer&& answer) {
  return Ask(horovod_tf::ProcessSetList, [&](const std::vector<ProcessSetView>& sets) {
    for (const ProcessSetView& set : sets) {
      if (set.id == id) return answer(set);
    }
    return kNoSuchSet;
  });
}

}  // namespace

int horovod_agree_on(const char* name, const char* value) {
  return Guarded([name, value] {
    horovod_tf::ProcessAgreeOn(name == nullptr ? "" : name, value == nullptr ? "" : value);
    return Status::Ok();
  });
}

int horovod_init(void) { return horovod_init_ranks(nullptr, 0); }

int horovod_init_ranks(const int* ranks, int n) {
  return Guarded([ranks, n] { return horovod_tf::ProcessInit(ListOf(ranks, n)); });
}

int horovod_shutdown(void) { return horovod_shutdown_because("the program called shutdown"); }

int horovod_shutdown_because(const char* reason) {
  return Guarded([reason] { return horovod_tf::ProcessShutdown(reason == nullptr ? "" : reason); });
}

int horovod_finalize(void) { return Guarded(horovod_tf::ProcessFinalize); }

int horovod_is_initialized(void) {
  int initialized = 0;
  (void)Guarded([&] {
    initialized = horovod_tf::ProcessTopology().has_value() ? 1 : 0;
    return Status::Ok();
  });
  return initialized;
}

int horovod_rank(void) { return AskTopology(&Topology::rank); }
int horovod_size(void) { return AskTopology(&Topology::size); }
int horovod_local_rank(void) { return AskTopology(&Topology::local_rank); }
int horovod_local_size(void) { return AskTopology(&Topology::local_size); }
int horovod_cross_rank(void) { return AskTopology(&Topology::cross_rank); }
int horovod_cross_size(void) { return AskTopology(&Topology::cross_size); }

int horovod_is_homogeneous(void) {
  return Ask(horovod_tf::ProcessTopology,
             [](const Topology& topology) { return topology.homogeneous ? 1 : 0; });
}

int horovod_mpi_threads_supported(void) {
  return Ask(horovod_tf::ProcessMpiThreadsSupported,
             [](bool supported) { return supported ? 1 : 0; });
}

int horovod_add_process_set(const int* ranks, int n) {
  int id = -1;
  const int rc = Guarded([&] { return horovod_tf::ProcessAddSet(ListOf(ranks, n), &id); });
  return rc == 0 ? id : -1;
}

int horovod_remove_process_set(int id) {
  return Guarded([id] { return horovod_tf::ProcessRemoveSet(id); });
}

int horovod_process_set_size(int id) {
  return AskSet(id, [](const ProcessSetView& set) { return static_cast<int>(set.ranks.size()); });
}

int horovod_process_set_rank(int id) {
  return AskSet(id, [](const ProcessSetView& set) { return set.rank < 0 ? kNoMember : set.rank; });
}

int horovod_process_set_included(int id) {
  return AskSet(id, [](const ProcessSetView& set) { return set.rank < 0 ? 0 : 1; });
}

int horovod_process_set_ids(int* ids, int n) {
  return Ask(horovod_tf::ProcessSetList, [&](const std::vector<ProcessSetView>& sets) {
    std::vector<int> all;
    all.reserve(sets.size());
    for (const ProcessSetView& set : sets) all.push_back(set.id);
    return Write(all, ids, n);
  });
}

int horovod_process_set_ranks(int id, int* ranks, int n) {
  return AskSet(id, [&](const ProcessSetView& set) { return Write(set.ranks, ranks, n); });
}

int horovod_start_timeline(const char* path) {
  return Guarded([path] {
    if (path != nullptr && *path != '\0') return horovod_tf::ProcessStartTimeline(path);
    return Status::InvalidArgument("a timeline needs the path of a file");
  });
}

int horovod_stop_timeline(void) { return Guarded(horovod_tf::ProcessStopTimeline); }

const char* horovod_status(void) {
  // As with errors: each thread has its own, without a destructor.
  thread_local char text[16384];
  text[0] = '\0';
  (void)Guarded([] {
    const std::string status = horovod_tf::ProcessStatus();
    text[horovod_tf::CopyUtf8(status, text, sizeof(text) - 1)] = '\0';
    return Status::Ok();
  });
  return text;
}

void horovod_interrupt(const char* reason) {
  (void)Guarded([reason] {
    horovod_tf::ProcessInterrupt(reason == nullptr ? "" : reason);
    return Status::Ok();
  });
}

const char* horovod_last_error(void) { return ThisThread().text; }

int horovod_last_error_code(void) { return ThisThread().code; }

const char* horovod_version(void) { return horovod_tf::kLibraryVersion; }

const char* horovod_environment_markdown(void) {
  const char* page = "";
  (void)Guarded([&] {
    // Never destroyed, as exit handlers may ask.
    static const std::string* const text =
        std::make_unique<std::string>(horovod_tf::EnvironmentMarkdown()).release();
    page = text->c_str();
    return Status::Ok();
  });
  return page;
}
