#include "horovod_tf/common/protocol/request_checks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace horovod_tf {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

// Four ranks that agree; of a gather each brings other rows.
std::vector<Request> Agreeing(CollectiveKind kind) {
  std::vector<Request> requests(4);
  for (std::size_t rank = 0; rank < requests.size(); ++rank) {
    requests[rank].name = "x/y:0";
    requests[rank].kind = kind;
    requests[rank].shape = {2, 3, 4};
    if (Info(kind).gathers_rows) {
      requests[rank].shape.set_dim(0, static_cast<std::int64_t>(rank) + 5);
    }
    if (Info(kind).has_root) requests[rank].root_rank = 1;
    if (Info(kind).splits_rows) {
      requests[rank].splits = {1, 0, static_cast<std::int64_t>(rank), 4};
      requests[rank].shape.set_dim(0, static_cast<std::int64_t>(rank) + 5);
    }
  }
  return requests;
}

// What is wrong when rank 2 of four is changed. The text must hold each of `parts`.
template <typename Change>
void ExpectMismatch(CollectiveKind kind, Change change, const std::vector<std::string>& parts) {
  std::vector<Request> requests = Agreeing(kind);
  ASSERT_TRUE(CheckRequests(requests).ok());
  change(&requests[2]);
  const Status status = CheckRequests(requests);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  for (const std::string& part : parts) {
    EXPECT_NE(status.message().find(part), std::string::npos) << part << " not in: " << status;
  }
  EXPECT_NE(status.message().find("'x/y:0'"), std::string::npos) << status;
}

TEST(RequestChecks, AgreeingRanks_Pass) {
  for (const CollectiveKindInfo& info : CollectiveKinds()) {
    EXPECT_TRUE(CheckRequests(Agreeing(info.kind)).ok()) << info.name;
    EXPECT_TRUE(CheckRequests({Agreeing(info.kind)[0]}).ok()) << info.name;
  }
}

TEST(RequestChecks, DataTypes_MustBeEqual) {
  for (const CollectiveKindInfo& info : CollectiveKinds()) {
    ExpectMismatch(info.kind, [](Request* r) { r->dtype = DataType::kInt64; },
                   {"Mismatched data types", "rank 0 has float32", "rank 2 has int64"});
  }
}

TEST(RequestChecks, Kinds_MustBeEqual) {
  ExpectMismatch(CollectiveKind::kAllreduce,
                 [](Request* r) { r->kind = CollectiveKind::kAllgather; },
                 {"Mismatched operations: rank 0 did an ALLREDUCE on tensor 'x/y:0', but rank 2 "
                  "did an ALLGATHER"});
  ExpectMismatch(CollectiveKind::kBroadcast,
                 [](Request* r) { r->kind = CollectiveKind::kAllreduce; },
                 {"rank 0 did a BROADCAST", "rank 2 did an ALLREDUCE"});
}

TEST(RequestChecks, ShapesOfAllreduceAndBroadcast_MustBeEqual) {
  ExpectMismatch(CollectiveKind::kAllreduce,
                 [](Request* r) {
                   r->shape = {2, 3, 5};
                 },
                 {"Mismatched ALLREDUCE tensor shapes", "rank 0 has shape [2, 3, 4]",
                  "rank 2 has shape [2, 3, 5]"});
  ExpectMismatch(CollectiveKind::kBroadcast, [](Request* r) { r->shape = {24}; },
                 {"Mismatched BROADCAST tensor shapes", "[2, 3, 4]", "rank 2 has shape [24]"});
  ExpectMismatch(CollectiveKind::kAllreduce, [](Request* r) { r->shape = {}; },
                 {"[2, 3, 4]", "shape []"});
}

TEST(RequestChecks, ReduceOperations_MustBeEqual) {
  ExpectMismatch(CollectiveKind::kAllreduce, [](Request* r) { r->reduce_op = ReduceOp::kMax; },
                 {"Mismatched reduction operations", "rank 0 has Sum", "rank 2 has Max"});
}

TEST(RequestChecks, Factors_MustBeEqualToTheLastBit) {
  ExpectMismatch(
      CollectiveKind::kAllreduce, [](Request* r) { r->prescale = 0.5; },
      {"Mismatched prescale and/or postscale factors", "rank 0 has prescale 1 and postscale 1",
       "rank 2 has prescale 0.5 and postscale 1"});
  ExpectMismatch(CollectiveKind::kAllreduce,
                 [](Request* r) { r->postscale = std::nextafter(1.0, 2.0); },
                 {"rank 2 has prescale 1 and postscale 1.0000000000000002"});
}

