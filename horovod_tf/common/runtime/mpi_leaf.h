// The border between the core and a library that connects processes by MPI. There is one such
// library for each family of MPIs, because their binary interfaces differ; the core loads the one
// that fits the MPI that is there.
#ifndef HOROVOD_TF_COMMON_RUNTIME_MPI_LEAF_H_
#define HOROVOD_TF_COMMON_RUNTIME_MPI_LEAF_H_

#include <string>

#include "horovod_tf/common/base/config.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/runtime/assemble.h"
#include "horovod_tf/common/version.h"

namespace horovod_tf {

// What the library's one exported function, kMpiLeafFunction, returns.
struct MpiLeaf {
  // First, and plain C, so that a library of any other version can be asked for it.
  const char* interface;
  // Initialises MPI unless somebody has, and joins its ranks.
  Status (*open)(const Config& config, StartProgress& progress, World* world);
  // Finalises MPI if `open` has initialised it and no job has failed. REQUIRES: no world is open.
  Status (*finalize)();
};

inline constexpr char kMpiLeafFunction[] = "horovod_mpi_leaf";
using MpiLeafFunction = const MpiLeaf* (*)();

// Equal in libraries that may be used together. Inline, so that each says what it was built from.
inline std::string MpiLeafInterface() {
  return std::string(kLibraryVersion) + " Config:" + std::to_string(sizeof(Config)) +
         " World:" + std::to_string(sizeof(World)) +
         " StartProgress:" + std::to_string(sizeof(StartProgress)) +
         " string:" + std::to_string(sizeof(std::string));
}

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_MPI_LEAF_H_
