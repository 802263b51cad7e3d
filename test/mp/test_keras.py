"""The Keras optimizer: Keras 2, its legacy optimizers, and Keras 3; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

import copy
import pickle
import warnings
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
    optimizer = optimizers.Adam(0.25, beta_1=0.5, clipnorm=1.5)
    plain, settings = type(optimizer), optimizer.get_config()
    wrapped = hvd_keras.DistributedOptimizer(optimizer)
    assert wrapped is optimizer
    assert (type(wrapped).__name__, type(wrapped).__module__) == (plain.__name__, plain.__module__)
    assert isinstance(wrapped, plain)
    assert wrapped.get_config() == settings
    assert plain.from_config(wrapped.get_config()).clipnorm == 1.5
    assert type(plain.from_config(settings)) is plain  # others are as they were
    with pytest.raises(ValueError, match="this Adam averages already"):
        hvd_keras.DistributedOptimizer(wrapped)


def weights_after(optimizer: Any, *gradients: Any) -> np.ndarray[Any, Any]:
    """A variable of two zeros, after one step by each of this rank's gradients."""
    weight = tf.Variable(np.zeros(2, np.float32))
    for one in gradients:
        optimizer.apply_gradients([(tf.constant(one, tf.float32), weight)])
    found: np.ndarray[Any, Any] = weight.numpy()
    return found


MEAN = (SIZE + 1) / 2  # of rank + 1


@every_generation
def test_optimizer_made_from_the_settings_averages_too(optimizers: Any) -> None:
    wrapped = hvd_keras.DistributedOptimizer(optimizers.SGD(0.5))
    again = type(wrapped).from_config(wrapped.get_config())
    np.testing.assert_allclose(weights_after(again, [RANK + 1, 0]), [-0.5 * MEAN, 0], rtol=1e-6)


@every_generation
def test_averages_are_what_is_clipped(optimizers: Any) -> None:
    """Rank 0's own gradient is too short to be clipped, those of the others are not."""
    wrapped = hvd_keras.DistributedOptimizer(optimizers.SGD(1.0, clipnorm=1.0))
    own = np.array([0.3, 0.4]) if RANK == 0 else np.array([30.0, 40.0])
    expected = [-0.3, -0.4] if SIZE == 1 else [-0.6, -0.8]
    np.testing.assert_allclose(weights_after(wrapped, own), expected, rtol=1e-5)


@every_generation
def test_rate_can_be_changed(optimizers: Any) -> None:
    wrapped = hvd_keras.DistributedOptimizer(optimizers.SGD(1.0))
    wrapped.learning_rate = 0.25
    np.testing.assert_allclose(weights_after(wrapped, [RANK + 1, 0]), [-0.25 * MEAN, 0], rtol=1e-6)


class Halving(tf.keras.optimizers.schedules.LearningRateSchedule):
    """As tutorials have it: Keras does not know the class, and it has no get_config."""

    def __call__(self, step: Any) -> Any:
        return 0.5 ** tf.cast(step, tf.float32)


@every_generation
@pytest.mark.parametrize("rate", [Halving(), lambda: 0.75], ids=["schedule", "function"])
def test_rate_that_only_this_program_knows(optimizers: Any, rate: Any) -> None:
    wrapped = hvd_keras.DistributedOptimizer(optimizers.SGD(rate))
    found = weights_after(wrapped, [RANK + 1, 0], [RANK + 1, 0])
    np.testing.assert_allclose(found, [-1.5 * MEAN, 0], rtol=1e-6)


@every_generation
def test_subclass_that_cannot_be_made_from_its_settings(optimizers: Any) -> None:
    class Mine(optimizers.SGD):
        def __init__(self, data: list[int]) -> None:
            super().__init__(0.5)
            self.data = data

    wrapped = hvd_keras.DistributedOptimizer(Mine([1, 2]))
    assert list(wrapped.data) == [1, 2]
    np.testing.assert_allclose(weights_after(wrapped, [RANK + 1, 0]), [-0.5 * MEAN, 0], rtol=1e-6)