TEST(RequestChecks, Reducescatter_IsCheckedLikeAllreduceAndNeedsRows) {
  const auto kind = CollectiveKind::kReducescatter;
  ExpectMismatch(kind, [](Request* r) { r->shape.set_dim(0, 3); },
                 {"Mismatched REDUCESCATTER tensor shapes", "[2, 3, 4]", "[3, 3, 4]"});
  ExpectMismatch(kind, [](Request* r) { r->reduce_op = ReduceOp::kMax; },
                 {"Mismatched reduction operations"});
  ExpectMismatch(kind, [](Request* r) { r->postscale = 2; },
                 {"Mismatched prescale and/or postscale factors"});
  std::vector<Request> scalars = Agreeing(kind);
  for (Request& request : scalars) request.shape = {};
  EXPECT_EQ(CheckRequests(scalars).code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(
      CheckRequests(scalars).message().find("Rank 0 tried to REDUCESCATTER a rank-zero tensor"),
      std::string::npos);
}

TEST(RequestChecks, AlltoallRows_MayDifferAndNothingElse) {
  const auto kind = CollectiveKind::kAlltoall;
  ExpectMismatch(kind,
                 [](Request* r) {
                   r->shape = {};
                   r->splits.clear();
                 },
                 {"Rank 2 tried to ALLTOALL a rank-zero tensor"});
  ExpectMismatch(kind,
                 [](Request* r) {
                   r->shape = {7, 3};
                 },
                 {"Mismatched ALLTOALL tensor shapes", "2 as the number of dimensions"});
  ExpectMismatch(kind,
                 [](Request* r) {
                   r->shape = {7, 3, 5};
                 },
                 {"Mismatched ALLTOALL tensor shapes, dimension 2", "rank 2 has 5"});
  ExpectMismatch(kind, [](Request* r) { r->splits = {7}; },
                 {"Mismatched ALLTOALL splits", "rank 0 has 4 entries", "rank 2 has 1 entries"});
}

TEST(RequestChecks, AlltoallTooLargeForOneRank_IsRefused) {
  std::vector<Request> requests = Agreeing(CollectiveKind::kAlltoall);
  for (Request& request : requests) {
    request.shape = {kLargest / 8};
    request.splits = {0, kLargest / 8, 0, 0};
  }
  EXPECT_EQ(CheckRequests(requests).code(), StatusCode::kFailedPrecondition);
}

// The ranks that are there may be too many for one that comes behind an absent one.
TEST(RequestChecks, AlltoallTooLargeForTheLastRank_IsRefusedWithoutAbsentRanksToo) {
  std::vector<Request> requests = Agreeing(CollectiveKind::kAlltoall);
  for (Request& request : requests) {
    request.shape = {kLargest, 0};
    request.splits = {0, 0, 0, kLargest};
  }
  TensorDefinition definition;
  const Status status = AgreeWithout({0}, requests, &definition);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(status.message().find("'x/y:0'"), std::string::npos) << status;
}

TEST(RequestChecks, ReduceOperationAndFactors_DoNotMatterElsewhere) {
  for (const CollectiveKind kind :
       {CollectiveKind::kAllgather, CollectiveKind::kBroadcast, CollectiveKind::kAlltoall}) {
    std::vector<Request> requests = Agreeing(kind);
    requests[1].reduce_op = ReduceOp::kMin;
    requests[3].postscale = 0.25;
    EXPECT_TRUE(CheckRequests(requests).ok());
  }
}

TEST(RequestChecks, AllgatherOfAScalar_NamesTheRank) {
  ExpectMismatch(CollectiveKind::kAllgather, [](Request* r) { r->shape = {}; },
                 {"Rank 2 tried to ALLGATHER a rank-zero tensor"});
  std::vector<Request> scalars = Agreeing(CollectiveKind::kAllgather);
  for (Request& request : scalars) request.shape = {};
  EXPECT_NE(CheckRequests(scalars).message().find("Rank 0 tried to ALLGATHER a rank-zero tensor"),
            std::string::npos);
}

TEST(RequestChecks, AllgatherDimensions_MustBeAsMany) {
  ExpectMismatch(CollectiveKind::kAllgather,
                 [](Request* r) {
                   r->shape = {7, 3};
                 },
                 {"Mismatched ALLGATHER tensor shapes", "rank 0 has 3 as the number of dimensions",
                  "rank 2 has 2 as the number of dimensions", "[7, 3]"});
}

TEST(RequestChecks, AllgatherDimensionsFromOneOn_MustBeEqual) {
  ExpectMismatch(CollectiveKind::kAllgather,
                 [](Request* r) {
                   r->shape = {7, 9, 4};
                 },
                 {"Mismatched ALLGATHER tensor shapes, dimension 1", "rank 0 has 3", "rank 2 has 9",
                  "[7, 9, 4]"});
  ExpectMismatch(CollectiveKind::kAllgather,
                 [](Request* r) {
                   r->shape = {7, 3, 8};
                 },
                 {"dimension 2", "rank 0 has 4", "rank 2 has 8"});
}

TEST(RequestChecks, AllgatherRows_MayDifferAndBeNone) {
  std::vector<Request> requests = Agreeing(CollectiveKind::kAllgather);
  requests[1].shape.set_dim(0, 0);
  EXPECT_TRUE(CheckRequests(requests).ok());
}

TEST(RequestChecks, AllgatherTooLargeInAll_IsRefused) {
  std::vector<Request> requests = Agreeing(CollectiveKind::kAllgather);
  for (Request& request : requests) request.shape = {kLargest / 8};
  const Status status = CheckRequests(requests);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("'x/y:0'"), std::string::npos);
  for (Request& request : requests) request.shape = {kLargest, 0};
  EXPECT_EQ(CheckRequests(requests).code(), StatusCode::kFailedPrecondition);
}

