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
constexpr std::array<TypeRow, 15> kTypes = {{
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
    {tensorflow::DT_UINT32, DataType::kUInt32},
    {tensorflow::DT_UINT64, DataType::kUInt64},
    {tensorflow::DT_COMPLEX64, DataType::kComplex64},
    {tensorflow::DT_COMPLEX128, DataType::kComplex128},
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

Status KernelOutput::Allocate(int index, const TensorShape& shape, tensorflow::Tensor** tensor) {
  tensorflow::TensorShape theirs;
  absl::Status status =
      tensorflow::TensorShape::BuildTensorShape({shape.data(), shape.rank()}, &theirs);
  if (status.ok()) status = context_->allocate_output(index, theirs, tensor);
  if (status.ok()) return Status::Ok();
  return Status::ResourceExhausted("TensorFlow cannot allocate an output of shape " +
                                   shape.ToString() + ": " + std::string(status.message()));
}

Status KernelOutput::AllocateOutput(const TensorShape& shape, TensorView* output) {
  tensorflow::Tensor* tensor = nullptr;
  HVD_RETURN_IF_ERROR(Allocate(index_, shape, &tensor));
  *output = ViewOf(*tensor);
  return Status::Ok();
}

// Each number was an int32 where it came from: kernels.cc, AlltoallKernel.
Status KernelOutput::TakeReceivedRows(const std::vector<std::int64_t>& rows) {
  tensorflow::Tensor* tensor = nullptr;
  HVD_RETURN_IF_ERROR(
      Allocate(index_ + 1, TensorShape{static_cast<std::int64_t>(rows.size())}, &tensor));
  auto received = tensor->vec<std::int32_t>();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    received(static_cast<std::int64_t>(i)) = static_cast<std::int32_t>(rows[i]);
  }
  return Status::Ok();
}

}  // namespace horovod_tf
