"""What the tests of the operations share: this rank, types, shapes, and data whose collectives have a closed form.

Importing this joins the job.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

# Small, so that tensors larger than it are quick. The library reads it in init().
THRESHOLD = 64 * 1024
os.environ["HOROVOD_FUSION_THRESHOLD"] = str(THRESHOLD)

import horovod_tf.tensorflow as hvd  # noqa: E402

v1 = tf.compat.v1
hvd.init()
RANK = hvd.rank()
SIZE = hvd.size()
several_ranks = pytest.mark.skipif(SIZE == 1, reason="one rank cannot disagree with itself")
only_rank_0 = pytest.mark.skipif(RANK != 0, reason="starts a program of its own")

ORDERED = [
    *(tf.uint8, tf.int8, tf.uint16, tf.int16, tf.uint32, tf.int32, tf.uint64, tf.int64),
    *(tf.float16, tf.bfloat16, tf.float32, tf.float64),
]
REDUCIBLE = [*ORDERED, tf.complex64, tf.complex128]
TYPES = [*REDUCIBLE, tf.bool]
# Dimensions 1 to 3, sizes 0, 1, odd; a scalar is tested where it is allowed.
SHAPES = [(0,), (1,), (17,), (0, 3), (1, 1), (5, 7), (3, 0, 2), (1, 1, 1), (3, 5, 7)]


def large(dtype: tf.DType) -> tuple[int, ...]:
    """A shape that does not fit into the fusion buffer."""
    return (THRESHOLD // dtype.size + 13,)


def values(shape: tuple[int, ...], dtype: tf.DType, rank: int = RANK) -> np.ndarray[Any, Any]:
    """3 * rank + i % 11 at index i: small enough for a sum over ranks to be exact in every type.

    The imaginary part of a complex number is that and `rank` more, negative.
    """
    flat: Any = 3 * rank + np.arange(int(np.prod(shape))) % 11
    if dtype.is_complex:
        flat = flat - 1j * (flat + rank)
    return (flat % 2 if dtype == tf.bool else flat).reshape(shape).astype(dtype.as_numpy_dtype)


def summed(shape: tuple[int, ...], dtype: tf.DType) -> np.ndarray[Any, Any]:
    """The sum of `values` over all ranks."""
    flat: Any = 3 * SIZE * (SIZE - 1) // 2 + SIZE * (np.arange(int(np.prod(shape))) % 11)
    if dtype.is_complex:
        flat = flat - 1j * (flat + SIZE * (SIZE - 1) // 2)
    return flat.reshape(shape).astype(dtype.as_numpy_dtype)


def assert_same(actual: Any, expected: Any) -> None:
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)


@contextlib.contextmanager
def graph_session() -> Iterator[Any]:
    """A graph of one's own and a session to run it."""
    with tf.Graph().as_default(), v1.Session() as session:
        yield session


def run_all(
    op: Callable[[Any, int], Any], inputs: list[np.ndarray[Any, Any]], fused: bool
) -> list[np.ndarray[Any, Any]]:
    """`op` of every input, in one step or each in one of its own. Fed, so that nothing is a constant."""
    with graph_session() as session:
        fed = [v1.placeholder(each.dtype, each.shape, f"in_{i}") for i, each in enumerate(inputs)]
        outputs = [op(each, i) for i, each in enumerate(fed)]
        feed = dict(zip(fed, inputs))
        if fused:
            return list(session.run(outputs, feed))
        return [session.run(output, {one: feed[one]}) for one, output in zip(fed, outputs)]


def _run_eagerly(call: Callable[..., Any], *arrays: Any) -> Any:
    return tf.nest.map_structure(lambda one: one.numpy(), call(*(tf.constant(array) for array in arrays)))


def _run_function(call: Callable[..., Any], *arrays: Any) -> Any:
    return _run_eagerly(tf.function(call), *arrays)


def _run_graph(call: Callable[..., Any], *arrays: Any) -> Any:
    with graph_session() as session:
        feed = {v1.placeholder(array.dtype, array.shape): array for array in arrays}
        return session.run(call(*feed), feed)


every_way = pytest.mark.parametrize(
    "run", [_run_eagerly, _run_function, _run_graph], ids=["eager", "function", "graph"]
)


def total_dot(a: Any, b: Any) -> Any:
    """The inner product of what all ranks have: the adjoint A* of A has <A x, y> = <x, A* y> in that."""
    return hvd.allreduce(tf.reduce_sum(a * b), op=hvd.Sum, name="total_dot").numpy()


fused_or_not = pytest.mark.parametrize("fused", [True, False], ids=["fused", "unfused"])


def by_name(cases: list[tf.DType]) -> Any:
    return pytest.mark.parametrize("dtype", cases, ids=[case.name for case in cases])
