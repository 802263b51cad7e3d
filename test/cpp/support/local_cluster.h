// LocalCluster: N ranks as N runtimes in one process, on LocalTransport and LocalBackend, with
// invented hosts; and test tensors whose results have a closed form.
#ifndef HOROVOD_TF_TEST_CPP_SUPPORT_LOCAL_CLUSTER_H_
#define HOROVOD_TF_TEST_CPP_SUPPORT_LOCAL_CLUSTER_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "horovod_tf/common/base/mutex.h"
#include "horovod_tf/common/runtime/runtime.h"

namespace horovod_tf {

// Every wait of the tests ends here at the latest; far above what a loaded machine needs.
inline constexpr double kTestSeconds = 30;
TimePoint TestDeadline();

// One tensor that every rank submits. Element i on a rank is ValueOf(name, rank, i): different for
// every rank and index, small enough to be exact in every type used.
struct TestSpec {
  std::string name;
  CollectiveKind kind = CollectiveKind::kAllreduce;
  DataType dtype = DataType::kFloat32;  // int32, int64 or float32
  std::int64_t elements = 5;            // reductions and broadcast: a vector of so many
  int root = 0;                         // broadcast
  std::int64_t columns = 2;             // allgather: RowsOf(name, rank) rows of so many; alltoall:
                                        // RowsOf(name, rank + r) for each rank r
  bool scalar = false;                  // a shape without dimensions instead
};
std::int64_t ValueOf(const std::string& name, int rank, std::int64_t index);
std::int64_t RowsOf(const std::string& name, int rank);  // 0, 1 or 2

// One rank's submission of a spec: its buffers, and how it ended.
//
// Thread rule: any thread; the buffers belong to the runtime until Wait has returned true.
class TestTensor final : public OpContext, public std::enable_shared_from_this<TestTensor> {
 public:
  // To be held by a shared pointer.
  TestTensor(const TestSpec& spec, int rank, int size);

  // To be given to a runtime. `then` runs inside the callback, before the end is noted, so that
  // Wait waits for it too.
  TensorEntry Entry(std::function<void(const Status&)> then = nullptr);

  bool Wait(TimePoint deadline = TestDeadline()) const;
  int calls() const;
  Status status() const;  // of the last call
  // Whether it has ended well, once, with the right output.
  ::testing::AssertionResult Correct() const;
  // Whether it has ended badly, once, with a text that has `part`.
  ::testing::AssertionResult FailedWith(const std::string& part) const;

  Status TakeReceivedRows(const std::vector<std::int64_t>& rows) override;
  Status AllocateOutput(const TensorShape& shape, TensorView* output) override;

 private:
  void Finished(const Status& status);
  std::vector<std::int64_t> Expected() const;
  TensorShape ShapeOn(int rank) const;
  std::vector<std::int64_t> SplitsOn(int rank) const;

  const TestSpec spec_;
  const int rank_;
  const int size_;
  std::vector<double> input_;  // doubles for their alignment; filled as the spec's type
  std::vector<double> output_;
  TensorShape output_shape_;
  std::vector<std::int64_t> received_;

  mutable Mutex mutex_;
  mutable CondVar changed_;
  int calls_ HVD_GUARDED_BY(mutex_) = 0;
  Status status_ HVD_GUARDED_BY(mutex_);
};
using TestTensorPtr = std::shared_ptr<TestTensor>;

std::vector<TensorEntry> Group(TensorEntry entry);
// Submits one tensor.
TestTensorPtr Submit(Runtime& runtime, const TestSpec& spec, int rank, int size);

// The defaults, with short deadlines, and silent but for errors.
Config TestConfig();
// So many ranks on one host.
std::vector<std::string> OneHost(int ranks);
// Runs `body` for every rank on a thread of its own and waits for all.
void OnEveryRank(int ranks, const std::function<void(int rank)>& body);

struct ClusterOptions {
  std::vector<std::string> hosts;
  Config config = TestConfig();
  std::function<std::unique_ptr<Transport>(int rank, std::unique_ptr<Transport> inner)> wrap;
  std::function<void(int rank, RuntimeOptions* options)> customize;
};

// Thread rule: built, started and destroyed by one thread; the runtimes are for any thread.
class LocalCluster {
 public:
  explicit LocalCluster(const ClusterOptions& options);
  explicit LocalCluster(int ranks)
      : LocalCluster(ClusterOptions{OneHost(ranks), TestConfig(), {}, {}}) {}
  // Stops all ranks.
  ~LocalCluster();
  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;

  int size() const { return static_cast<int>(runtimes_.size()); }
  Runtime& rank(int rank) { return *runtimes_[static_cast<std::size_t>(rank)]; }

  // All ranks at the same time; one status per rank.
  std::vector<Status> Start();
  ::testing::AssertionResult Started();
  std::vector<Status> Stop(const std::string& reason = "the test is over");
  // That rank's runtime goes away; REQUIRES: it is not used afterwards.
  void Destroy(int rank) { runtimes_[static_cast<std::size_t>(rank)].reset(); }

  // On every rank, in rank order; one tensor per rank.
  std::vector<TestTensorPtr> SubmitOnAll(const TestSpec& spec);
  // Submits on all ranks, waits, and says whether every rank has the right result.
  ::testing::AssertionResult Works(const TestSpec& spec);

 private:
  std::vector<std::unique_ptr<Runtime>> runtimes_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_TEST_CPP_SUPPORT_LOCAL_CLUSTER_H_
