#include "horovod_tf/ops/tf_adapter.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace horovod_tf {
namespace {

struct TypeRow {
  tensorflow::DataType theirs;
  DataType ours;
};
constexpr std::array<TypeRow, 11> kTypes = {{
    {tensorflow::DT_UINT8, DataType::kUInt8},
    {tensorflow::DT_INT8, DataType::kInt8},
    {tensorflow::DT_UINT16, DataType::kUInt16},
    {tensorflow::DT_INT16, DataType::kInt16},
    {tensorflow::DT_INT32, DataType::kInt32},
    {tensorflow::DT_INT64, DataType::kInt64},
    {tensorflow::DT_HALF, DataType::kFloat16},
    {tensorflow::DT_FLOAT, DataType::kFloat32},
    {tensorflow::DT_DOUBLE, DataType::kFloat64},
    {tensorflow::DT_BOOL, DataType::kBool},
    {tensorflow::DT_BFLOAT16, DataType::kBFloat16},
}};

}  // namespace

absl::Status ToTensorFlow(const Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.code()), status.message());
}

std::optional<DataType> FromTensorFlow(tensorflow::DataType type) {
  for (const TypeRow& row : kTypes) {
    if (row.theirs == type) return row.ours;
  }
  return std::nullopt;
}

TensorShape FromTensorFlow(const tensorflow::TensorShape& shape) {
  TensorShape ours = TensorShape::OfRank(static_cast<std::size_t>(shape.dims()));
  for (int i = 0; i < shape.dims(); ++i)
    ours.set_dim(static_cast<std::size_t>(i), shape.dim_size(i));
  return ours;
}

TensorView ViewOf(const tensorflow::Tensor& tensor) {
  TensorView view;
  view.dtype = FromTensorFlow(tensor.dtype()).value();
  view.shape = FromTensorFlow(tensor.shape());
  view.data = tensor.data();
  return view;
}

Status KernelOutput::AllocateOutput(const TensorShape& shape, TensorView* output) {
  tensorflow::TensorShape theirs;
  absl::Status status =
      tensorflow::TensorShape::BuildTensorShape({shape.data(), shape.rank()}, &theirs);
  tensorflow::Tensor* tensor = nullptr;
  if (status.ok()) status = context_->allocate_output(0, theirs, &tensor);
  if (!status.ok()) {
    return Status::ResourceExhausted("TensorFlow cannot allocate an output of shape " +
                                     shape.ToString() + ": " + std::string(status.message()));
  }
  *output = ViewOf(*tensor);
  return Status::Ok();
}

}  // namespace horovod_tf
