#include "horovod_tf/common/collectives/registry.h"

#include <algorithm>
#include <string>
#include <utility>

#include "horovod_tf/common/base/check.h"

namespace horovod_tf {

void BackendRegistry::Add(std::unique_ptr<CollectiveBackend> backend) {
  HVD_CHECK(backend != nullptr, "a backend that does not exist");
  const int score = backend->score();
  const auto lower = std::find_if(backends_.begin(), backends_.end(),
                                  [score](const auto& other) { return other->score() < score; });
  backends_.insert(lower, std::move(backend));
}

Status BackendRegistry::Select(const Batch& batch, CollectiveBackend** backend) const {
  std::string reasons;
  for (const auto& candidate : backends_) {
    const Status supported = candidate->Supports(batch);
    if (supported.ok()) {
      *backend = candidate.get();
      return Status::Ok();
    }
    if (!reasons.empty()) reasons += "; ";
    reasons += std::string(candidate->name()) + ": " + supported.message();
  }
  if (reasons.empty()) reasons = "none is registered";
  return Status::Unimplemented("no backend can run " + std::string(Info(batch.kind).name) + " of " +
                               std::string(Info(batch.dtype).name) + " on " +
                               DeviceName(batch.device) + ": " + reasons);
}

}  // namespace horovod_tf
