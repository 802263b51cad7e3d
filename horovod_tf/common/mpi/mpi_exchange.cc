#include "horovod_tf/common/mpi/mpi_exchange.h"

#include <string>
#include <utility>
#include <vector>

#include "horovod_tf/common/mpi/bounded.h"

namespace horovod_tf {
namespace {

// Thread rule: as RankExchange.
class MpiExchange final : public RankExchange {
 public:
  MpiExchange(std::shared_ptr<MpiWorld> world, TimePoint deadline)
      : world_(std::move(world)), deadline_(deadline) {}

  int rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }

  // On the communicator of tensors, where nothing else moves yet.
  Status Gather(const std::string& mine, std::vector<std::string>* all) override {
    Status status = GatherBefore(deadline_, world_->data(), mine, all);
    if (!status.ok()) world_->MarkFailed();
    return status;
  }

 private:
  const std::shared_ptr<MpiWorld> world_;
  const TimePoint deadline_;
};

}  // namespace

std::unique_ptr<RankExchange> MakeMpiExchange(std::shared_ptr<MpiWorld> world, TimePoint deadline) {
  return std::make_unique<MpiExchange>(std::move(world), deadline);
}

}  // namespace horovod_tf
