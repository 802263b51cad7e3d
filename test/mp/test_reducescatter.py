"""Reductions of which each rank gets some rows; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.tensorflow as hvd
from tensorflow_support import (
    ORDERED,
    RANK,
    REDUCIBLE,
    SHAPES,
    SIZE,
    assert_same,
    by_name,
    every_way,
    graph_session,
    large,
    several_ranks,
    summed,
    total_dot,
    v1,
    values,
)

REDUCED: dict[Any, Any] = {hvd.Min: np.min, hvd.Max: np.max, hvd.Sum: np.sum, hvd.Product: np.prod}


def own_rows(whole: Any, rank: int = RANK) -> Any:
    """Those of `rank`: the first ranks have one more."""
    return np.array_split(whole, SIZE)[rank]


@by_name(REDUCIBLE)
def test_every_rank_gets_its_rows_of_the_sum(dtype: tf.DType) -> None:
    for shape in [*SHAPES, large(dtype), *[(rows, 2) for rows in range(1, 2 * SIZE + 2)]]:
        found = hvd.reducescatter(values(shape, dtype), op=hvd.Sum)
        assert_same(found.numpy(), own_rows(summed(shape, dtype)))


@pytest.mark.parametrize("op", REDUCED, ids=lambda op: op.name.lower())
@by_name(REDUCIBLE)
def test_every_reduction_of_every_type(dtype: tf.DType, op: Any) -> None:
    if op in (hvd.Min, hvd.Max) and dtype not in ORDERED:
        pytest.skip("complex numbers have no order")
    inputs: list[Any] = [(np.arange(21).reshape(7, 3) + rank) % 3 + 1 for rank in range(SIZE)]
    found = hvd.reducescatter(inputs[RANK].astype(dtype.as_numpy_dtype), op=op)
    whole = REDUCED[op](np.stack(inputs), axis=0).astype(dtype.as_numpy_dtype)
    assert_same(found.numpy(), own_rows(whole))


def test_average_is_what_one_gets_without_asking() -> None:
    ones = tf.fill([5, 2], RANK + 1.0)
    for arguments in ({}, {"op": hvd.Average}, {"op": 0}):
        found = hvd.reducescatter(ones, **arguments)
        np.testing.assert_allclose(found, own_rows(np.full((5, 2), (SIZE + 1) / 2)), rtol=1e-6)


def test_arguments_are_where_scripts_expect_them() -> None:
    ones = tf.fill([5], tf.constant(RANK + 1.0, tf.float64))
    expected = own_rows(np.full(5, 2.0 * SIZE * (SIZE + 1) / 2))
    found = hvd.reducescatter(
        ones, "", hvd.Compression.none, hvd.Sum, "by_place", hvd.global_process_set, False, 0.5, 4.0
    )
    np.testing.assert_allclose(found, expected)
    (found,) = hvd.grouped_reducescatter([ones], "", hvd.Compression.none, hvd.Sum, hvd.global_process_set, 0.5, 4.0)
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("compression", [hvd.Compression.fp16, hvd.Compression.bf16], ids=["fp16", "bf16"])
@by_name([tf.float32, tf.float64, tf.int32])
def test_compression_gives_the_type_back(dtype: tf.DType, compression: Any) -> None:
    found = hvd.reducescatter(values((7, 2), dtype), op=hvd.Sum, compression=compression)
    assert_same(found.numpy(), own_rows(summed((7, 2), dtype)))
    (found,) = hvd.grouped_reducescatter([values((7, 2), dtype)], op=hvd.Sum, compression=compression)
    assert_same(found.numpy(), own_rows(summed((7, 2), dtype)))


@every_way
def test_eager_function_and_graph(run: Any) -> None:
    def scatter(tensor: tf.Tensor) -> Any:
        found = hvd.reducescatter(tensor, op=hvd.Sum, name="ways")
        if not tf.executing_eagerly():
            assert found.shape.as_list() == [None, 3]
        return found

    for _ in range(2):  # the second time by id
        assert_same(run(scatter, values((7, 3), tf.float32)), own_rows(summed((7, 3), tf.float32)))


def test_groups_of_mixed_types_in_one_operation_each() -> None:
    shapes = [(4, 2), (1,), (0, 3), (9,)]
    dtypes = [tf.float32, tf.int64, tf.float32, tf.float64]
    with graph_session() as session:
        arrays = [values(shape, dtype) for shape, dtype in zip(shapes, dtypes)]
        feed = {v1.placeholder(array.dtype, array.shape): array for array in arrays}
        rows = hvd.grouped_reducescatter(feed, op=hvd.Sum)
        operations = [op for op in session.graph.get_operations() if op.type == "HorovodGroupedReducescatter"]
        assert len(operations) == 3
        for _ in range(2):
            for found, shape, dtype in zip(session.run(rows, feed), shapes, dtypes):
                assert_same(found, own_rows(summed(shape, dtype)))
    assert hvd.grouped_reducescatter([]) == []


@several_ranks
def test_ranks_need_not_group_alike() -> None:
    with graph_session() as session:
        tensors = [tf.identity(values((5,), tf.float32), f"member_{place}") for place in range(3)]
        if RANK == 0:
            rows = [hvd.reducescatter(tensor, op=hvd.Sum) for tensor in tensors]
        else:
            rows = hvd.grouped_reducescatter(tensors, op=hvd.Sum)
        for found in session.run(rows):
            assert_same(found, own_rows(summed((5,), tf.float32)))


@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "grouped"])
@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average], ids=lambda op: op.name.lower())
def test_gradient_is_the_adjoint(op: Any, grouped: bool) -> None:
    for rows in (0, 1, 5):
        x = tf.constant(np.random.default_rng(RANK).standard_normal((rows, 3)))
        factors: dict[str, Any] = {"prescale_factor": 0.5, "postscale_factor": 3.0}
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = (
                hvd.grouped_reducescatter([x], op=op, **factors)[0]
                if grouped
                else hvd.reducescatter(x, op=op, **factors)
            )
        weights = tf.constant(np.random.default_rng(RANK + 100).standard_normal(y.shape))
        gradient = tape.gradient(y, x, output_gradients=weights)
        assert gradient.shape == x.shape
        np.testing.assert_allclose(total_dot(y, weights), total_dot(x, gradient), rtol=1e-12)


def test_gradient_in_a_graph() -> None:
    with graph_session() as session:
        x = v1.placeholder(tf.float32, (5, 2))
        y = hvd.reducescatter(x, op=hvd.Sum)
        (gradient,) = v1.gradients(y * tf.constant(RANK + 1.0), x)
        found = session.run(gradient, {x: values((5, 2), tf.float32)})
    assert_same(
        found,
        np.concatenate([np.full_like(own_rows(found, rank), rank + 1) for rank in range(SIZE)]),
    )


@pytest.mark.parametrize("op", [hvd.Min, hvd.Max, hvd.Product], ids=lambda op: op.name.lower())
def test_reductions_without_a_gradient_say_so(op: Any) -> None:
    with graph_session():
        x = v1.placeholder(tf.float32, (3,))
        y = hvd.reducescatter(x, op=op)
        with pytest.raises((NotImplementedError, LookupError), match="has no gradient"):
            v1.gradients(y, x)


def test_reductions_that_are_none_are_errors_before_anything_is_sent() -> None:
    for call in (hvd.reducescatter, lambda one, op: hvd.grouped_reducescatter([one], op=op)):
        with pytest.raises(ValueError, match=r"none of hvd\.Average"):
            call(tf.ones([3]), op=7)
        with pytest.raises(NotImplementedError, match="Adasum is not offered"):
            call(tf.ones([3]), op=hvd.Adasum)


def test_scalars_are_refused() -> None:
    with graph_session(), pytest.raises(ValueError, match="must be at least rank 1"):
        hvd.reducescatter(v1.placeholder(tf.float32, ()))
    with pytest.raises(tf.errors.FailedPreconditionError, match="tried to REDUCESCATTER a rank-zero tensor"):
        hvd.reducescatter(tf.constant(1.0))


@several_ranks
@pytest.mark.parametrize(
    ("shape", "arguments", "text"),
    [
        ((RANK + 1,), {}, "Mismatched REDUCESCATTER tensor shapes"),
        ((4,), {"op": hvd.Sum if RANK else hvd.Max}, "Mismatched reduction operations"),
        ((4,), {"prescale_factor": RANK + 1.0}, "Mismatched prescale and/or postscale factors"),
    ],
    ids=["shapes", "operations", "factors"],
)
def test_ranks_that_disagree_are_all_told(shape: tuple[int, ...], arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(tf.errors.FailedPreconditionError, match=text):
        hvd.reducescatter(values(shape, tf.float32), name="disagreement", **arguments)
    found = hvd.reducescatter(values((4,), tf.float32), op=hvd.Sum, name="disagreement")
    assert_same(found.numpy(), own_rows(summed((4,), tf.float32)))