@every_generation
def test_rows_and_what_has_no_gradient(optimizers: Any) -> None:
    wrapped = hvd_keras.DistributedOptimizer(optimizers.SGD(1.0))
    table, unused = tf.Variable(np.zeros((SIZE + 1, 2), np.float32)), tf.Variable([7.0])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, [RANK, SIZE])) * (RANK + 1)
    gradients = tape.gradient(loss, [table, unused])
    assert isinstance(gradients[0], tf.IndexedSlices)
    assert gradients[1] is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras's, about the one without
        wrapped.apply_gradients(zip(gradients, [table, unused]))
    rows = -np.array([*(np.arange(SIZE) + 1), SIZE * MEAN]) / SIZE
    np.testing.assert_allclose(table.numpy(), np.repeat(rows[:, None], 2, axis=1), rtol=1e-6)
    assert unused.numpy() == [7.0]


# Keras 3 does so with NumPy 2 when it saves a variable.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_state_of_a_loaded_model_is_kept(tmp_path: Path) -> None:
    """Saved and loaded, what a momentum has gathered goes into the next step; and the file needs no such class."""
    optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(RATE, momentum=0.5))
    model = model_of(optimizer, eager=False)
    fit(model)
    path = str(tmp_path / "model.keras")
    model.save(path)
    loaded = tf.keras.models.load_model(path)
    assert type(loaded.optimizer) is tf.keras.optimizers.SGD
    if KERAS_3:
        loaded.compile(hvd_keras.DistributedOptimizer(loaded.optimizer), loss="mse", jit_compile=False)
    else:
        loaded.compile(hvd_keras.DistributedOptimizer(loaded.optimizer), loss="mse")
    np.testing.assert_array_equal(fit(loaded), fit(model))


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


@every_generation
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_average_too(optimizers: Any, copied: Any) -> None:
    """Where Keras has plain ones copied."""
    try:
        copied(optimizers.SGD(1.0))
    except (AttributeError, RuntimeError, TypeError):
        pytest.skip("this Keras does not have its own optimizers copied so")
    optimizer = hvd_keras.DistributedOptimizer(optimizers.SGD(1.0), op=hvd.Sum)
    for one in (copied(optimizer), copied(copied(optimizer)), optimizer):
        weight = tf.Variable([0.0])
        one.apply_gradients([(tf.constant([RANK + 1.0]), weight)])
        np.testing.assert_allclose(weight, [-SIZE * (SIZE + 1) / 2])
        assert type(one).__name__ == "SGD"
        assert one.get_config() == optimizer.get_config()


@every_generation
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_of_loss_scaling_around_average_too(optimizers: Any, copied: Any) -> None:
    scaled = getattr(optimizers, "LossScaleOptimizer", tf.keras.mixed_precision.LossScaleOptimizer)
    try:
        plain = copied(scaled(optimizers.SGD(1.0)))
    except (AttributeError, RuntimeError, TypeError):
        pytest.skip("this Keras does not have its own loss scaling copied so")
    assert type(plain.inner_optimizer) is optimizers.SGD
    optimizer = scaled(hvd_keras.DistributedOptimizer(optimizers.SGD(1.0), op=hvd.Sum))
    weight = tf.Variable([0.0])  # one for all, as Keras 2's shallow copies share what is inside
    for one in (copied(optimizer), copied(copied(optimizer)), optimizer):
        weight.assign([0.0])
        if KERAS_3:
            one.build([weight])
        scale = one.scale_loss(1.0) if KERAS_3 else 1.0  # Keras 2 has scripts take the scale out themselves
        one.apply_gradients([(tf.constant([RANK + 1.0]) * scale, weight)])
        np.testing.assert_allclose(weight, [-SIZE * (SIZE + 1) / 2])


@every_generation
@pytest.mark.parametrize("passes", [1, 2])
def test_by_the_name_for_optimizers_of_graphs(optimizers: Any, passes: int) -> None:
    inner = optimizers.SGD(1.0)
    optimizer = hvd.DistributedOptimizer(inner, op=hvd.Sum, backward_passes_per_step=passes)
    assert optimizer is inner
    weight = tf.Variable([0.0])
    for _ in range(passes):
        optimizer.apply_gradients([(tf.constant([RANK + 1.0]), weight)])
    np.testing.assert_allclose(weight, [-passes * SIZE * (SIZE + 1) / 2])


def test_what_is_no_optimizer_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match=r"builtins\.list is neither an optimizer of tf\.compat\.v1\.train nor one of"):
        hvd.DistributedOptimizer([])


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
