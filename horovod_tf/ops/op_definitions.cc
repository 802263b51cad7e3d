// The operations as TensorFlow's graphs name them. The types and attributes of the reference system
// are accepted, so that a graph that it saved imports and runs; an attribute that its old graphs
// lack has the default that means what they meant.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace horovod_tf {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

constexpr char kReducedTypes[] =
    "T: {uint8, int8, uint16, int16, uint32, uint64, int32, int64, float16, bfloat16, float32, "
    "float64, complex64, complex128}";
constexpr char kMovedTypes[] =
    "T: {uint8, int8, uint16, int16, uint32, uint64, int32, int64, float16, bfloat16, float32, "
    "float64, complex64, complex128, bool}";

// Output `i` has the shape of input `i`, but for dimension 0, which nobody knows yet.
absl::Status SetShapeOfRows(InferenceContext* context, int i) {
  ShapeHandle shape;
  TF_RETURN_IF_ERROR(context->WithRankAtLeast(context->input(i), 1, &shape));
  TF_RETURN_IF_ERROR(context->ReplaceDim(shape, 0, context->UnknownDim(), &shape));
  context->set_output(i, shape);
  return absl::OkStatus();
}

absl::Status ShapesOfRows(InferenceContext* context) {
  for (int i = 0; i < context->num_outputs(); ++i) {
    TF_RETURN_IF_ERROR(SetShapeOfRows(context, i));
  }
  return absl::OkStatus();
}

absl::Status ExchangedShapes(InferenceContext* context) {
  context->set_output(1, context->Vector(InferenceContext::kUnknownDim));
  return SetShapeOfRows(context, 0);
}

absl::Status UnchangedShapes(InferenceContext* context) {
  for (int i = 0; i < context->num_outputs(); ++i) context->set_output(i, context->input(i));
  return absl::OkStatus();
}

}  // namespace

// Stateful, or TensorFlow would fold a collective of a constant away, merge two equal ones, or
// prune one, on one rank and not on another. mpi_ops.py keeps them concurrent in tf.function all
// the same.

REGISTER_OP("HorovodAllreduce")
    .Attr(kReducedTypes)
    .Attr("reduce_op: int = 1")
    .Attr("prescale_factor: float = 1.0")
    .Attr("postscale_factor: float = 1.0")
    .Attr("ignore_name_scope: bool = false")
    .Attr("process_set_id: int = 0")
    .Attr("tensor_name: string = ''")
    .Input("tensor: T")
    .Output("sum: T")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape)
    .Doc(R"doc(
Reduces a tensor over all ranks, element by element. Every rank gets the result.

tensor: The tensor; same type and shape on every rank.
sum: The reduced tensor.
reduce_op: 0 average, 1 sum, 3 minimum, 4 maximum, 5 product.
prescale_factor: Every rank's tensor is multiplied by it first.
postscale_factor: The result is multiplied by it.
ignore_name_scope: Whether ranks match this by the last part of its name only.
process_set_id: The group of ranks; 0 is all of them.
tensor_name: What ranks match this by; the node's name if empty.
)doc");

REGISTER_OP("HorovodGroupedAllreduce")
    .Attr(kReducedTypes)
    .Attr("num_tensors: int >= 1")
    .Attr("reduce_op: int = 1")
    .Attr("prescale_factor: float = 1.0")
    .Attr("postscale_factor: float = 1.0")
    .Attr("ignore_name_scope: bool = false")
    .Attr("process_set_id: int = 0")
    .Attr("tensor_names: list(string) = []")
    .Input("tensors: num_tensors * T")
    .Output("sum: num_tensors * T")
    .SetIsStateful()
    .SetShapeFn(UnchangedShapes)
    .Doc(R"doc(
Reduces each of several tensors over all ranks, as HorovodAllreduce does one, for less of
TensorFlow's time. Ranks need not group the same tensors.

tensors: The tensors; each has the same type and shape on every rank.
sum: The reduced tensors, in this order.
num_tensors: How many.
reduce_op: 0 average, 1 sum, 3 minimum, 4 maximum, 5 product.
prescale_factor: Every rank's tensors are multiplied by it first.
postscale_factor: The results are multiplied by it.
ignore_name_scope: Whether ranks match the tensors by the last part of their names only.
process_set_id: The group of ranks; 0 is all of them.
tensor_names: What ranks match each tensor by, in the name scope of the node; the node's name and
  _1of3, _2of3, _3of3 if empty.
)doc");

REGISTER_OP("HorovodAllgather")
    .Attr(kMovedTypes)
    .Attr("average: bool = false")
    .Attr("ignore_name_scope: bool = false")
    .Attr("process_set_id: int = 0")
    .Attr("tensor_name: string = ''")
    .Input("tensor: T")
    .Output("output: T")
    .SetIsStateful()
    .SetShapeFn(ShapesOfRows)
    .Doc(R"doc(
Concatenates the tensors of all ranks on dimension 0, in the order of the ranks.

tensor: The tensor; may differ between ranks in dimension 0 only.
output: The concatenation, on every rank.
average: Whether all rows are divided by the number of ranks, of which those that have joined do not
  count.
ignore_name_scope: Whether ranks match this by the last part of its name only.
process_set_id: The group of ranks; 0 is all of them.
tensor_name: What ranks match this by; the node's name if empty.
)doc");

