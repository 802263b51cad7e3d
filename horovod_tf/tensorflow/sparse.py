"""Reductions of sparse gradients: what `tf.IndexedSlices` of all ranks mean together.

Their sum is all their rows, each with its index: the rows of all ranks are gathered. Two things make that cheap. Rows
of one index are added up before they travel; a batch of words has the frequent ones many times. And where so many rows
are left that the whole table is shorter, the ranks may agree to reduce the table: `SPARSE_AUTO`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import tensorflow as tf

from horovod_tf.tensorflow.compression import Compression, Compressor
from horovod_tf.tensorflow.mpi_ops import ProcessSet, _allgather, _allreduce, allgather, global_process_set, id_of
from horovod_tf.tensorflow.reductions import Average, ReduceOp, Sum

# What sparse_as_dense= may be besides True and False: decided in every step, by all ranks alike.
SPARSE_AUTO: Final = "auto"


def check_reducible(reduce_op: ReduceOp) -> None:
    """Whether rows can be reduced so.

    Raises:
        NotImplementedError: they cannot.
    """
    if reduce_op not in (Average, Sum):
        raise NotImplementedError(
            f"{reduce_op.name} of tf.IndexedSlices: only Sum and Average ops are supported, as the rows of one index "
            "add up. tf.convert_to_tensor makes them dense"
        )


def _scaled(values: tf.Tensor, factor: float) -> tf.Tensor:
    wide = tf.complex128 if values.dtype.is_complex else tf.float64
    return values if factor == 1.0 else tf.cast(tf.cast(values, wide) * tf.cast(factor, wide), values.dtype)


def _added_up(values: tf.Tensor, places: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """The sums of the rows that have one place; of halves rounded once, at the end."""
    is_half = values.dtype.is_floating and values.dtype.size < 4
    total = tf.math.unsorted_segment_sum(tf.cast(values, tf.float32) if is_half else values, places, count)
    return tf.cast(total, values.dtype)


def merged(slices: tf.IndexedSlices) -> tf.IndexedSlices:
    """The same with each index once, in the order of their first rows.

    The values are only touched if an index is there twice; to find that out takes one pass over the indices.
    """
    indices, places = tf.unique(slices.indices)
    count = tf.size(indices)

    def added_up() -> list[tf.Tensor]:
        return [_added_up(slices.values, places, count), indices]

    def as_they_are() -> list[tf.Tensor]:
        return [tf.identity(slices.values), tf.identity(slices.indices)]

    values, indices = tf.cond(count < tf.size(slices.indices), added_up, as_they_are)
    values.set_shape([None, *slices.values.shape[1:]])
    return tf.IndexedSlices(values, indices, slices.dense_shape)


def gathered(
    slices: tf.IndexedSlices,
    reduce_op: ReduceOp,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.IndexedSlices:
    """The rows of all ranks, in the order of ranks; each rank has merged its own.

    An average of integers is that of the sums of all ranks, truncated toward zero as dense ones are.
    """
    slices = merged(slices)
    # The ranks that take part are known when they have agreed on the operation: others may have joined.
    divided = reduce_op == Average and not slices.values.dtype.is_integer
    values = _allgather(
        _scaled(slices.values, prescale_factor),
        name and f"{name}_values",
        ignore_name_scope=ignore_name_scope,
        average=divided,
        process_set_id=id_of(process_set),
    )
    indices = allgather(slices.indices, name and f"{name}_indices", ignore_name_scope, process_set)
    total = tf.IndexedSlices(values, indices, slices.dense_shape)
    if reduce_op == Average and not divided:
        total = merged(total)  # a rank's part of a sum cannot be truncated
        ranks = _allreduce(tf.ones([], tf.int32), name and f"{name}_ranks", process_set_id=id_of(process_set))
        quotients = tf.truncatediv(total.values, tf.cast(ranks, values.dtype))
        total = tf.IndexedSlices(quotients, total.indices, slices.dense_shape)
    return tf.IndexedSlices(_scaled(total.values, postscale_factor), total.indices, slices.dense_shape)


def _row_bytes(slices: tf.IndexedSlices) -> tf.Tensor:
    elements = tf.reduce_prod(tf.shape(slices.values, tf.int64)[1:])
    return elements * slices.values.dtype.size


def _table_is_shorter(slices: tf.IndexedSlices, rows_of_all: tf.Tensor) -> tf.Tensor:
    """Whether the ranks send less for the whole table than for the rows of all.

    Of N ranks each receives (N - 1) / N of what is gathered; for a sum of a table it is twice that part of the table.
    """
    row = _row_bytes(slices)
    table = 2 * tf.cast(slices.dense_shape[0], tf.int64) * row
    return rows_of_all * (row + slices.indices.dtype.size) > table


def _as_table(
    slices: tf.IndexedSlices, reduce_op: ReduceOp, name: str | None, compression: type[Compressor], **factors: Any
) -> list[tf.Tensor]:
    """Values and indices of all rows of the table."""
    count = slices.dense_shape[0]
    table = _added_up(slices.values, slices.indices, count)
    compressed, context = compression.compress(table)
    reduced = _allreduce(compressed, name and f"{name}_table", reduce_op, **factors)
    return [compression.decompress(reduced, context), tf.range(tf.cast(count, slices.indices.dtype))]


def gathered_or_as_table(
    group: Sequence[tf.IndexedSlices],
    reduce_op: ReduceOp,
    names: Sequence[str | None],
    compression: type[Compressor] = Compression.none,
    process_set: ProcessSet = global_process_set,
    **factors: Any,
) -> list[tf.IndexedSlices]:
    """Each of `group` in the way that sends less, which all ranks choose alike; with a table, all its rows come back.

    They agree by one small sum of all numbers of rows. What has no dense_shape is gathered.
    """
    group = [merged(slices) for slices in group]
    rows = _allreduce(
        tf.stack([tf.size(slices.indices, tf.int64) for slices in group]),
        names[0] and f"{names[0]}_rows",
        process_set_id=id_of(process_set),
    )
    results = []
    for place, (slices, name) in enumerate(zip(group, names)):
        if slices.dense_shape is None:
            results.append(gathered(slices, reduce_op, name, process_set=process_set, **factors))
            continue

        def table(slices: tf.IndexedSlices = slices, name: str | None = name) -> list[tf.Tensor]:
            return _as_table(slices, reduce_op, name, compression, process_set_id=id_of(process_set), **factors)

        def rows_of_all(slices: tf.IndexedSlices = slices, name: str | None = name) -> list[tf.Tensor]:
            total = gathered(slices, reduce_op, name, process_set=process_set, **factors)
            return [total.values, total.indices]

        values, indices = tf.cond(
            _table_is_shorter(slices, rows[place]), table, rows_of_all, name=name and f"{name}_choice"
        )
        values.set_shape([None, *slices.values.shape[1:]])
        results.append(tf.IndexedSlices(values, indices, slices.dense_shape))
    return results
