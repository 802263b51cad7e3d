#include "horovod_tf/ops/tensor_names.h"

#include <cstddef>

namespace horovod_tf {
namespace {

using tensorflow::OpKernelConstruction;

// A node of one tensor.
absl::Status NameOf(OpKernelConstruction* construction, std::vector<std::string>* names) {
  std::string name;
  TF_RETURN_IF_ERROR(construction->GetAttr("tensor_name", &name));
  names->assign(1, name.empty() ? construction->def().name() : name);
  return absl::OkStatus();
}

// In the scope of the node as it is called now: what calls a function puts its own name before the
// names of the function's nodes.
absl::Status NamesOfMembers(OpKernelConstruction* construction, std::vector<std::string>* names) {
  TF_RETURN_IF_ERROR(construction->GetAttr("tensor_names", names));
  const std::string& node = construction->def().name();
  const auto count = static_cast<std::size_t>(construction->num_inputs());
  if (names->empty()) {
    for (std::size_t i = 1; i <= count; ++i)
      names->push_back(node + "_" + std::to_string(i) + "of" + std::to_string(count));
    return absl::OkStatus();
  }
  if (names->size() != count) {
    return absl::InvalidArgumentError("tensor_names has " + std::to_string(names->size()) +
                                      " names for " + std::to_string(count) + " tensors");
  }
  const std::string scope = node.substr(0, node.find_last_of('/') + 1);
  for (std::string& name : *names) name.insert(0, scope);
  return absl::OkStatus();
}

}  // namespace

absl::Status NamesOf(OpKernelConstruction* construction, std::vector<std::string>* names) {
  const bool grouped = construction->HasAttr("tensor_names");
  TF_RETURN_IF_ERROR(grouped ? NamesOfMembers(construction, names) : NameOf(construction, names));
  bool ignore_scope = false;
  TF_RETURN_IF_ERROR(construction->GetAttr("ignore_name_scope", &ignore_scope));
  if (!ignore_scope) return absl::OkStatus();
  // npos + 1 is 0: a name without a scope stays whole.
  for (std::string& name : *names) name.erase(0, name.find_last_of('/') + 1);
  return absl::OkStatus();
}

// Outside loops frame and iteration are 0, or not set at all in some executors.
std::string TripOf(const tensorflow::OpKernelContext& context) {
  const auto trip = context.frame_iter();
  if (trip.iter_id < 0 || (trip.frame_id == 0 && trip.iter_id == 0)) return "";
  return "@" + std::to_string(trip.frame_id) + ":" + std::to_string(trip.iter_id);
}

}  // namespace horovod_tf
