// Speed of the shared-memory backend: forked processes, one JSON line per kind and size, verified.
//
//   shm_backend [--ranks N] [--slot BYTES] [--kind allreduce|allgather|broadcast] [--type NAME]
//               [--bytes BYTES] [--tensors N] [--seconds S] [--in-place] [--average] [--pin]
//
// --pin: rank r runs on processor r modulo their number only. Without --bytes: sizes from 4 bytes
// to 64 MiB. The time is the slowest rank's, the median of several rounds. "algbw" is the tensor's
// size (allgather: the output's) by the time; "busbw" corrects it by what a rank must send and
// receive at least; "copy_us" is one memcpy of as many bytes, on one rank, in the same run.
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "horovod_tf/common/collectives/shm_backend.h"

namespace {

using namespace horovod_tf;

constexpr int kMostRanks = 64;
constexpr int kRounds = 15;

struct Options {
  int ranks = 2;
  std::size_t slot = 256 << 10;
  CollectiveKind kind = CollectiveKind::kAllreduce;
  DataType dtype = DataType::kFloat32;
  std::size_t bytes = 0;
  std::size_t tensors = 1;
  double seconds = 0.5;
  bool in_place = false;
  bool pin = false;
  ReduceOp op = ReduceOp::kSum;
  int cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
};

// What the ranks tell the parent.
struct Shared {
  double seconds[kMostRanks][kRounds];
  double cpu_seconds[kMostRanks];
  double copy_seconds;
  unsigned long long wrong[kMostRanks];
};

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

class Context final : public RunContext {
 public:
  Status Interrupted() override { return Status::Ok(); }
  Status Scratch(std::size_t, void**) override { return Status::Internal("not needed"); }
  void Activity(std::string_view) override {}
  std::function<void(const Status&)> TakeCompletion() override { return {}; }
};

// Small whole numbers, so that sums are exact in every type: byte patterns of the type's own.
unsigned char Pattern(int rank, std::size_t i) {
  return static_cast<unsigned char>((i * 7 + i / 251 + static_cast<std::size_t>(rank)) % 3);
}

float ValueOf(const Options& options, int rank, std::size_t i) {
  return options.dtype == DataType::kFloat32 ? static_cast<float>(Pattern(rank, i)) : 0.0F;
}

// One rank's tensors. Only float32 has values; other types are zero and measured only.
class Buffers {
 public:
  Buffers(const Options& options, std::size_t bytes, int rank)
      : options_(options), elements_(bytes / Info(options.dtype).size / options.tensors) {
    const std::size_t each = elements_ * Info(options.dtype).size;
    const auto ranks = static_cast<std::size_t>(options.ranks);
    const std::size_t out = options.kind == CollectiveKind::kAllgather ? ranks * each : each;
    batch.kind = options.kind;
    batch.dtype = options.dtype;
    batch.reduce_op = options.op;
    for (std::size_t t = 0; t < options.tensors; ++t) {
      inputs_.emplace_back(each);
      if (!options.in_place) outputs_.emplace_back(out);
      BatchTensor tensor;
      tensor.name = "t" + std::to_string(t);
      const auto n = static_cast<std::int64_t>(elements_);
      tensor.input = {options.dtype, {n}, inputs_.back().data()};
      tensor.output = tensor.input;
      if (!options.in_place) tensor.output.data = outputs_.back().data();
      if (options.kind == CollectiveKind::kAllgather) {
        tensor.first_dims.assign(ranks, n);
        tensor.output.shape = {n * options.ranks};
      }
      batch.tensors.push_back(tensor);
    }
    Fill(rank);
  }

  void Fill(int rank) {
    if (options_.dtype != DataType::kFloat32) return;
    for (std::vector<unsigned char>& input : inputs_) {
      auto* values = static_cast<float*>(static_cast<void*>(input.data()));
      for (std::size_t i = 0; i < elements_; ++i) values[i] = ValueOf(options_, rank, i);
    }
  }

