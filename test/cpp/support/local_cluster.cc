#include "test/cpp/support/local_cluster.h"

#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "horovod_tf/common/collectives/local_backend.h"
#include "horovod_tf/common/transport/local_transport.h"

namespace horovod_tf {
namespace {

std::int64_t Salt(const std::string& name) {
  std::int64_t salt = 7;
  for (const char c : name) salt = (salt * 31 + static_cast<unsigned char>(c)) % 101;
  return salt;
}

template <typename T>
void StoreAs(void* data, std::size_t index, std::int64_t value) {
  const T typed = static_cast<T>(value);
  std::memcpy(static_cast<char*>(data) + index * sizeof(T), &typed, sizeof(T));
}

template <typename T>
std::int64_t LoadAs(const void* data, std::size_t index) {
  T typed;
  std::memcpy(&typed, static_cast<const char*>(data) + index * sizeof(T), sizeof(T));
  return static_cast<std::int64_t>(typed);
}

void Store(DataType dtype, void* data, std::size_t index, std::int64_t value) {
  switch (dtype) {
    case DataType::kInt32:
      return StoreAs<std::int32_t>(data, index, value);
    case DataType::kInt64:
      return StoreAs<std::int64_t>(data, index, value);
    default:
      return StoreAs<float>(data, index, value);
  }
}

std::int64_t Load(DataType dtype, const void* data, std::size_t index) {
  switch (dtype) {
    case DataType::kInt32:
      return LoadAs<std::int32_t>(data, index);
    case DataType::kInt64:
      return LoadAs<std::int64_t>(data, index);
    default:
      return LoadAs<float>(data, index);
  }
}

std::vector<double> Buffer(std::int64_t elements) {
  return std::vector<double>(static_cast<std::size_t>(elements), -1.0);
}

}  // namespace

TimePoint TestDeadline() { return AfterDelay(Clock::Real().Now(), FromSeconds(kTestSeconds)); }

std::int64_t ValueOf(const std::string& name, int rank, std::int64_t index) {
  return (rank + 1) * (index % 97 + 1) * 100 + Salt(name);
}

std::int64_t RowsOf(const std::string& name, int rank) { return (Salt(name) + rank) % 3; }

TestTensor::TestTensor(const TestSpec& spec, int rank, int size)
    : spec_(spec), rank_(rank), size_(size), output_shape_(ShapeOn(rank)) {
  const std::int64_t elements = ShapeOn(rank).elements();
  input_ = Buffer(elements);
  output_ = Buffer(elements);
  for (std::int64_t i = 0; i < elements; ++i) {
    Store(spec_.dtype, input_.data(), static_cast<std::size_t>(i), ValueOf(spec_.name, rank, i));
  }
}

TensorShape TestTensor::ShapeOn(int rank) const {
  if (spec_.scalar) return TensorShape();
  if (!Info(spec_.kind).rows_differ()) return TensorShape{spec_.elements};
  if (spec_.kind == CollectiveKind::kAllgather) {
    return TensorShape{RowsOf(spec_.name, rank), spec_.columns};
  }
  const std::vector<std::int64_t> splits = SplitsOn(rank);
  return TensorShape{std::accumulate(splits.begin(), splits.end(), std::int64_t{0}), spec_.columns};
}

std::vector<std::int64_t> TestTensor::SplitsOn(int rank) const {
  std::vector<std::int64_t> splits;
  for (int to = 0; to < size_; ++to) splits.push_back(RowsOf(spec_.name, rank + to));
  return splits;
}

TensorEntry TestTensor::Entry(std::function<void(const Status&)> then) {
  TensorEntry entry;
  entry.request.name = spec_.name;
  entry.request.kind = spec_.kind;
  entry.request.dtype = spec_.dtype;
  entry.request.root_rank = spec_.root;
  entry.request.shape = ShapeOn(rank_);
  if (Info(spec_.kind).splits_rows && !spec_.scalar) entry.request.splits = SplitsOn(rank_);
  entry.input = {spec_.dtype, entry.request.shape, input_.data()};
  if (!Info(spec_.kind).changes_rows) {
    entry.output = {spec_.dtype, entry.request.shape, output_.data()};
  }
  entry.context = shared_from_this();
  entry.done =
      Completion([self = shared_from_this(), then = std::move(then)](const Status& status) {
        if (then) then(status);
        self->Finished(status);
      });
  return entry;
}

Status TestTensor::TakeReceivedRows(const std::vector<std::int64_t>& rows) {
  received_ = rows;
  return Status::Ok();
}

Status TestTensor::AllocateOutput(const TensorShape& shape, TensorView* output) {
  output_ = Buffer(shape.elements());
  output_shape_ = shape;
  *output = {spec_.dtype, shape, output_.data()};
  return Status::Ok();
}

void TestTensor::Finished(const Status& status) {
  MutexLock lock(mutex_);
  ++calls_;
  status_ = status;
  changed_.NotifyAll();
}

bool TestTensor::Wait(TimePoint deadline) const {
  MutexLock lock(mutex_);
  while (calls_ == 0) {
    if (Clock::Real().Now() >= deadline) return false;
    changed_.WaitUntil(mutex_, deadline);
  }
  return true;
}

int TestTensor::calls() const {
  MutexLock lock(mutex_);
  return calls_;
}

Status TestTensor::status() const {
  MutexLock lock(mutex_);
  return status_;
}

std::vector<std::int64_t> TestTensor::Expected() const {
  std::vector<std::int64_t> expected;
  const auto append_some = [&](int rank, std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i) {
      expected.push_back(ValueOf(spec_.name, rank, i));
    }
  };
  const auto append = [&](int rank) { append_some(rank, 0, ShapeOn(rank).elements()); };
  // Element i of the sum of (rank + 1) * a + salt over all ranks.
  const auto sum = [&](std::int64_t i) {
    return size_ * (size_ + 1) / 2 * (i % 97 + 1) * 100 + size_ * Salt(spec_.name);
  };
  switch (spec_.kind) {
    case CollectiveKind::kAllreduce:
      for (std::int64_t i = 0; i < ShapeOn(rank_).elements(); ++i) expected.push_back(sum(i));
      break;
    case CollectiveKind::kReducescatter:
      for (std::int64_t i = 0; i < RowsOfShare(spec_.elements, rank_, size_); ++i) {
        expected.push_back(sum(BeginOfShare(spec_.elements, rank_, size_) + i));
      }
      break;
    case CollectiveKind::kAlltoall:
      for (int rank = 0; rank < size_; ++rank) {
        const std::vector<std::int64_t> splits = SplitsOn(rank);
        const auto own = splits.begin() + rank_;
        append_some(rank, std::accumulate(splits.begin(), own, std::int64_t{0}) * spec_.columns,
                    *own * spec_.columns);
      }
      break;
    case CollectiveKind::kAllgather:
      for (int rank = 0; rank < size_; ++rank) append(rank);
      break;
    case CollectiveKind::kBroadcast:
      append(spec_.root);
      break;
  }
  return expected;
}

