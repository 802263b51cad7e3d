"""`op=`, factors, compression, and what is made of them; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.tensorflow as hvd
from tensorflow_support import ORDERED, RANK, REDUCIBLE, SIZE, assert_same, by_name, graph_session, v1, values

REDUCED: dict[Any, Any] = {hvd.Min: np.min, hvd.Max: np.max, hvd.Sum: np.sum, hvd.Product: np.prod}
FLOATS = [dtype for dtype in REDUCIBLE if dtype.is_floating]


def small(dtype: tf.DType, rank: int) -> np.ndarray[Any, Any]:
    """1, 2 or 3: their product over four ranks is exact in every type, int8 included."""
    return ((np.arange(15).reshape(3, 5) + rank) % 3 + 1).astype(dtype.as_numpy_dtype)


@pytest.mark.parametrize("op", REDUCED, ids=lambda op: op.name.lower())
@by_name(REDUCIBLE)
def test_every_reduction_of_every_type(dtype: tf.DType, op: Any) -> None:
    if op in (hvd.Min, hvd.Max) and dtype not in ORDERED:
        pytest.skip("complex numbers have no order")
    found = hvd.allreduce(small(dtype, RANK), op=op, name=f"reduced_{op.name}")
    expected = REDUCED[op](np.stack([small(tf.float64, rank) for rank in range(SIZE)]), axis=0)
    assert_same(found.numpy(), expected.astype(dtype.as_numpy_dtype))


def test_average_is_what_one_gets_without_asking() -> None:
    ones = tf.fill([3], RANK + 1.0)
    mean: Any = np.full(3, (SIZE + 1) / 2, np.float32)
    for arguments in ({}, {"average": True}, {"op": hvd.Average}, {"op": 0}):
        np.testing.assert_allclose(hvd.allreduce(ones, **arguments), mean, rtol=1e-6)
    assert_same(hvd.allreduce(ones, average=False).numpy(), hvd.allreduce(ones, op=hvd.Sum).numpy())


def test_arguments_are_where_scripts_expect_them() -> None:
    ones = tf.fill([3], tf.constant(RANK + 1.0, tf.float64))
    found = hvd.allreduce(ones, None, "", "", hvd.Compression.none, hvd.Sum, 0.5, 4.0, "by_place")
    np.testing.assert_allclose(found, np.full(3, 2.0 * SIZE * (SIZE + 1) / 2))
    (found,) = hvd.grouped_allreduce([ones], None, "", "", hvd.Compression.none, hvd.Sum, 0.5, 4.0)
    np.testing.assert_allclose(found, np.full(3, 2.0 * SIZE * (SIZE + 1) / 2))


@pytest.mark.parametrize("call", [hvd.allreduce, lambda one, **more: hvd.grouped_allreduce([one], **more)])
def test_reductions_that_are_none_are_errors_before_anything_is_sent(call: Any) -> None:
    ones = tf.ones([3])
    with pytest.raises(ValueError, match="op parameter supersedes average"):
        call(ones, average=True, op=hvd.Sum)
    with pytest.raises(ValueError, match=r"none of hvd\.Average"):
        call(ones, op=7)
    with pytest.raises(NotImplementedError, match="Adasum is not offered"):
        call(ones, op=hvd.Adasum)
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([RANK]), tf.constant([4, 2]))
    with pytest.raises(NotImplementedError, match="only Sum and Average ops are supported"):
        call(slices, op=hvd.Max)


def test_factors_of_sparse_tensors() -> None:
    slices = tf.IndexedSlices(tf.ones([1, 2]) * (RANK + 1.0), tf.constant([RANK]), tf.constant([SIZE, 2]))
    found = hvd.allreduce(slices, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    expected = np.repeat(2.0 * np.arange(1, SIZE + 1)[:, None], 2, axis=1)
    np.testing.assert_allclose(tf.convert_to_tensor(found), expected)


@pytest.mark.parametrize("op", [hvd.Min, hvd.Max], ids=lambda op: op.name.lower())
@by_name([tf.complex64, tf.complex128])
def test_complex_numbers_have_no_order(dtype: tf.DType, op: Any) -> None:
    for call in (hvd.allreduce, hvd.reducescatter):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"of {dtype.name}: complex numbers have no order"):
            call(tf.zeros([3], dtype), op=op)


@by_name([tf.complex64, tf.complex128])
def test_products_and_factors_of_complex_numbers(dtype: tf.DType) -> None:
    found = hvd.allreduce(tf.constant([1.0 + 1.0j, 2.0j], dtype), op=hvd.Product)
    assert_same(found.numpy(), np.array([(1 + 1j) ** SIZE, 2j**SIZE], dtype.as_numpy_dtype))
    found = hvd.allreduce(tf.constant([1.0 - 3.0j], dtype), prescale_factor=0.5, postscale_factor=4.0)
    np.testing.assert_allclose(found, [2.0 - 6.0j], rtol=1e-6)
    slices = tf.IndexedSlices(tf.constant([[1.0 - 3.0j]], dtype), tf.constant([0]), tf.constant([1, 1]))
    sparse = hvd.allreduce(slices, prescale_factor=0.5, postscale_factor=4.0)
    np.testing.assert_allclose(tf.convert_to_tensor(sparse), [[2.0 - 6.0j]], rtol=1e-6)


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average], ids=lambda op: op.name.lower())
@by_name([tf.float32, tf.float64])
def test_gradient_with_factors_is_the_adjoint(dtype: tf.DType, op: Any) -> None:
    """y_r = post / (N or 1) * sum of pre * x_q over q, so the gradient of sum of w_r y_r is the same with w."""
    with graph_session() as session:
        x = v1.placeholder(dtype, (3, 5))
        y = hvd.allreduce(x, op=op, prescale_factor=0.5, postscale_factor=6.0)
        found = session.run(v1.gradients(y, x, grad_ys=small(dtype, RANK))[0], {x: values((3, 5), dtype)})
    total = np.sum([small(dtype, rank) for rank in range(SIZE)], axis=0) * 3.0
    np.testing.assert_allclose(found, total / (SIZE if op == hvd.Average else 1), rtol=1e-6)


@pytest.mark.parametrize("op", [hvd.Min, hvd.Max, hvd.Product], ids=lambda op: op.name.lower())
def test_reductions_without_a_gradient_say_so(op: Any) -> None:
    with graph_session():
        x = v1.placeholder(tf.float32, (3,))
        y = hvd.allreduce(x, op=op)
        with pytest.raises((NotImplementedError, LookupError), match="has no gradient"):
            v1.gradients(y, x)


@pytest.mark.parametrize("compression", [hvd.Compression.fp16, hvd.Compression.bf16], ids=["fp16", "bf16"])
@by_name(REDUCIBLE)
def test_compression_gives_the_type_back(dtype: tf.DType, compression: Any) -> None:
    """Small whole numbers survive any compression; what is no floating point is not compressed."""
    found = hvd.allreduce(small(dtype, RANK), op=hvd.Sum, compression=compression)
    total = np.sum([small(dtype, rank) for rank in range(SIZE)], axis=0)
    assert_same(found.numpy(), total.astype(dtype.as_numpy_dtype))


def test_compression_travels_as_two_bytes_under_the_tensors_name() -> None:
    with graph_session() as session:
        x = v1.placeholder(tf.float32, (3,), name="wide")
        alone = hvd.allreduce(x, compression=hvd.Compression.fp16)
        group = hvd.grouped_allreduce([x, x], compression=hvd.Compression.bf16, name="pair")
        ours = {op.name: op.get_attr("T") for op in session.graph.get_operations() if op.type.startswith("Horovod")}
        assert ours == {"HorovodAllreduce_wide_0": tf.float16, "pair": tf.bfloat16}
        for found in session.run([alone, *group], {x: np.full(3, RANK + 1.0)}):
            np.testing.assert_allclose(found, np.full(3, (SIZE + 1) / 2))


def test_halves_are_not_compressed_into_other_halves() -> None:
    tensor = tf.constant(3e38, tf.bfloat16)
    assert hvd.Compression.fp16.compress(tensor) == (tensor, None)


def test_grouped_allgather_and_barrier() -> None:
    rows = [tf.fill([RANK, 2], float(RANK)), tf.fill([1], RANK)]
    for name in (None, "both"):
        first, second = hvd.grouped_allgather(rows, name=name)
        assert_same(first.numpy(), np.repeat(np.arange(SIZE), np.arange(SIZE))[:, None].repeat(2, 1).astype(np.float32))
        assert_same(second.numpy(), np.arange(SIZE, dtype=np.int32))
    assert hvd.barrier() is None
    with graph_session() as session:
        assert session.run(hvd.barrier(name="here")) is None
