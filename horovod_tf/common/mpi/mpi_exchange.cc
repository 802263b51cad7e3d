#include "horovod_tf/common/mpi/mpi_exchange.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "horovod_tf/common/mpi/mpi_error.h"

namespace horovod_tf {
namespace {

constexpr auto kBetweenLooks = std::chrono::microseconds(100);

// Thread rule: as RankExchange.
class MpiExchange final : public RankExchange {
 public:
  MpiExchange(std::shared_ptr<MpiWorld> world, Duration timeout)
      : world_(std::move(world)), timeout_(timeout) {}

  int rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }
  Status Gather(const std::string& mine, std::vector<std::string>* all) override;

 private:
  struct Buffers {
    int length = 0;
    std::vector<int> lengths;
    std::vector<char> own;
    std::vector<char> fields;
  };

  Status Finish(MPI_Request request, std::unique_ptr<Buffers>* buffers);

  const std::shared_ptr<MpiWorld> world_;
  const Duration timeout_;
};

// Lengths first; then everybody's bytes in fields as long as the longest. On the communicator of
// tensors, where nothing else moves yet.
Status MpiExchange::Gather(const std::string& mine, std::vector<std::string>* all) {
  const auto ranks = static_cast<std::size_t>(size());
  auto buffers = std::make_unique<Buffers>();
  buffers->length = static_cast<int>(mine.size());
  buffers->lengths.resize(ranks);
  MPI_Request request = MPI_REQUEST_NULL;
  HVD_MPI_RETURN_IF_ERROR(MPI_Iallgather, &buffers->length, 1, MPI_INT, buffers->lengths.data(), 1,
                          MPI_INT, world_->data(), &request);
  HVD_RETURN_IF_ERROR(Finish(request, &buffers));
  const int field = *std::max_element(buffers->lengths.begin(), buffers->lengths.end());
  const auto field_bytes = static_cast<std::size_t>(field);
  buffers->own.assign(mine.begin(), mine.end());
  buffers->own.resize(field_bytes);
  buffers->fields.resize(field_bytes * ranks);
  HVD_MPI_RETURN_IF_ERROR(MPI_Iallgather, buffers->own.data(), field, MPI_BYTE,
                          buffers->fields.data(), field, MPI_BYTE, world_->data(), &request);
  HVD_RETURN_IF_ERROR(Finish(request, &buffers));
  all->clear();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    all->emplace_back(buffers->fields.data() + rank * field_bytes,
                      static_cast<std::size_t>(buffers->lengths[rank]));
  }
  return Status::Ok();
}

Status MpiExchange::Finish(MPI_Request request, std::unique_ptr<Buffers>* buffers) {
  const TimePoint deadline = AfterDelay(Clock::Real().Now(), timeout_);
  while (true) {
    int done = 0;
    HVD_MPI_RETURN_IF_ERROR(MPI_Test, &request, &done, MPI_STATUS_IGNORE);
    if (done != 0) return Status::Ok();
    if (Clock::Real().Now() >= deadline) break;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  world_->MarkFailed();
  // MPI may still use them: they are left, where they are, to the process's end.
  static_cast<void>(buffers->release());
  return Status::DeadlineExceeded(
      "not all ranks took part in hvd.init() to its end; look at the "
      "output of the others");
}

}  // namespace

std::unique_ptr<RankExchange> MakeMpiExchange(std::shared_ptr<MpiWorld> world, Duration timeout) {
  return std::make_unique<MpiExchange>(std::move(world), timeout);
}

}  // namespace horovod_tf
