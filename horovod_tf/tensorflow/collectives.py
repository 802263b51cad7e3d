"""Allreduce as users call it: averages, and sparse gradients."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod_tf.tensorflow.mpi_ops import AVERAGE, SUM, _allreduce, allgather, size


def allreduce(tensor: Any, average: bool = True, device_dense: str = "", device_sparse: str = "") -> Any:
    """The average, or the sum, of a tensor over all ranks.

    Args:
        tensor: Dense: type and shape are the same on all ranks. `tf.IndexedSlices`: the rows of all ranks are
            gathered, each with its index, which is what their sum means; the number of rows may differ.
        average: Whether the result is divided by the number of ranks. Integers stay integers: the quotient is
            truncated toward zero.
        device_dense: Where the operations for a dense tensor are placed; '' leaves that to TensorFlow.
        device_sparse: The same for `tf.IndexedSlices`.

    Returns:
        Dense: a tensor of the input's type and shape. Sparse: `tf.IndexedSlices` with the input's dense_shape.

    Raises:
        tf.errors.FailedPreconditionError: when it runs: ranks disagree, or `init()` has not been called.
    """
    if isinstance(tensor, tf.IndexedSlices):
        return _allreduce_sparse(tensor, average, device_sparse)
    with tf.device(device_dense):
        return _allreduce(tensor, reduce_op=AVERAGE if average else SUM)


def _allreduce_sparse(slices: tf.IndexedSlices, average: bool, device: str) -> tf.IndexedSlices:
    with tf.device(device):
        values = allgather(slices.values)
        indices = allgather(slices.indices)
        if average:
            count = tf.cast(size(), values.dtype)
            # Toward zero, as dense averages; tf.math.floordiv would go down.
            values = tf.truncatediv(values, count) if values.dtype.is_integer else values / count
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)
