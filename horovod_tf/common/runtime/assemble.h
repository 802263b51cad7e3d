// The one place that knows which transports and backends exist.
#ifndef HOROVOD_TF_COMMON_RUNTIME_ASSEMBLE_H_
#define HOROVOD_TF_COMMON_RUNTIME_ASSEMBLE_H_

#include <memory>

#include "horovod_tf/common/base/config.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/collectives/registry.h"
#include "horovod_tf/common/transport/transport.h"

namespace horovod_tf {

struct World {
  std::unique_ptr<Transport> transport;
  BackendRegistry backends;
  bool mpi_threads_supported = false;
};

// FailedPrecondition if a launcher says that it started several processes and no transport between
// processes is there: running as several worlds of one would train separate models without a word.
Status AssembleWorld(const Config& config, World* world);

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_ASSEMBLE_H_