  unsigned long long CountWrong() const {
    unsigned long long wrong = 0;
    for (const BatchTensor& tensor : batch.tensors) {
      const auto* values = static_cast<const float*>(tensor.output.data);
      if (options_.dtype != DataType::kFloat32) continue;
      const auto count = static_cast<std::size_t>(tensor.output.shape.elements());
      for (std::size_t i = 0; i < count; ++i) wrong += values[i] != Expected(i) ? 1U : 0U;
    }
    return wrong;
  }

  Batch batch;

 private:
  float Expected(std::size_t i) const {
    if (options_.kind == CollectiveKind::kAllgather) {
      return ValueOf(options_, static_cast<int>(i / elements_), i % elements_);
    }
    if (options_.kind == CollectiveKind::kBroadcast) return ValueOf(options_, 0, i);
    float sum = 0;
    for (int rank = 0; rank < options_.ranks; ++rank) sum += ValueOf(options_, rank, i);
    return options_.op == ReduceOp::kAverage ? sum / static_cast<float>(options_.ranks) : sum;
  }

  const Options& options_;
  const std::size_t elements_;
  std::vector<std::vector<unsigned char>> inputs_;
  std::vector<std::vector<unsigned char>> outputs_;
};

void MeasureCopy(std::size_t bytes, Shared* shared) {
  std::vector<unsigned char> from(bytes, 1);
  std::vector<unsigned char> to(bytes, 2);
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double start = Seconds();
    std::memcpy(to.data(), from.data(), bytes);
    best = std::min(best, Seconds() - start);
  }
  shared->copy_seconds = best;
}

int RunRank(const Options& options, std::size_t bytes, int calls, int rank,
            const std::shared_ptr<ShmSegment>& segment, Shared* shared) {
  if (options.pin) {
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(static_cast<std::size_t>(rank % options.cpus), &own);
    if (sched_setaffinity(0, sizeof own, &own) != 0) return 1;
  }
  const std::unique_ptr<CollectiveBackend> backend =
      MakeShmBackend(MakeMembership(rank, segment, {}, PatienceFor(options.ranks, options.cpus)));
  Context context;
  Buffers buffers(options, bytes, rank);
  const auto run = [&] {
    const Status status = backend->Run(buffers.batch, context);
    if (!status.ok()) {
      std::fprintf(stderr, "rank %d: %s\n", rank, status.ToString().c_str());
      _exit(1);
    }
  };
  run();
  shared->wrong[rank] = buffers.CountWrong();
  for (int i = 0; i < 3; ++i) run();
  const double cpu = CpuSeconds();
  for (int round = 0; round < kRounds; ++round) {
    const double start = Seconds();
    for (int i = 0; i < calls; ++i) run();
    shared->seconds[rank][round] = (Seconds() - start) / calls;
  }
  shared->cpu_seconds[rank] = (CpuSeconds() - cpu) / kRounds / calls;
  // Values that grow in place mean nothing any more.
  if (!options.in_place) shared->wrong[rank] += buffers.CountWrong();
  return 0;
}

