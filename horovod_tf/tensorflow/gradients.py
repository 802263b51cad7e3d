"""Gradients of the collectives, registered with TensorFlow when this module is imported."""

from __future__ import annotations

import tensorflow as tf

from horovod_tf.common.basics import process_set_rank
from horovod_tf.common.process_sets import ProcessSet
from horovod_tf.tensorflow.gradient_convention import reduction_of_gradients
from horovod_tf.tensorflow.mpi_ops import _allreduce, _grouped_allreduce, allgather, alltoall, rank
from horovod_tf.tensorflow.reductions import Average, Sum


def _reduce_op_of(op: tf.Operation) -> int:
    """The reduction that the gradient of `op` is.

    Raises:
        NotImplementedError: the operation is a minimum, a maximum or a product.
    """
    reduce_op: int = op.get_attr("reduce_op")
    if reduce_op > Sum:
        raise NotImplementedError(f"{op.type} with reduce_op {reduce_op} has no gradient: only sum and average do")
    return reduce_op


def _process_set_of(op: tf.Operation) -> int:
    """The ranks that `op` is of are those that its gradient is of."""
    process_set: int = op.get_attr("process_set_id")
    return process_set


def _scaled(op: tf.Operation, grad: tf.Tensor) -> tf.Tensor:
    """The incoming gradient times the factors of `op`."""
    scale = op.get_attr("prescale_factor") * op.get_attr("postscale_factor")
    return grad if scale == 1.0 else grad * tf.cast(scale, grad.dtype)


@tf.RegisterGradient("HorovodAllreduce")
def _allreduce_grad(op: tf.Operation, grad: tf.Tensor) -> tf.Tensor:
    """Every rank's input adds to every rank's output, so the incoming gradients of all ranks add up."""
    return _allreduce(_scaled(op, grad), reduce_op=_reduce_op_of(op), process_set_id=_process_set_of(op))


@tf.RegisterGradient("HorovodGroupedAllreduce")
def _grouped_allreduce_grad(op: tf.Operation, *grads: tf.Tensor | None) -> list[tf.Tensor | None]:
    """The same for each tensor of a group, in a group; None for what nothing depends on."""
    reduced = iter(
        _grouped_allreduce(
            [_scaled(op, grad) for grad in grads if grad is not None],
            reduce_op=_reduce_op_of(op),
            process_set_id=_process_set_of(op),
        )
    )
    return [None if grad is None else next(reduced) for grad in grads]


@tf.RegisterGradient("HorovodAllgather")
def _allgather_grad(op: tf.Operation, grad: tf.Tensor) -> tf.Tensor:
    """The rows of the summed or averaged gradient that this rank contributed. Their place is known when it runs.

    Ranks that have joined are in neither gathering: the others' numbers say whose rows come before.
    """
    rows = tf.shape(op.inputs[0], out_type=tf.int64)[0]
    process_set = _process_set_of(op)
    own = tf.constant(process_set_rank(process_set), tf.int64)
    all_rows = allgather(tf.stack([[own, rows]]), process_set=ProcessSet.of_id(process_set))
    begin = tf.reduce_sum(tf.where(all_rows[:, 0] < own, all_rows[:, 1], 0))
    reduce_op = Average if op.get_attr("average") else reduction_of_gradients()
    return _allreduce(grad, reduce_op=reduce_op, process_set_id=process_set)[begin : begin + rows]


@tf.RegisterGradient("HorovodAlltoall")
def _alltoall_grad(op: tf.Operation, grad: tf.Tensor, _: tf.Tensor | None) -> list[tf.Tensor | None]:
    """The gradients of rows go back to where the rows came from; numbers of rows have none."""
    process_set = ProcessSet.of_id(_process_set_of(op))
    return [alltoall(grad, splits=op.outputs[1], process_set=process_set)[0], None]


def _rows_of_all_ranks(op: tf.Operation, tensor: tf.Tensor, grad: tf.Tensor) -> tf.Tensor:
    """The gradient of a reduction whose rows are shared: each rank's input adds to the rows of every rank.

    Nothing depends on the rows of ranks that have joined, and an average is not one over them.
    """
    process_set = ProcessSet.of_id(_process_set_of(op))
    ranks = allgather(tf.constant([process_set.rank()], tf.int64), process_set=process_set)
    rows = allgather(_scaled(op, grad), process_set=process_set)
    shape = tf.shape(tensor, out_type=tf.int64)
    least, longer = shape[0] // process_set.size(), shape[0] % process_set.size()
    begins = least * ranks + tf.minimum(ranks, longer)
    places = tf.ragged.range(begins, begins + least + tf.cast(ranks < longer, tf.int64)).flat_values
    total = tf.scatter_nd(places[:, tf.newaxis], rows, shape)
    return total / tf.cast(tf.size(ranks), total.dtype) if _reduce_op_of(op) == Average else total


@tf.RegisterGradient("HorovodReducescatter")
def _reducescatter_grad(op: tf.Operation, grad: tf.Tensor) -> tf.Tensor:
    """Of a sum: the incoming gradients of all ranks, one after the other."""
    return _rows_of_all_ranks(op, op.inputs[0], grad)


@tf.RegisterGradient("HorovodGroupedReducescatter")
def _grouped_reducescatter_grad(op: tf.Operation, *grads: tf.Tensor | None) -> list[tf.Tensor | None]:
    """The same for each tensor of a group; None for what nothing depends on."""
    return [None if grad is None else _rows_of_all_ranks(op, tensor, grad) for tensor, grad in zip(op.inputs, grads)]


@tf.RegisterGradient("HorovodBroadcast")
def _broadcast_grad(op: tf.Operation, grad: tf.Tensor) -> tf.Tensor:
    """The root's input is everybody's output; nobody else's input matters."""
    total = _allreduce(grad, reduce_op=reduction_of_gradients(), process_set_id=_process_set_of(op))
    return total if rank() == op.get_attr("root_rank") else tf.zeros_like(total)