TEST(RequestChecks, BroadcastRoots_MustBeEqual) {
  ExpectMismatch(
      CollectiveKind::kBroadcast, [](Request* r) { r->root_rank = 3; },
      {"Mismatched BROADCAST root ranks", "rank 0 has root rank 1", "rank 2 has root rank 3"});
}

TEST(RequestChecks, CpuAndGpu_DoNotMix) {
  for (const CollectiveKindInfo& info : CollectiveKinds()) {
    ExpectMismatch(info.kind, [](Request* r) { r->device = 3; },
                   {"Mismatched " + std::string(info.label) + " CPU/GPU device selection",
                    "rank 0 has CPU", "rank 2 has GPU 3"});
  }
}

TEST(RequestChecks, GpuNumbers_MayDiffer) {
  std::vector<Request> requests = Agreeing(CollectiveKind::kAllreduce);
  for (std::size_t rank = 0; rank < requests.size(); ++rank) {
    requests[rank].device = static_cast<int>(7 - rank);
  }
  EXPECT_TRUE(CheckRequests(requests).ok());
}

TEST(RequestChecks, SeveralMismatches_ReportTheFirstOfTheTable) {
  // Undone one by one in the table's order; each time the next check must be the one that speaks.
  std::vector<Request> requests = Agreeing(CollectiveKind::kAllreduce);
  Request& other = requests[3];
  const Request good = other;
  other.dtype = DataType::kInt32;
  other.kind = CollectiveKind::kBroadcast;
  other.shape = {9};
  other.reduce_op = ReduceOp::kProduct;
  other.prescale = 2.0;
  other.device = 0;
  const auto says = [&](const std::string& text) {
    EXPECT_EQ(CheckRequests(requests).message().rfind(text, 0), 0u)
        << text << ": " << CheckRequests(requests);
  };
  says("Mismatched data types");
  other.dtype = good.dtype;
  says("Mismatched operations");
  other.kind = good.kind;
  says("Mismatched ALLREDUCE tensor shapes");
  other.shape = good.shape;
  says("Mismatched reduction operations");
  other.reduce_op = good.reduce_op;
  says("Mismatched prescale and/or postscale factors");
  other.prescale = good.prescale;
  says("Mismatched ALLREDUCE CPU/GPU device selection");
  other.device = good.device;
  EXPECT_TRUE(CheckRequests(requests).ok());
}

TEST(RequestChecks, SeveralRanksThatDiffer_NameTheFirst) {
  std::vector<Request> requests = Agreeing(CollectiveKind::kAllreduce);
  requests[1].dtype = DataType::kInt8;
  requests[3].dtype = DataType::kUInt8;
  EXPECT_NE(CheckRequests(requests).message().find("rank 1 has int8"), std::string::npos);
}

TEST(Define, EveryRanksRequest_ComesBackOutOfTheDefinition) {
  for (const CollectiveKindInfo& info : CollectiveKinds()) {
    for (const bool gpu : {false, true}) {
      std::vector<Request> requests = Agreeing(info.kind);
      for (std::size_t rank = 0; rank < requests.size(); ++rank) {
        requests[rank].device = gpu ? static_cast<int>(rank) * 2 : kCpuDevice;
      }
      const TensorDefinition definition = Define(requests);
      EXPECT_EQ(definition.first_dims.size(), info.gathers_rows ? 4u : 0u);
      EXPECT_EQ(definition.splits.size(), info.splits_rows ? 4u : 0u);
      EXPECT_EQ(definition.devices.size(), gpu ? 4u : 0u);
      for (std::size_t rank = 0; rank < requests.size(); ++rank) {
        EXPECT_EQ(definition.RequestOf(static_cast<int>(rank)), requests[rank]) << info.name;
      }
    }
  }
}

TEST(Define, Bytes_AreOfTheInputOrOfTheGatheredOutput) {
  EXPECT_EQ(Define(Agreeing(CollectiveKind::kAllreduce)).bytes(), 2 * 3 * 4 * 4);
  EXPECT_EQ(Define(Agreeing(CollectiveKind::kBroadcast)).bytes(), 2 * 3 * 4 * 4);
  EXPECT_EQ(Define(Agreeing(CollectiveKind::kAllgather)).bytes(), (5 + 6 + 7 + 8) * 3 * 4 * 4);
  EXPECT_EQ(Define(Agreeing(CollectiveKind::kAlltoall)).bytes(), 8 * 3 * 4 * 4);
  EXPECT_EQ(Define(Agreeing(CollectiveKind::kReducescatter)).bytes(), 2 * 3 * 4 * 4);
}

}  // namespace
}  // namespace horovod_tf
