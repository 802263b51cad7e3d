// BackendRegistry: the backends of one runtime, best first.
#ifndef HOROVOD_TF_COMMON_COLLECTIVES_REGISTRY_H_
#define HOROVOD_TF_COMMON_COLLECTIVES_REGISTRY_H_

#include <memory>
#include <vector>

#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/collectives/collective_backend.h"

namespace horovod_tf {

// Thread rule: filled before the runtime starts, then for the background thread.
class BackendRegistry {
 public:
  void Add(std::unique_ptr<CollectiveBackend> backend);
  // The first backend that supports the batch. If none does: Unimplemented with the batch and every
  // backend's reason.
  Status Select(const Batch& batch, CollectiveBackend** backend) const;

 private:
  std::vector<std::unique_ptr<CollectiveBackend>> backends_;  // by falling score
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_COLLECTIVES_REGISTRY_H_