void Print(const Options& options, std::size_t bytes, const Shared& shared) {
  std::vector<double> rounds;
  unsigned long long wrong = 0;
  double cpu = 0;
  for (int rank = 0; rank < options.ranks; ++rank) {
    wrong += shared.wrong[rank];
    cpu += shared.cpu_seconds[rank];
  }
  for (int round = 0; round < kRounds; ++round) {
    double slowest = 0;
    for (int rank = 0; rank < options.ranks; ++rank) {
      slowest = std::max(slowest, shared.seconds[rank][round]);
    }
    rounds.push_back(slowest);
  }
  std::sort(rounds.begin(), rounds.end());
  const double seconds = rounds[kRounds / 2];
  const double n = options.ranks;
  double moved = static_cast<double>(bytes);
  double factor = 1;
  if (options.kind == CollectiveKind::kAllreduce) factor = 2 * (n - 1) / n;
  if (options.kind == CollectiveKind::kAllgather) {
    moved *= n;
    factor = (n - 1) / n;
  }
  std::printf(
      "{\"benchmark\": \"shm_backend\", \"kind\": \"%s\", \"type\": \"%s\", \"ranks\": %d, "
      "\"slot\": %zu, \"tensors\": %zu, \"bytes\": %zu, \"us\": %.2f, \"best_us\": %.2f, "
      "\"algbw_gb_s\": %.3f, \"busbw_gb_s\": %.3f, \"cpu_us_per_rank\": %.2f, \"copy_us\": %.2f, "
      "\"wrong\": %llu}\n",
      std::string(Info(options.kind).name).c_str(), std::string(Info(options.dtype).name).c_str(),
      options.ranks, options.slot, options.tensors, bytes, seconds * 1e6, rounds[0] * 1e6,
      moved / seconds * 1e-9, moved * factor / seconds * 1e-9, cpu / n * 1e6,
      shared.copy_seconds * 1e6, wrong);
  std::fflush(stdout);
}

int Measure(const Options& options, std::size_t bytes, Shared* shared) {
  std::memset(shared, 0, sizeof *shared);
  std::shared_ptr<ShmSegment> segment;
  const Status made = ShmSegment::Create(options.ranks, options.slot, &segment);
  if (!made.ok()) {
    std::fprintf(stderr, "%s\n", made.ToString().c_str());
    return 1;
  }
  MeasureCopy(bytes, shared);
  const double guess = 3e-6 * options.ranks + static_cast<double>(bytes) * 1e-9 * options.ranks / 2;
  const int calls = std::clamp(static_cast<int>(options.seconds / kRounds / guess), 1, 20000);
  for (int rank = 0; rank < options.ranks; ++rank) {
    if (fork() == 0) _exit(RunRank(options, bytes, calls, rank, segment, shared));
  }
  int failed = 0;
  for (int rank = 0; rank < options.ranks; ++rank) {
    int status = 0;
    wait(&status);
    failed |= status;
  }
  if (failed == 0) Print(options, bytes, *shared);
  return failed == 0 ? 0 : 1;
}

template <typename Rows>
auto ByName(const Rows& rows, const std::string& name) {
  for (const auto& row : rows) {
    if (row.name == name) return row;
  }
  std::fprintf(stderr, "no such thing: %s\n", name.c_str());
  std::exit(2);
}

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--in-place") options.in_place = true;
    if (name == "--pin") options.pin = true;
    if (name == "--average") options.op = ReduceOp::kAverage;
    if (name == "--in-place" || name == "--average" || name == "--pin") continue;
    const std::string value = i + 1 < argc ? argv[++i] : "";
    if (name == "--ranks") options.ranks = std::clamp(std::atoi(value.c_str()), 1, kMostRanks);
    if (name == "--slot") options.slot = std::strtoull(value.c_str(), nullptr, 10);
    if (name == "--bytes") options.bytes = std::strtoull(value.c_str(), nullptr, 10);
    if (name == "--tensors") options.tensors = std::strtoull(value.c_str(), nullptr, 10);
    if (name == "--seconds") options.seconds = std::atof(value.c_str());
    if (name == "--cpus") options.cpus = std::atoi(value.c_str());
    if (name == "--kind") options.kind = ByName(CollectiveKinds(), value).kind;
    if (name == "--type") options.dtype = ByName(DataTypes(), value).type;
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto* const shared = static_cast<Shared*>(memory);
  std::vector<std::size_t> sizes = {4,         1 << 10, 16 << 10, 64 << 10,
                                    256 << 10, 1 << 20, 8 << 20,  64 << 20};
  if (options.bytes != 0) sizes = {options.bytes};
  int failed = 0;
  for (std::size_t bytes : sizes) {
    if (bytes >= options.tensors * Info(options.dtype).size) {
      failed |= Measure(options, bytes, shared);
    }
  }
  return failed;
}
