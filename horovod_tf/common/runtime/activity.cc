#include "horovod_tf/common/runtime/activity.h"

namespace horovod_tf {

void Activity::NoteExecuted(const std::vector<const TensorDefinition*>& batch, TimePoint now) {
  executed_ += batch.size();
  name_ = batch.back()->common.name;
  kind_ = batch.back()->common.kind;
  when_ = now;
}

Report Activity::MakeReport(TimePoint now) const {
  Report report;
  report.executed = executed_;
  if (executed_ > 0) report.last = std::string(Info(kind_).name) + " of '" + name_ + "'";
  report.milliseconds = Milliseconds(now - when_);
  return report;
}

}  // namespace horovod_tf
