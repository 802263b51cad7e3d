"""Rows from every rank to every rank; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.tensorflow as hvd
from tensorflow_support import (
    RANK,
    SIZE,
    TYPES,
    assert_same,
    by_name,
    every_way,
    graph_session,
    large,
    several_ranks,
    total_dot,
    v1,
    values,
)

TAILS = [(), (3,), (0,), (2, 1)]  # what follows dimension 0


def uneven(rank: int, factor: int = 1) -> list[int]:
    """How many rows `rank` has for each rank; some have none."""
    return [(rank * 2 + to) % 3 * factor for to in range(SIZE)]


def exchanged(
    splits: list[list[int]], tail: tuple[int, ...], dtype: tf.DType
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """What this rank gets, and how many rows of it are of each rank."""
    parts = []
    for rank, sent in enumerate(splits):
        first = sum(sent[:RANK])
        parts.append(values((sum(sent), *tail), dtype, rank)[first : first + sent[RANK]])
    return np.concatenate(parts), np.array([sent[RANK] for sent in splits], np.int32)


@pytest.mark.parametrize("tail", TAILS, ids=str)
@by_name(TYPES)
def test_every_rank_gets_its_rows(dtype: tf.DType, tail: tuple[int, ...]) -> None:
    for factor in (0, 1, 7):
        splits = [uneven(rank, factor) for rank in range(SIZE)]
        mine = values((sum(splits[RANK]), *tail), dtype)
        expected, counts = exchanged(splits, tail, dtype)
        output, received = hvd.alltoall(mine, splits[RANK])
        assert_same(output.numpy(), expected)
        assert_same(received.numpy(), counts)


@by_name(TYPES)
def test_rows_are_divided_evenly_without_splits(dtype: tf.DType) -> None:
    (elements,) = large(dtype)
    for each in (0, 1, 3, elements):
        expected, _ = exchanged([[each] * SIZE] * SIZE, (), dtype)
        output = hvd.alltoall(values((each * SIZE,), dtype))
        assert_same(output.numpy(), expected)


def test_one_rank_has_and_one_rank_gets_all_rows() -> None:
    for owner in range(SIZE):
        splits = [[5 * (rank == owner)] * SIZE for rank in range(SIZE)]
        expected, counts = exchanged(splits, (2,), tf.float32)
        output, received = hvd.alltoall(values((sum(splits[RANK]), 2), tf.float32), splits[RANK])
        assert_same(output.numpy(), expected)
        assert_same(received.numpy(), counts)
        splits = [[4 * (to == owner) for to in range(SIZE)]] * SIZE
        expected, counts = exchanged(splits, (), tf.int64)
        output, received = hvd.alltoall(values((4,), tf.int64), splits[RANK])
        assert_same(output.numpy(), expected)
        assert_same(received.numpy(), counts)


@every_way
def test_eager_function_and_graph(run: Any) -> None:
    splits = [uneven(rank) for rank in range(SIZE)]
    expected, counts = exchanged(splits, (3,), tf.float32)

    def exchange(tensor: tf.Tensor, rows: tf.Tensor) -> Any:
        output, received = hvd.alltoall(tensor, rows, name="ways")
        if not tf.executing_eagerly():
            assert output.shape.as_list() == [None, 3]
        return output, received

    mine = values((sum(splits[RANK]), 3), tf.float32)
    for _ in range(2):  # the second time by id
        output, received = run(exchange, mine, np.array(splits[RANK], np.int32))
        assert_same(output, expected)
        assert_same(received, counts)


def test_splits_may_change_from_step_to_step() -> None:
    with graph_session() as session:
        tensor, rows = v1.placeholder(tf.float64, [None, 2]), v1.placeholder(tf.int32, [None])
        fetches = hvd.alltoall(tensor, rows)
        for factor in (1, 1, 2, 0, 2):
            splits = [uneven(rank, factor) for rank in range(SIZE)]
            feed = {tensor: values((sum(splits[RANK]), 2), tf.float64), rows: splits[RANK]}
            expected, counts = exchanged(splits, (2,), tf.float64)
            output, received = session.run(fetches, feed)
            assert_same(output, expected)
            assert_same(received, counts)


@pytest.mark.parametrize("split", [True, False], ids=["splits", "even"])
def test_gradient_is_the_adjoint(split: bool) -> None:
    splits = [uneven(rank) if split else [2] * SIZE for rank in range(SIZE)]
    x = tf.constant(np.random.default_rng(RANK).standard_normal((sum(splits[RANK]), 3)))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = hvd.alltoall(x, splits[RANK])[0] if split else hvd.alltoall(x)
    weights = tf.constant(np.random.default_rng(RANK + 100).standard_normal(y.shape))
    gradient = tape.gradient(y, x, output_gradients=weights)
    assert gradient.shape == x.shape
    np.testing.assert_allclose(total_dot(y, weights), total_dot(x, gradient), rtol=1e-12)


def test_gradient_in_a_graph_goes_back_to_where_rows_came_from() -> None:
    splits = [uneven(rank) for rank in range(SIZE)]
    rows = sum(splits[RANK])
    with graph_session() as session:
        x = v1.placeholder(tf.float32, [rows, 1])
        y, _ = hvd.alltoall(x, splits[RANK])
        (gradient,) = v1.gradients(y * tf.constant(RANK + 1.0), x)
        found = session.run(gradient, {x: values((rows, 1), tf.float32)})
    assert_same(found[:, 0], np.repeat(np.arange(1, SIZE + 1), splits[RANK]).astype(np.float32))


@pytest.mark.parametrize(
    ("splits", "text"),
    [
        ([1] * SIZE, "Sum of splits entries is less than dimension 0"),
        ([3] * SIZE, "Sum of splits entries is greater than dimension 0"),
        ([2] * (SIZE + 1), "Number of entries in splits does not equal the number of ranks"),
        ([2 * SIZE + 1, *[0] * (SIZE - 2), -1][-SIZE:], "splits"),
        ([[2] * SIZE], "alltoall expects a 1D splits tensor"),
    ],
    ids=["less", "more", "other_number", "negative", "matrix"],
)
def test_splits_that_do_not_fit_are_an_error_on_this_rank(splits: list[Any], text: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        hvd.alltoall(values((2 * SIZE,), tf.float32), splits, name="unfit")
    assert_same(hvd.alltoall(values((0,), tf.float32)).numpy(), values((0,), tf.float32))


def test_empty_splits_and_other_types_are_errors_before_anything_is_sent() -> None:
    with pytest.raises(ValueError, match="splits is empty"):
        hvd.alltoall(tf.zeros([0]), [])
    with pytest.raises((ValueError, TypeError)):
        hvd.alltoall(tf.zeros([SIZE]), tf.ones([SIZE], tf.int64))


@several_ranks
def test_rows_that_cannot_be_divided_are_an_error() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="not an even multiple of the number of workers"):
        hvd.alltoall(values((SIZE + 1,), tf.float32))


@several_ranks
@pytest.mark.parametrize(
    ("shape", "dtype", "text"),
    [
        ((SIZE, RANK + 1), tf.float32, "Mismatched ALLTOALL tensor shapes, dimension 1"),
        ((SIZE, 1)[: 1 + RANK % 2], tf.float32, "Mismatched ALLTOALL tensor shapes"),
        ((SIZE,), tf.float32 if RANK else tf.int32, "Mismatched data types"),
        ((), tf.float32, "tried to ALLTOALL a rank-zero tensor"),
    ],
    ids=["columns", "dimensions", "types", "scalar"],
)
def test_ranks_that_disagree_are_all_told(shape: tuple[int, ...], dtype: tf.DType, text: str) -> None:
    with pytest.raises(tf.errors.FailedPreconditionError, match=text):
        hvd.alltoall(values(shape, dtype), name="disagreement")
    assert_same(
        hvd.alltoall(values((SIZE,), tf.int32), name="disagreement").numpy()[:1],
        values((RANK + 1,), tf.int32, 0)[RANK:],
    )
