"""Allreduce as users call it: averages, and sparse gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from horovod_tf.tensorflow.mpi_ops import AVERAGE, SUM, _allreduce, _grouped_allreduce, allgather, size


def allreduce(
    tensor: Any, average: bool = True, device_dense: str = "", device_sparse: str = "", *, name: str | None = None
) -> Any:
    """The average, or the sum, of a tensor over all ranks.

    Args:
        tensor: Dense: type and shape are the same on all ranks. `tf.IndexedSlices`: the rows of all ranks are
            gathered, each with its index, which is what their sum means; the number of rows may differ.
        average: Whether the result is divided by the number of ranks. Integers stay integers: the quotient is
            truncated toward zero.
        device_dense: Where the operations for a dense tensor are placed; '' leaves that to TensorFlow.
        device_sparse: The same for `tf.IndexedSlices`.
        name: What ranks match it by; of `tf.IndexedSlices` with "_values" and "_indices" behind it. By default, in a
            graph, made from the tensor's name.

    Returns:
        Dense: a tensor of the input's type and shape. Sparse: `tf.IndexedSlices` with the input's dense_shape.

    Raises:
        tf.errors.FailedPreconditionError: when it runs: ranks disagree, or `init()` has not been called.
    """
    if isinstance(tensor, tf.IndexedSlices):
        return _allreduce_sparse(tensor, average, device_sparse, name)
    with tf.device(device_dense):
        return _allreduce(tensor, name, AVERAGE if average else SUM)


def grouped_allreduce(
    tensors: Iterable[Any],
    average: bool = True,
    device_dense: str = "",
    device_sparse: str = "",
    *,
    name: str | None = None,
) -> list[Any]:
    """The average, or the sum, of each of several tensors over all ranks.

    As `allreduce` of each, but the dense ones are one operation for each type that they have: TensorFlow takes less
    time for many small tensors. No result is there before the last input is.

    Args:
        tensors: Each as for `allreduce`. Types may differ, and dense tensors and `tf.IndexedSlices` may be mixed.
        average: Whether the results are divided by the number of ranks, as for `allreduce`.
        device_dense: Where the operations for dense tensors are placed; '' leaves that to TensorFlow.
        device_sparse: The same for `tf.IndexedSlices`.
        name: Ranks match the i-th of n dense tensors by "<name>_<i>of<n>", counted from 1. By default, in a graph, by
            the name that `allreduce` of this tensor has: ranks need not group the same tensors, or any.

    Returns:
        What `allreduce` of each returns, in the order of `tensors`.

    Raises:
        tf.errors.FailedPreconditionError: when it runs: ranks disagree about one of the tensors, or `init()` has not
            been called. There are no results then.
    """
    tensors = list(tensors)
    sparse = [isinstance(tensor, tf.IndexedSlices) for tensor in tensors]
    with tf.device(device_dense):
        dense = [tensor for tensor, is_sparse in zip(tensors, sparse) if not is_sparse]
        reduced = iter(_grouped_allreduce(dense, name, AVERAGE if average else SUM))
    return [
        _allreduce_sparse(tensor, average, device_sparse) if is_sparse else next(reduced)
        for tensor, is_sparse in zip(tensors, sparse)
    ]


def _allreduce_sparse(
    slices: tf.IndexedSlices, average: bool, device: str, name: str | None = None
) -> tf.IndexedSlices:
    with tf.device(device):
        values = allgather(slices.values, name and f"{name}_values")
        indices = allgather(slices.indices, name and f"{name}_indices")
        if average:
            count = tf.cast(size(), values.dtype)
            # Toward zero, as dense averages; tf.math.floordiv would go down.
            values = tf.truncatediv(values, count) if values.dtype.is_integer else values / count
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)
