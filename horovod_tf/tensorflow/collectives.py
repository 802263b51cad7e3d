"""Reductions as users call them: of dense tensors and of sparse gradients, alone and in groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from horovod_tf.tensorflow.compression import Compression, Compressor
from horovod_tf.tensorflow.mpi_ops import (
    ProcessSet,
    _allreduce,
    _default_name,
    _grouped_allreduce,
    _grouped_reducescatter,
    _reducescatter,
    allgather,
    global_process_set,
    id_of,
)
from horovod_tf.tensorflow.reductions import Average, ReduceOp, reduction
from horovod_tf.tensorflow.sparse import check_reducible, gathered


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """The average, or another reduction, of a tensor over all ranks.

    Args:
        tensor: Dense: type and shape are the same on all ranks. `tf.IndexedSlices`: the rows of all ranks are
            gathered, each with its index, which is what their sum means; the number of rows may differ. Rows of one
            index are added up before they are sent.
        average: True is op=Average and False is op=Sum.
        device_dense: Where the operations for a dense tensor are placed; '' leaves that to TensorFlow.
        device_sparse: The same for `tf.IndexedSlices`.
        compression: What is reduced instead of a dense tensor: one of `Compression`.
        op: Average (by default), Sum, Min, Max or Product; of `tf.IndexedSlices` one of the first two. An average of
            integers stays an integer: it is truncated toward zero.
        prescale_factor: Multiplies every rank's tensor first. The same on all ranks; a float32.
        postscale_factor: Multiplies the result. The same on all ranks; a float32.
        name: What ranks match it by; of `tf.IndexedSlices` with "_values" and "_indices" behind it. By default, in a
            graph, made from the tensor's name.
        process_set: Which ranks take part, and are averaged over; this one must be among them.
        ignore_name_scope: Whether ranks match it by the last part of its name only, in a graph.

    Returns:
        Dense: a tensor of the input's type and shape. Sparse: `tf.IndexedSlices` with the input's dense_shape.

    Raises:
        ValueError: both average and op are given, op is no reduction, or the process set is not registered; or,
            eager and without a name, another thread is in such a call.
        NotImplementedError: this reduction is not offered for this tensor.
        tf.errors.FailedPreconditionError: when it runs: ranks disagree, or `init()` has not been called.
        tf.errors.InvalidArgumentError: when it runs: this rank is not in the process set, or it has been removed.
    """
    reduce_op = reduction(average, op)
    factors: dict[str, Any] = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
    if isinstance(tensor, tf.IndexedSlices):
        check_reducible(reduce_op)
        return _allreduce_sparse(tensor, reduce_op, device_sparse, name, ignore_name_scope, process_set, factors)
    with tf.device(device_dense):
        tensor = tf.convert_to_tensor(tensor)
        compressed, context = compression.compress(tensor)
        if context is not None and not tf.executing_eagerly():
            name = name or _default_name("HorovodAllreduce", tensor)
        reduced = _allreduce(
            compressed,
            name,
            reduce_op,
            ignore_name_scope=ignore_name_scope,
            process_set_id=id_of(process_set),
            **factors,
        )
        return compression.decompress(reduced, context)


def grouped_allreduce(
    tensors: Iterable[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """The average, or another reduction, of each of several tensors over all ranks.

    As `allreduce` of each, but the dense ones are one operation for each type that they have: TensorFlow takes less
    time for many small tensors. No result is there before the last input is.

    Args:
        tensors: Each as for `allreduce`. Types may differ, and dense tensors and `tf.IndexedSlices` may be mixed.
        average: As for `allreduce`.
        device_dense: Where the operations for dense tensors are placed; '' leaves that to TensorFlow.
        device_sparse: The same for `tf.IndexedSlices`.
        compression: As for `allreduce`.
        op: As for `allreduce`.
        prescale_factor: As for `allreduce`.
        postscale_factor: As for `allreduce`.
        process_set: As for `allreduce`.
        ignore_name_scope: As for `allreduce`.
        name: Ranks match the i-th of n dense tensors by "<name>_<i>of<n>", counted from 1. By default, in a graph, by
            the name that `allreduce` of this tensor has: ranks need not group the same tensors, or any.

    Returns:
        What `allreduce` of each returns, in the order of `tensors`.

    Raises:
        ValueError: both average and op are given, op is no reduction, or the process set is not registered; or,
            eager and without a name, another thread is in such a call.
        NotImplementedError: this reduction is not offered for one of the tensors.
        tf.errors.FailedPreconditionError: when it runs: ranks disagree about one of the tensors, or `init()` has not
            been called. There are no results then.
    """
    tensors = list(tensors)
    reduce_op = reduction(average, op)
    factors: dict[str, Any] = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
    sparse = [isinstance(tensor, tf.IndexedSlices) for tensor in tensors]
    if any(sparse):
        check_reducible(reduce_op)
    with tf.device(device_dense):
        dense = [
            compression.compress(tf.convert_to_tensor(tensor))
            for tensor, is_sparse in zip(tensors, sparse)
            if not is_sparse
        ]
        reduced = _grouped_allreduce(
            [one for one, _ in dense],
            name,
            reduce_op,
            ignore_name_scope=ignore_name_scope,
            process_set_id=id_of(process_set),
            **factors,
        )
        results = iter([compression.decompress(one, context) for one, (_, context) in zip(reduced, dense)])
    return [
        _allreduce_sparse(tensor, reduce_op, device_sparse, None, ignore_name_scope, process_set, factors)
        if is_sparse
        else next(results)
        for tensor, is_sparse in zip(tensors, sparse)
    ]


def grouped_allgather(
    tensors: Iterable[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    """`allgather` of each of several tensors.

    Args:
        tensors: Each as for `allgather`. Types may differ.
        name: Ranks match the i-th of n tensors by "<name>_<i>of<n>", counted from 1; each by its own name by default.
        ignore_name_scope: As for `allgather`.
        process_set: As for `allgather`.

    Returns:
        What `allgather` of each returns, in the order of `tensors`.

    Raises:
        tf.errors.FailedPreconditionError: when it runs: ranks disagree, or `init()` has not been called.
    """
    tensors = list(tensors)
    names = [name and f"{name}_{place}of{len(tensors)}" for place in range(1, len(tensors) + 1)]
    return [allgather(tensor, one, ignore_name_scope, process_set) for tensor, one in zip(tensors, names)]


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """This rank's share of the rows of the average, or of another reduction, of a tensor over all ranks.

    Each rank gets dim0 // size() rows, in the order of the ranks, and each of the first dim0 % size() one more.

    Args:
        tensor: Not a scalar; type and shape are the same on all ranks. With fewer rows than ranks, some get none.
        device_dense: Where the operation is placed; '' leaves that to TensorFlow.
        compression: What is reduced instead of the tensor: one of `Compression`.
        op: Average, Sum, Min, Max or Product. An average of integers stays an integer: it is truncated toward zero.
        name: What ranks match it by; made from the tensor's name by default, in a graph.
        process_set: Which ranks take part; this one must be among them. Its size counts instead of `size()`.
        ignore_name_scope: Whether ranks match it by the last part of its name only, in a graph.
        prescale_factor: Multiplies every rank's tensor first. The same on all ranks; a float32.
        postscale_factor: Multiplies the result. The same on all ranks; a float32.

    Returns:
        A tensor of the input's type. Its static dimension 0 is unknown.

    Raises:
        ValueError: op is no reduction, or the process set is not registered.
        NotImplementedError: this reduction is not offered.
        tf.errors.FailedPreconditionError: when it runs: ranks disagree, or `init()` has not been called.
    """
    reduce_op = reduction(None, op)
    with tf.device(device_dense):
        tensor = tf.convert_to_tensor(tensor)
        compressed, context = compression.compress(tensor)
        if context is not None and not tf.executing_eagerly():
            name = name or _default_name("HorovodReducescatter", tensor)
        rows: tf.Tensor = compression.decompress(
            _reducescatter(
                compressed,
                name,
                reduce_op,
                ignore_name_scope=ignore_name_scope,
                process_set_id=id_of(process_set),
                prescale_factor=prescale_factor,
                postscale_factor=postscale_factor,
            ),
            context,
        )
        return rows


def grouped_reducescatter(
    tensors: Iterable[Any],
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[tf.Tensor]:
    """`reducescatter` of each of several tensors, in one operation for each type that they have.

    Args:
        tensors: Each as for `reducescatter`. Types may differ. Ranks need not group the same tensors.
        device_dense: As for `reducescatter`.
        compression: As for `reducescatter`.
        op: As for `reducescatter`.
        process_set: As for `reducescatter`.
        prescale_factor: As for `reducescatter`.
        postscale_factor: As for `reducescatter`.

    Returns:
        What `reducescatter` of each returns, in the order of `tensors`.

    Raises:
        ValueError: op is no reduction, or the process set is not registered.
        NotImplementedError: this reduction is not offered.
        tf.errors.FailedPreconditionError: when it runs: ranks disagree about one of the tensors, or `init()` has not
            been called. There are no results then.
    """
    reduce_op = reduction(None, op)
    with tf.device(device_dense):
        pairs = [compression.compress(tf.convert_to_tensor(tensor)) for tensor in tensors]
        reduced = _grouped_reducescatter(
            [one for one, _ in pairs],
            reduce_op=reduce_op,
            process_set_id=id_of(process_set),
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        )
        return [compression.decompress(one, context) for one, (_, context) in zip(reduced, pairs)]


def barrier(name: str | None = None, process_set: ProcessSet = global_process_set) -> tf.Operation | None:
    """Waits until all ranks are here.

    Args:
        name: What ranks match it by.
        process_set: Whose ranks; this one must be among them.

    Returns:
        In a graph, the operation that waits. Eager: None, all are here.

    Raises:
        tf.errors.FailedPreconditionError: when it runs: `init()` has not been called.
    """
    met = _allreduce(tf.zeros([0], tf.uint8), name or "HorovodBarrier", process_set_id=id_of(process_set))
    return None if tf.executing_eagerly() else met.op


def _allreduce_sparse(
    slices: tf.IndexedSlices,
    reduce_op: ReduceOp,
    device: str,
    name: str | None,
    ignore_name_scope: bool,
    process_set: ProcessSet,
    factors: dict[str, float],
) -> tf.IndexedSlices:
    if name is None and not tf.executing_eagerly():
        name = _default_name("HorovodAllreduce", slices.values)
    with tf.device(device):
        return gathered(slices, reduce_op, name, ignore_name_scope, process_set, **factors)
