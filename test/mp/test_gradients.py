"""Gradients of every floating type and dimension, and types that no collective has; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.tensorflow as hvd
from horovod_tf.tensorflow import mpi_ops
from tensorflow_support import RANK, SIZE, TYPES, assert_same, by_name, graph_session, summed, v1, values

FLOATS = [dtype for dtype in TYPES if dtype.is_floating or dtype.is_complex]
TAILS = [(), (3,), (2, 3)]  # what follows dimension 0
every_tail = pytest.mark.parametrize("tail", TAILS, ids=["1d", "2d", "3d"])


def gradient_of(op: Callable[[Any], Any], weights: Any, rows: int, dtype: tf.DType) -> Any:
    """Of the sum of `weights` * op(x) with respect to x, which has so many rows."""
    shape = (rows, *weights.shape[1:])
    with graph_session() as session:
        x = v1.placeholder(dtype, shape)
        output = op(x)
        return session.run(v1.gradients(output, x, grad_ys=weights)[0], {x: values(shape, dtype)})


@every_tail
@by_name(FLOATS)
def test_gradient_of_sum_is_the_sum(dtype: tf.DType, tail: tuple[int, ...]) -> None:
    found = gradient_of(mpi_ops._allreduce, values((4, *tail), dtype), 4, dtype)
    assert_same(found, summed((4, *tail), dtype))


@every_tail
@by_name(FLOATS)
def test_gradient_of_allgather_is_the_sum_for_this_ranks_rows(dtype: tf.DType, tail: tuple[int, ...]) -> None:
    """Rank r has r rows: rank 0 none."""
    rows = SIZE * (SIZE - 1) // 2
    found = gradient_of(hvd.allgather, values((rows, *tail), dtype), RANK, dtype)
    first = RANK * (RANK - 1) // 2
    assert_same(found, summed((rows, *tail), dtype)[first : first + RANK])


@every_tail
@by_name(FLOATS)
def test_gradient_of_broadcast_is_the_sum_on_the_root(dtype: tf.DType, tail: tuple[int, ...]) -> None:
    for root in range(SIZE):
        found = gradient_of(functools.partial(hvd.broadcast, root_rank=root), values((4, *tail), dtype), 4, dtype)
        total = summed((4, *tail), dtype)
        assert_same(found, total if root == RANK else np.zeros_like(total))


def test_gradient_of_a_gradient() -> None:
    """loss = sum of s^3 where s is the sum of x over ranks: first 3 N s^2, then 6 N^2 s on every rank."""
    with tf.GradientTape() as outer:
        x = tf.constant(values((4,), tf.float64))
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            loss = tf.reduce_sum(mpi_ops._allreduce(x, "power") ** 3)
        first = inner.gradient(loss, x)
        total = tf.reduce_sum(first)
    s = summed((4,), tf.float64)
    assert_same(first.numpy(), 3 * SIZE * s**2)
    assert_same(outer.gradient(total, x).numpy(), 6 * SIZE**2 * s)


@pytest.mark.parametrize("dtype", [tf.string, tf.qint8, tf.resource], ids=lambda dtype: dtype.name)
def test_type_that_no_collective_has_is_a_type_error(dtype: tf.DType) -> None:
    """On this rank, before anything is said to the others."""
    with tf.Graph().as_default():
        tensor = v1.placeholder(dtype, (3,))
        collectives: list[Callable[[Any], Any]] = [
            hvd.allgather,
            mpi_ops._allreduce,
            functools.partial(hvd.broadcast, root_rank=0),
        ]
        for build in collectives:
            with pytest.raises(TypeError, match=rf"{dtype.name}.*not in list of allowed values"):
                build(tensor)
    assert_same(mpi_ops._allreduce(values((3,), tf.int32)).numpy(), summed((3,), tf.int32))


def test_bool_is_not_summed() -> None:
    with tf.Graph().as_default(), pytest.raises(TypeError, match=r"bool.*not in list of allowed values"):
        mpi_ops._allreduce(v1.placeholder(tf.bool, (3,)))
