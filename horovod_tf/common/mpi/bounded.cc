#include "horovod_tf/common/mpi/bounded.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>

#include "horovod_tf/common/mpi/mpi_error.h"

namespace horovod_tf {
namespace {

constexpr auto kFirstPause = std::chrono::microseconds(20);
constexpr auto kLongestPause = std::chrono::milliseconds(1);

// As AwaitBefore; if time is over, what MPI may still use is left, where it is, to the process's
// end.
template <typename Buffers>
Status AwaitOrLeave(TimePoint deadline, MPI_Request* request, std::unique_ptr<Buffers>* buffers) {
  Status status = AwaitBefore(deadline, request);
  if (!status.ok()) static_cast<void>(buffers->release());
  return status;
}

struct GatherBuffers {
  int length = 0;
  std::vector<int> lengths;
  std::vector<char> own;
  std::vector<char> fields;
};

}  // namespace

Status AwaitBefore(TimePoint deadline, const std::function<Status(bool*)>& done) {
  Duration pause = kFirstPause;
  while (true) {
    bool yes = false;
    HVD_RETURN_IF_ERROR(done(&yes));
    if (yes) return Status::Ok();
    if (Clock::Real().Now() >= deadline) return Status::DeadlineExceeded("MPI was given up");
    std::this_thread::sleep_for(pause);
    pause = std::min<Duration>(pause * 2, kLongestPause);
  }
}

Status AwaitBefore(TimePoint deadline, MPI_Request* request) {
  return AwaitBefore(deadline, [request](bool* yes) {
    int done = 0;
    HVD_MPI_RETURN_IF_ERROR(MPI_Test, request, &done, MPI_STATUS_IGNORE);
    *yes = done != 0;
    return Status::Ok();
  });
}

Status LeastBefore(TimePoint deadline, MPI_Comm comm, int mine, int* least) {
  auto value = std::make_unique<int>(mine);
  MPI_Request request = MPI_REQUEST_NULL;
  HVD_MPI_RETURN_IF_ERROR(MPI_Iallreduce, MPI_IN_PLACE, value.get(), 1, MPI_INT, MPI_MIN, comm,
                          &request);
  int* const result = value.get();
  HVD_RETURN_IF_ERROR(AwaitOrLeave(deadline, &request, &value));
  *least = *result;
  return Status::Ok();
}

// Lengths first; then everybody's bytes in fields as long as the longest.
Status GatherBefore(TimePoint deadline, MPI_Comm comm, const std::string& mine,
                    std::vector<std::string>* all) {
  int size = 0;
  HVD_MPI_RETURN_IF_ERROR(MPI_Comm_size, comm, &size);
  const auto ranks = static_cast<std::size_t>(size);
  auto buffers = std::make_unique<GatherBuffers>();
  buffers->length = static_cast<int>(mine.size());
  buffers->lengths.resize(ranks);
  MPI_Request request = MPI_REQUEST_NULL;
  HVD_MPI_RETURN_IF_ERROR(MPI_Iallgather, &buffers->length, 1, MPI_INT, buffers->lengths.data(), 1,
                          MPI_INT, comm, &request);
  HVD_RETURN_IF_ERROR(AwaitOrLeave(deadline, &request, &buffers));
  const int field = *std::max_element(buffers->lengths.begin(), buffers->lengths.end());
  const auto field_bytes = static_cast<std::size_t>(field);
  buffers->own.assign(mine.begin(), mine.end());
  buffers->own.resize(field_bytes);
  buffers->fields.resize(field_bytes * ranks);
  HVD_MPI_RETURN_IF_ERROR(MPI_Iallgather, buffers->own.data(), field, MPI_BYTE,
                          buffers->fields.data(), field, MPI_BYTE, comm, &request);
  HVD_RETURN_IF_ERROR(AwaitOrLeave(deadline, &request, &buffers));
  all->clear();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    all->emplace_back(buffers->fields.data() + rank * field_bytes,
                      static_cast<std::size_t>(buffers->lengths[rank]));
  }
  return Status::Ok();
}

}  // namespace horovod_tf
