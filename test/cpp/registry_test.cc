#include "horovod_tf/common/collectives/registry.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

namespace horovod_tf {
namespace {

// Refuses everything if it was given a reason, else takes everything.
class StubBackend final : public CollectiveBackend {
 public:
  StubBackend(std::string name, int score, std::string reason)
      : name_(std::move(name)), score_(score), reason_(std::move(reason)) {}
  std::string_view name() const override { return name_; }
  int score() const override { return score_; }
  Status Supports(const Batch&) const override {
    return reason_.empty() ? Status::Ok() : Status::Unimplemented(reason_);
  }
  Status Run(Batch&, RunContext&) override { return Status::Ok(); }

 private:
  const std::string name_;
  const int score_;
  const std::string reason_;
};

class Registry : public testing::Test {
 protected:
  void Add(const char* name, int score, const char* reason = "") {
    registry_.Add(std::make_unique<StubBackend>(name, score, reason));
  }
  std::string Selected() {
    CollectiveBackend* backend = nullptr;
    const Status status = registry_.Select(batch_, &backend);
    return status.ok() ? std::string(backend->name()) : status.ToString();
  }

  BackendRegistry registry_;
  Batch batch_;
};

TEST_F(Registry, SeveralSupportTheBatch_HighestScoreWins) {
  Add("middle", 5);
  Add("high", 9);
  Add("low", 1);
  EXPECT_EQ(Selected(), "high");
}

TEST_F(Registry, EqualScores_FirstRegisteredWins) {
  Add("other", 1);
  Add("first", 5);
  Add("second", 5);
  EXPECT_EQ(Selected(), "first");
}

TEST_F(Registry, TheBestRefuses_TheNextIsAsked) {
  Add("middle", 5);
  Add("high", 9, "too high");
  Add("low", 1);
  EXPECT_EQ(Selected(), "middle");
}

TEST_F(Registry, AllRefuse_TheErrorNamesTheBatchAndEveryReason) {
  Add("mpi", 1, "moves tensors on CPU only");
  Add("local", 9, "the ranks are on two hosts");
  batch_.device = 0;
  EXPECT_EQ(Selected(),
            "Unimplemented: no backend can run allreduce of float32 on GPU 0: "
            "local: the ranks are on two hosts; mpi: moves tensors on CPU only");
}

TEST_F(Registry, NoBackends_TheErrorSaysSo) {
  batch_.kind = CollectiveKind::kBroadcast;
  batch_.dtype = DataType::kBool;
  EXPECT_EQ(Selected(),
            "Unimplemented: no backend can run broadcast of bool on CPU: none is registered");
}

TEST_F(Registry, SelectionFails_BackendIsLeftAlone) {
  CollectiveBackend* backend = nullptr;
  EXPECT_EQ(registry_.Select(batch_, &backend).code(), StatusCode::kUnimplemented);
  EXPECT_EQ(backend, nullptr);
}

}  // namespace
}  // namespace horovod_tf
