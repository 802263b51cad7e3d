"""The Keras optimizer: Keras 2, its legacy optimizers, and Keras 3; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.keras as hvd_keras
import horovod_tf.tensorflow as hvd
from horovod_tf.tensorflow import mpi_ops
from tensorflow_support import RANK, SIZE, graph_session, v1

KERAS_3 = hasattr(tf.keras.optimizers.SGD, "apply")
OPTIMIZERS = [tf.keras.optimizers] + ([] if KERAS_3 else [tf.keras.optimizers.legacy])
every_generation = pytest.mark.parametrize("optimizers", OPTIMIZERS, ids=lambda module: module.__name__)

RATE = 0.01
ROWS = 4


def model_of(optimizer: Any, eager: bool) -> Any:
    """The mean square of (1, 1, 1) . x, compiled."""
    model = tf.keras.Sequential(
        [tf.keras.layers.Input((3,)), tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")]
    )
    model.compile(optimizer, loss="mse", run_eagerly=eager, **({"jit_compile": False} if KERAS_3 else {}))
    return model


def fit(model: Any) -> np.ndarray[Any, Any]:
    """The weights after one step on this rank's data, all x = rank + 1."""
    model.fit(np.full((ROWS, 3), RANK + 1.0, np.float32), np.zeros((ROWS, 1), np.float32), ROWS, 1, verbose=0)
    weights: np.ndarray[Any, Any] = model.get_weights()[0]
    return weights[:, 0]


def gradient(rank: int) -> float:
    """Of the loss with respect to each weight: 2 * (3 * x) * x."""
    return 6.0 * (rank + 1) ** 2


@every_generation
@pytest.mark.parametrize("eager", [True, False], ids=["eager", "function"])
def test_fit_averages_gradients(optimizers: Any, eager: bool) -> None:
    weights = fit(model_of(hvd_keras.DistributedOptimizer(optimizers.SGD(RATE)), eager))
    average = sum(gradient(rank) for rank in range(SIZE)) / SIZE
    np.testing.assert_allclose(weights, 1 - RATE * average, rtol=1e-5)
    everywhere = hvd.allgather(weights[None, :], "weights").numpy()
    assert (everywhere == everywhere[0]).all()


@every_generation
def test_class_name_and_settings_are_the_optimizers(optimizers: Any) -> None:
    plain = optimizers.Adam(0.25, beta_1=0.5, clipnorm=1.5)
    wrapped = hvd_keras.DistributedOptimizer(plain)
    assert (type(wrapped).__name__, type(wrapped).__module__) == (type(plain).__name__, type(plain).__module__)
    assert isinstance(wrapped, type(plain))
    assert wrapped.get_config() == plain.get_config()
    again = type(plain).from_config(wrapped.get_config())
    assert again.clipnorm == 1.5


@every_generation
def test_schedule_of_the_learning_rate_is_kept(optimizers: Any) -> None:
    schedule = tf.keras.optimizers.schedules.PiecewiseConstantDecay([0], [RATE, 2 * RATE])
    model = model_of(hvd_keras.DistributedOptimizer(optimizers.SGD(schedule)), eager=False)
    first = fit(model)
    average = sum(gradient(rank) for rank in range(SIZE)) / SIZE
    np.testing.assert_allclose(first, 1 - RATE * average, rtol=1e-5)
    second = fit(model)
    # All weights are equal, so the second gradient is the first one times the weight.
    np.testing.assert_allclose(second, first - 2 * RATE * average * first, rtol=1e-5)


def test_what_is_no_keras_optimizer_is_refused() -> None:
    with pytest.raises(ValueError, match=r"GradientDescentOptimizer is not a Keras optimizer"):
        hvd_keras.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0))


@pytest.mark.skipif(KERAS_3, reason="Keras 3 has no get_gradients")
def test_get_gradients_averages_once() -> None:
    optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.legacy.SGD(0.5))
    with graph_session() as session:
        weight = v1.get_variable("w", initializer=np.zeros(3, np.float32))
        gradients = optimizer.get_gradients(tf.reduce_sum(weight * (RANK + 1.0)), [weight])
        train = optimizer.apply_gradients(zip(gradients, [weight]))
        ours = [op.name for op in session.graph.get_operations() if op.type in mpi_ops.OP_TYPES]
        assert len(ours) == (0 if SIZE == 1 else 1)
        assert all(name.startswith("DistributedSGD_Allreduce/") for name in ours)
        session.run(v1.global_variables_initializer())
        np.testing.assert_allclose(session.run(gradients[0]), np.full(3, (SIZE + 1) / 2), rtol=1e-6)
        session.run(train)
        np.testing.assert_allclose(session.run(weight), np.full(3, -(SIZE + 1) / 4), rtol=1e-6)


@pytest.mark.skipif(KERAS_3, reason="Keras 3 has no graph mode")
def test_fit_in_graph_mode_averages_once() -> None:
    with graph_session() as session:
        v1.keras.backend.set_session(session)
        weights = fit(model_of(hvd_keras.DistributedOptimizer(tf.keras.optimizers.legacy.SGD(RATE)), eager=False))
        ours = [op for op in session.graph.get_operations() if op.type in mpi_ops.OP_TYPES]
        assert len(ours) == (0 if SIZE == 1 else 1)
    average = sum(gradient(rank) for rank in range(SIZE)) / SIZE
    np.testing.assert_allclose(weights, 1 - RATE * average, rtol=1e-5)


@every_generation
def test_loss_scaling_outside_skips_a_step_on_all_ranks_together(optimizers: Any) -> None:
    """One rank's gradients overflow. Averaged before they are looked at, they are infinite everywhere."""
    scaled = tf.keras.mixed_precision.LossScaleOptimizer(optimizers.SGD(RATE))
    optimizer = hvd_keras.DistributedOptimizer(scaled)
    model = model_of(optimizer, eager=False)
    good = fit(model)
    average = sum(gradient(rank) for rank in range(SIZE)) / SIZE
    np.testing.assert_allclose(good, 1 - RATE * average, rtol=1e-5)
    rows: Any = np.full((ROWS, 3), np.inf if RANK == SIZE - 1 else 1.0, np.float32)
    model.fit(rows, np.zeros((ROWS, 1), np.float32), ROWS, 1, verbose=0)
    np.testing.assert_array_equal(model.get_weights()[0][:, 0], good)


def state_of(optimizer: Any) -> list[np.ndarray[Any, Any]]:
    variables = optimizer.variables
    return [np.array(one.numpy()) for one in (variables() if callable(variables) else variables)]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras with a newer NumPy
@every_generation
def test_saved_model_loads_without_us(optimizers: Any, tmp_path: Path) -> None:
    model = model_of(hvd_keras.DistributedOptimizer(optimizers.Adam(RATE, clipnorm=0.5)), eager=False)
    fit(model)
    file = tmp_path / "model.keras"
    model.save(file)
    loaded = tf.keras.models.load_model(file)
    np.testing.assert_array_equal(loaded.get_weights()[0], model.get_weights()[0])
    assert type(loaded.optimizer) is optimizers.Adam
    assert loaded.optimizer.clipnorm == 0.5
    mine, theirs = state_of(model.optimizer), state_of(loaded.optimizer)
    if optimizers is tf.keras.optimizers:  # Keras 2 does not save the state of legacy ones in this format
        assert len(mine) == len(theirs) > 2
    for one, other in zip(mine, theirs):
        np.testing.assert_array_equal(one, other)
