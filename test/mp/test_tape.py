"""`DistributedGradientTape`; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.tensorflow as hvd
from tensorflow_support import RANK, SIZE

MEAN = (SIZE + 1) / 2  # of rank + 1
MODES = {"eager": lambda function: function, "function": tf.function}
every_mode = pytest.mark.parametrize("mode", MODES)


def variables() -> dict[str, Any]:
    return {
        "dense": tf.Variable(np.ones((3, 2), np.float32)),
        "rows": tf.Variable(np.ones((4, 2), np.float32)),
        "list": [tf.Variable(1.0), tf.Variable(2.0)],
        "unused": tf.Variable(3.0),
    }


def loss_of(at: dict[str, Any]) -> Any:
    rows = tf.reduce_sum(tf.gather(at["rows"], [RANK % 4]))
    return (tf.reduce_sum(at["dense"]) + rows + 2.0 * at["list"][0] + 3.0 * at["list"][1]) * (RANK + 1.0)


def dense(one: Any) -> Any:
    return tf.convert_to_tensor(one).numpy()


@every_mode
@pytest.mark.parametrize("sparse_as_dense", [False, True], ids=["sparse", "as_dense"])
def test_gradients_are_averages_in_the_structure_of_the_sources(mode: str, sparse_as_dense: bool) -> None:
    at = variables()

    @MODES[mode]
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(at)
        tape = hvd.DistributedGradientTape(tape, sparse_as_dense=sparse_as_dense)
        return tape.gradient(loss, at)

    for _ in range(2):
        found = step()
        assert set(found) == set(at)
        np.testing.assert_allclose(dense(found["dense"]), np.full((3, 2), MEAN), rtol=1e-6)
        expected = np.zeros((4, 2))
        for rank in range(SIZE):
            expected[rank % 4] += (rank + 1) / SIZE
        np.testing.assert_allclose(dense(found["rows"]), expected, rtol=1e-6)
        assert isinstance(found["rows"], tf.IndexedSlices) == (not sparse_as_dense)
        np.testing.assert_allclose([dense(one) for one in found["list"]], [2 * MEAN, 3 * MEAN], rtol=1e-6)
        assert found["unused"] is None


@every_mode
def test_persistent_tape_that_is_wrapped_while_it_records(mode: str) -> None:
    at = variables()

    @MODES[mode]
    def step() -> Any:
        with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
            loss = loss_of(at)
            square = tf.square(loss)
        return tape.gradient(loss, at["list"][0]), tape.gradient([square, loss], at["list"])

    single, both = step()
    np.testing.assert_allclose(dense(single), 2 * MEAN, rtol=1e-6)
    slopes = [2 * (6 + 2 + 2 + 6) * (rank + 1) ** 2 + rank + 1 for rank in range(SIZE)]
    np.testing.assert_allclose([dense(one) for one in both], [np.mean(slopes) * 2, np.mean(slopes) * 3], rtol=1e-5)


@pytest.mark.parametrize("compression", [hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16])
@pytest.mark.parametrize(("op", "factor"), [(hvd.Sum, 1.0), (hvd.Average, 1.0), (hvd.Average, 4.0)])
def test_ways_to_reduce(compression: Any, op: Any, factor: float) -> None:
    at = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(at) * (RANK + 1.0)
    tape = hvd.DistributedGradientTape(tape, compression=compression, op=op, gradient_predivide_factor=factor)
    found = tape.gradient(loss, at, use_generic_names=True)
    np.testing.assert_allclose(found, np.full(2, MEAN * (SIZE if op == hvd.Sum else 1)), rtol=1e-2)


def test_what_does_not_go_is_an_error() -> None:
    with pytest.raises(ValueError, match="wrap a tape once"):
        hvd.DistributedGradientTape(hvd.DistributedGradientTape(tf.GradientTape()))
    with pytest.raises(ValueError, match=r"is not a tf\.GradientTape"):
        hvd.DistributedGradientTape(tf.Variable(1.0))
    with pytest.raises(ValueError, match="gradient_predivide_factor not supported with op != Average"):
        hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum, gradient_predivide_factor=2.0)
    with pytest.raises(ValueError, match="gradient_predivide_factor is 0"):
        hvd.DistributedGradientTape(tf.GradientTape(), gradient_predivide_factor=0)
    with pytest.raises(ValueError, match="op currently only supports Average and Sum"):
        hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Max)


@every_mode
def test_training_on_parts_of_a_batch_is_training_on_the_batch(mode: str) -> None:
    """The same weights as one process has that sees all data."""
    data = np.random.RandomState(7).randn(4 * SIZE, 5).astype(np.float64)

    def train(rows: Any, make_tape: Any) -> Any:
        weight = tf.Variable(np.linspace(0, 1, 5)[:, None])
        moment = tf.Variable(np.zeros((5, 1)))

        @MODES[mode]
        def step() -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(tf.matmul(rows, weight) - 1.0))
            (gradient,) = make_tape(tape).gradient(loss, [weight])
            moment.assign(0.9 * moment + gradient)
            weight.assign_sub(0.05 * moment)

        for _ in range(20):
            step()
        return weight.numpy()

    whole = train(data, lambda tape: tape)
    parts = train(data[4 * RANK : 4 * RANK + 4], hvd.DistributedGradientTape)
    np.testing.assert_allclose(parts, whole, rtol=1e-10)