REGISTER_OP("HorovodBroadcast")
    .Attr(kMovedTypes)
    .Attr("root_rank: int")
    .Attr("ignore_name_scope: bool = false")
    .Attr("process_set_id: int = 0")
    .Attr("tensor_name: string = ''")
    .Input("tensor: T")
    .Output("output: T")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape)
    .Doc(R"doc(
Gives every rank the tensor of one of them.

tensor: The tensor; same type and shape on every rank.
output: The root's tensor, on every rank.
root_rank: Whose tensor; the same on every rank.
ignore_name_scope: Whether ranks match this by the last part of its name only.
process_set_id: The group of ranks; 0 is all of them.
tensor_name: What ranks match this by; the node's name if empty.
)doc");

REGISTER_OP("HorovodAlltoall")
    .Attr(kMovedTypes)
    .Attr("ignore_name_scope: bool = false")
    .Attr("process_set_id: int = 0")
    .Attr("tensor_name: string = ''")
    .Input("tensor: T")
    .Input("splits: int32")
    .Output("output: T")
    .Output("received_splits: int32")
    .SetIsStateful()
    .SetShapeFn(ExchangedShapes)
    .Doc(R"doc(
Gives each rank some rows of the tensor, and gets some of every rank's.

tensor: The tensor; may differ between ranks in dimension 0 only.
splits: How many rows each rank gets, in the order of the ranks: all rows together. Empty: as many
  each.
output: What every rank has for this one, in the order of the ranks.
received_splits: How many rows of it came from each rank.
ignore_name_scope: Whether ranks match this by the last part of its name only.
process_set_id: The group of ranks; 0 is all of them.
tensor_name: What ranks match this by; the node's name if empty.
)doc");

REGISTER_OP("HorovodReducescatter")
    .Attr(kReducedTypes)
    .Attr("reduce_op: int = 1")
    .Attr("prescale_factor: float = 1.0")
    .Attr("postscale_factor: float = 1.0")
    .Attr("ignore_name_scope: bool = false")
    .Attr("process_set_id: int = 0")
    .Attr("tensor_name: string = ''")
    .Input("tensor: T")
    .Output("output: T")
    .SetIsStateful()
    .SetShapeFn(ShapesOfRows)
    .Doc(R"doc(
Reduces a tensor over all ranks, element by element. Every rank gets its share of the rows: all have
as many, or the first ones have one more.

tensor: The tensor; same type and shape on every rank.
output: This rank's rows of the reduced tensor.
reduce_op: 0 average, 1 sum, 3 minimum, 4 maximum, 5 product.
prescale_factor: Every rank's tensor is multiplied by it first.
postscale_factor: The result is multiplied by it.
ignore_name_scope: Whether ranks match this by the last part of its name only.
process_set_id: The group of ranks; 0 is all of them.
tensor_name: What ranks match this by; the node's name if empty.
)doc");

REGISTER_OP("HorovodGroupedReducescatter")
    .Attr(kReducedTypes)
    .Attr("num_tensors: int >= 1")
    .Attr("reduce_op: int = 1")
    .Attr("prescale_factor: float = 1.0")
    .Attr("postscale_factor: float = 1.0")
    .Attr("ignore_name_scope: bool = false")
    .Attr("process_set_id: int = 0")
    .Attr("tensor_names: list(string) = []")
    .Input("tensors: num_tensors * T")
    .Output("outputs: num_tensors * T")
    .SetIsStateful()
    .SetShapeFn(ShapesOfRows)
    .Doc(R"doc(
Does with each of several tensors what HorovodReducescatter does with one, for less of TensorFlow's
time. Ranks need not group the same tensors.

tensors: The tensors; each has the same type and shape on every rank.
outputs: This rank's rows of the reduced tensors, in this order.
num_tensors: How many.
reduce_op: 0 average, 1 sum, 3 minimum, 4 maximum, 5 product.
prescale_factor: Every rank's tensors are multiplied by it first.
postscale_factor: The results are multiplied by it.
ignore_name_scope: Whether ranks match the tensors by the last part of their names only.
process_set_id: The group of ranks; 0 is all of them.
tensor_names: What ranks match each tensor by, in the name scope of the node; the node's name and
  _1of3, _2of3, _3of3 if empty.
)doc");

REGISTER_OP("HorovodJoin")
    .Output("last_rank: int32")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Says that this rank has no more data, and waits until all ranks have said so. Until then, what the
others ask for goes on without it.

last_rank: The rank that said so last.
)doc");

}  // namespace horovod_tf
