#include "horovod_tf/common/mpi/mpi_error.h"

#include <array>
#include <string>

namespace horovod_tf {

Status FromMpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return Status::Ok();
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) length = 0;
  return Status::Unknown(std::string(call) + " failed: " +
                         (length > 0 ? std::string(text.data(), static_cast<std::size_t>(length))
                                     : "MPI error " + std::to_string(code)));
}

}  // namespace horovod_tf