::testing::AssertionResult TestTensor::Correct() const {
  const auto wrong = [&] {
    return ::testing::AssertionFailure() << spec_.name << " on rank " << rank_ << " of " << size_;
  };
  if (calls() != 1) return wrong() << ": called back " << calls() << " times";
  if (!status().ok()) return wrong() << ": " << status();
  const std::vector<std::int64_t> expected = Expected();
  if (output_shape_.elements() != static_cast<std::int64_t>(expected.size())) {
    return wrong() << ": output has shape " << output_shape_.ToString();
  }
  for (std::size_t rank = 0; rank < received_.size(); ++rank) {
    if (received_[rank] == SplitsOn(static_cast<int>(rank))[static_cast<std::size_t>(rank_)]) {
      continue;
    }
    return wrong() << ": told that " << received_[rank] << " rows are of rank " << rank;
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::int64_t value = Load(spec_.dtype, output_.data(), i);
    if (value != expected[i]) {
      return wrong() << ": element " << i << " is " << value << ", not " << expected[i];
    }
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult TestTensor::FailedWith(const std::string& part) const {
  const Status ended = status();
  if (calls() == 1 && !ended.ok() && ended.message().find(part) != std::string::npos) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure()
         << spec_.name << " on rank " << rank_ << " of " << size_ << ": called back " << calls()
         << " times, with " << ended << "; expected an error with '" << part << "'";
}

std::vector<TensorEntry> Group(TensorEntry entry) {
  std::vector<TensorEntry> group;
  group.push_back(std::move(entry));
  return group;
}

TestTensorPtr Submit(Runtime& runtime, const TestSpec& spec, int rank, int size) {
  auto tensor = std::make_shared<TestTensor>(spec, rank, size);
  runtime.Enqueue(Group(tensor->Entry()));
  return tensor;
}

Config TestConfig() {
  Config config = Config::Defaults();
  config.log_level = LogLevel::kError;
  config.init_timeout = FromSeconds(kTestSeconds);
  config.shutdown_timeout = FromSeconds(kTestSeconds);
  return config;
}

std::vector<std::string> OneHost(int ranks) {
  return std::vector<std::string>(static_cast<std::size_t>(ranks), "host-a");
}

void OnEveryRank(int ranks, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

LocalCluster::LocalCluster(const ClusterOptions& options) {
  std::vector<std::unique_ptr<Transport>> transports = MakeLocalTransports(options.hosts);
  const auto meeting = MakeLocalMeeting(static_cast<int>(options.hosts.size()));
  for (std::size_t i = 0; i < transports.size(); ++i) {
    const int rank = static_cast<int>(i);
    RuntimeOptions runtime;
    runtime.config = options.config;
    runtime.transport =
        options.wrap ? options.wrap(rank, std::move(transports[i])) : std::move(transports[i]);
    runtime.backends.Add(MakeLocalBackend(rank, meeting));
    if (options.customize) options.customize(rank, &runtime);
    runtimes_.push_back(std::make_unique<Runtime>(std::move(runtime)));
  }
}

LocalCluster::~LocalCluster() { (void)Stop(); }

std::vector<Status> LocalCluster::Start() {
  std::vector<Status> statuses(runtimes_.size());
  OnEveryRank(size(), [&](int r) { statuses[static_cast<std::size_t>(r)] = rank(r).Start(); });
  return statuses;
}

::testing::AssertionResult LocalCluster::Started() {
  for (const Status& status : Start()) {
    if (!status.ok()) return ::testing::AssertionFailure() << status;
  }
  return ::testing::AssertionSuccess();
}

std::vector<Status> LocalCluster::Stop(const std::string& reason) {
  std::vector<Status> statuses(runtimes_.size());
  OnEveryRank(size(), [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    if (runtimes_[i] != nullptr) statuses[i] = runtimes_[i]->Stop(reason);
  });
  return statuses;
}

std::vector<TestTensorPtr> LocalCluster::SubmitOnAll(const TestSpec& spec) {
  std::vector<TestTensorPtr> tensors;
  for (int r = 0; r < size(); ++r) tensors.push_back(Submit(rank(r), spec, r, size()));
  return tensors;
}

::testing::AssertionResult LocalCluster::Works(const TestSpec& spec) {
  for (const TestTensorPtr& tensor : SubmitOnAll(spec)) {
    if (!tensor->Wait()) return ::testing::AssertionFailure() << spec.name << " hangs";
    const ::testing::AssertionResult result = tensor->Correct();
    if (!result) return result;
  }
  return ::testing::AssertionSuccess();
}

}  // namespace horovod_tf
