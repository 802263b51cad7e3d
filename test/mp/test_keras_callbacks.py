"""Callbacks, values and saved models of Keras 2 and Keras 3; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.tensorflow.keras as hvd
from horovod_tf.keras.state import scale_momentum, value_of, variables_of
from tensorflow_support import RANK, SIZE, several_ranks, v1

# Keras itself, when it saves and sets weights, with NumPy 2.
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file:UserWarning"),
]

KERAS_3 = hasattr(tf.keras.optimizers.SGD, "apply")
OPTIMIZERS = [tf.keras.optimizers] + ([] if KERAS_3 else [tf.keras.optimizers.legacy])
every_generation = pytest.mark.parametrize("optimizers", OPTIMIZERS, ids=lambda module: module.__name__)
SETTINGS: dict[str, Any] = {"jit_compile": False} if KERAS_3 else {}


def model_of(optimizer: Any, width: int = 1, metrics: Any = None) -> Any:
    """Ranks begin with different weights."""
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((2,)),
            tf.keras.layers.Dense(width, kernel_initializer=tf.keras.initializers.Constant(RANK + 1.0)),
        ]
    )
    loss = tf.keras.losses.MeanSquaredError()
    model.compile(hvd.DistributedOptimizer(optimizer), loss=loss, metrics=metrics, **SETTINGS)
    return model


def fit(model: Any, callbacks: list[Any], epochs: int = 1, steps: int = 2, **more: Any) -> Any:
    x: Any = np.full((4 * steps, 2), RANK + 1.0, np.float32)
    return model.fit(x, x[:, :1], 4, epochs, verbose=0, shuffle=False, callbacks=callbacks, **more)


class Notes(tf.keras.callbacks.Callback):
    """What the learning rate and the weights are at each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.rates: list[float] = []
        self.first_weights: Any = None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.rates.append(float(value_of(self.model.optimizer.learning_rate)))
        if self.first_weights is None:
            self.first_weights = self.model.get_weights()


def state_of(model: Any) -> list[Any]:
    return [value_of(one) for one in [*model.weights, *variables_of(model.optimizer)]]


def assert_equal_on_all_ranks(values: list[Any]) -> None:
    for other in hvd.allgather_object(values, name="state"):
        assert len(other) == len(values)
        for mine, its in zip(values, other):
            np.testing.assert_array_equal(mine, its)


@every_generation
@pytest.mark.parametrize("root", range(SIZE))
def test_all_begin_with_what_the_root_has(optimizers: Any, root: int) -> None:
    model, notes = model_of(optimizers.Adam(0.1)), Notes()
    fit(model, [hvd.callbacks.BroadcastGlobalVariablesCallback(root), notes])
    np.testing.assert_array_equal(notes.first_weights[0], np.full((2, 1), root + 1.0))
    assert_equal_on_all_ranks(state_of(model))


def test_variables_of_the_optimizer_come_after_the_first_batch() -> None:
    """As after loading on one rank: its step count is another one's."""
    model = model_of(tf.keras.optimizers.Adam(0.1))
    if RANK == 0:
        model.optimizer.iterations.assign(7)
    fit(model, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    assert int(value_of(model.optimizer.iterations)) == 9
    assert_equal_on_all_ranks(state_of(model))


def test_variables_of_ones_own_are_left_alone() -> None:
    model = model_of(tf.keras.optimizers.SGD(0.0))
    kernel, bias = model.weights
    bias.assign([RANK + 5.0])
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[bias])
    fit(model, [callback])
    np.testing.assert_array_equal(value_of(kernel), np.full((2, 1), 1.0))
    np.testing.assert_array_equal(value_of(bias), [RANK + 5.0])
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    callback.register_local_var(bias)
    fit(model, [callback])
    np.testing.assert_array_equal(value_of(bias), [RANK + 5.0])


def test_metrics_are_averages_for_the_callbacks_behind() -> None:
    model = model_of(tf.keras.optimizers.SGD(0.0), metrics=["mae"])
    seen: list[dict[str, float]] = []
    last = tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(dict(logs)))
    first = tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(dict(logs)))
    fit(model, [first, hvd.callbacks.MetricAverageCallback(), last])
    own, averaged = seen
    every = hvd.allgather_object(own)
    for name in ("loss", "mae"):
        assert averaged[name] == pytest.approx(np.mean([one[name] for one in every]))


@several_ranks
def test_metrics_that_not_all_have_are_an_error_on_all() -> None:
    model = model_of(tf.keras.optimizers.SGD(0.0), metrics=["mae"] if RANK == 1 else None)
    with pytest.raises(ValueError, match=r"rank 0 has \['loss'\] and rank 1 has \['loss', 'mae'\]"):
        fit(model, [hvd.callbacks.MetricAverageCallback()])


def test_all_stop_after_the_same_epoch() -> None:
    """By its own loss rank 0 would stop first: it does not improve from the second epoch on."""
    epochs: list[int] = []
    losses = {0: [5.0, 5.0, 5.0, 5.0], 1: [9.0, 7.0, 9.0, 9.0]}.get(RANK, [5.0, 5.0, 5.0, 5.0])
    if SIZE == 1:
        losses = [5.0, 4.0, 4.0, 4.0]

    def say(epoch: int, logs: Any) -> None:
        logs["val_loss"] = losses[epoch]
        epochs.append(epoch)

    says = tf.keras.callbacks.LambdaCallback(on_epoch_end=say)
    stopping = hvd.callbacks.EarlyStopping(monitor="val_loss", patience=1)
    fit(model_of(tf.keras.optimizers.SGD(0.0)), [says, stopping], epochs=4)
    assert epochs == [0, 1, 2]


@every_generation
def test_schedule_of_the_epoch(optimizers: Any) -> None:
    model, notes = model_of(optimizers.SGD(1.0)), Notes()
    schedules = [
        hvd.callbacks.LearningRateScheduleCallback(0.5, 0.1, start_epoch=1, end_epoch=3),
        hvd.callbacks.LearningRateScheduleCallback(0.25, lambda epoch: 1 / (1 + epoch), start_epoch=3),
    ]
    history = fit(model, [*schedules, notes], epochs=5)
    expected = [1.0, 0.5, 0.05, 0.25 / 4, 0.25 / 5]
    np.testing.assert_allclose(notes.rates, np.repeat(expected, 2), rtol=1e-6)
    np.testing.assert_allclose(history.history["lr"], expected, rtol=1e-6)


@every_generation
def test_schedule_within_epochs_and_warm_up(optimizers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    model, notes = model_of(optimizers.SGD(1.0)), Notes()
    smooth = hvd.callbacks.LearningRateScheduleCallback(2.0, lambda epoch: 1 + epoch, staircase=False)
    fit(model, [smooth, notes], epochs=2, steps=4)
    np.testing.assert_allclose(notes.rates, [2 * (1 + i / 4) for i in range(8)], rtol=1e-6)
    notes = Notes()
    warm_up = hvd.callbacks.LearningRateWarmupCallback(0.8, warmup_epochs=2, verbose=1)
    fit(model_of(optimizers.SGD(0.8)), [warm_up, notes], epochs=3, steps=4)
    ramp = [0.8 * (1 / SIZE + (1 - 1 / SIZE) * (i + 1) / 8) for i in range(8)]
    np.testing.assert_allclose(notes.rates, [*ramp, *[0.8] * 4], rtol=1e-6)
    assert ("the warm-up of the learning rate ends at 0.8" in capsys.readouterr().out) == (RANK == 0)


@every_generation
@pytest.mark.parametrize("correction", [True, False])
def test_what_is_left_of_earlier_steps_is_changed_as_the_rate_is(optimizers: Any, correction: bool) -> None:
    """One weight whose gradient is 1: by hand."""
    model = tf.keras.Sequential([tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1, use_bias=False)])
    optimizer = hvd.DistributedOptimizer(optimizers.SGD(1.0, momentum=0.5))
    model.compile(optimizer, loss=lambda wanted, found: tf.reduce_mean(found), **SETTINGS)
    model.set_weights([np.zeros((1, 1))])
    schedule = hvd.callbacks.LearningRateScheduleCallback(1.0, 0.1, momentum_correction=correction)
    ones: Any = np.ones((2, 1), np.float32)
    model.fit(ones, ones, 1, 3, verbose=0, callbacks=[schedule])
    weight, left, rate = 0.0, 0.0, 1.0
    for epoch in range(3):
        if epoch and correction:
            left *= 0.1
        rate = 0.1**epoch
        for _ in range(2):
            left = 0.5 * left - rate
            weight += left
    np.testing.assert_allclose(model.get_weights()[0], [[weight]], rtol=1e-5)


@every_generation
def test_rate_and_momentum_inside_of_loss_scaling(optimizers: Any) -> None:
    inner = optimizers.SGD(0.5, momentum=0.5)
    scaled = tf.keras.mixed_precision.LossScaleOptimizer(inner)
    model = model_of(scaled)
    schedule = hvd.callbacks.LearningRateScheduleCallback(0.5, 0.5, start_epoch=1)
    fit(model, [hvd.callbacks.BroadcastGlobalVariablesCallback(0), schedule])
    before = [value_of(one) for one in variables_of(inner) if np.ndim(value_of(one))]
    assert any(one.any() for one in before)
    schedule.on_epoch_begin(2)
    assert float(value_of(inner.learning_rate)) == 0.25
    after = [value_of(one) for one in variables_of(inner) if np.ndim(value_of(one))]
    for one, other in zip(before, after):
        np.testing.assert_allclose(other, one / 2, rtol=1e-6)
    decay = optimizers.schedules.ExponentialDecay(0.1, 10, 0.5) if hasattr(optimizers, "schedules") else None
    if decay is not None:
        scaled = tf.keras.mixed_precision.LossScaleOptimizer(optimizers.SGD(decay))
        with pytest.raises(ValueError, match="ExponentialDecay"):
            fit(model_of(scaled), [schedule])


@every_generation
@pytest.mark.parametrize("kind", ["SGD", "RMSprop", "Adam"])
def test_momentum_that_has_the_rate_in_it(optimizers: Any, kind: str) -> None:
    optimizer = getattr(optimizers, kind)(0.5, **({} if kind == "Adam" else {"momentum": 0.5}))
    optimizer.apply_gradients([(tf.ones([2]), tf.Variable([1.0, 2.0]))])
    before = [value_of(one) for one in variables_of(optimizer)]
    scale_momentum(optimizer, 2.0)
    after = [value_of(one) for one in variables_of(optimizer)]
    changed = [(one, other) for one, other in zip(before, after) if not np.array_equal(one, other)]
    assert len(changed) == (0 if kind == "Adam" else 1)
    for one, other in changed:
        np.testing.assert_allclose(other, 2 * one, rtol=1e-6)


@every_generation
def test_model_that_its_first_batch_builds(optimizers: Any) -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(optimizers.SGD(0.1)), loss="mse", **SETTINGS)
    fit(model, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    assert_equal_on_all_ranks(state_of(model))


def test_what_callbacks_cannot_do_is_an_error() -> None:
    nothing: Any = None
    with pytest.raises(ValueError, match="initial_lr"):
        hvd.callbacks.LearningRateScheduleCallback(nothing, 0.1)
    decay = tf.keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    with pytest.raises(ValueError, match="ExponentialDecay"):
        fit(model_of(tf.keras.optimizers.SGD(decay)), [hvd.callbacks.LearningRateScheduleCallback(0.1, 0.1)])
    endless = tf.data.Dataset.from_tensors((np.ones((4, 2), np.float32), np.ones((4, 1), np.float32))).repeat()
    limited = endless.take(3).filter(lambda x, y: True)
    with pytest.raises(ValueError, match="give steps_per_epoch"):
        model_of(tf.keras.optimizers.SGD(0.1)).fit(
            limited, verbose=0, shuffle=False, callbacks=[hvd.callbacks.LearningRateWarmupCallback(0.1)]
        )


def test_values() -> None:
    assert hvd.allreduce(RANK + 1.0) == pytest.approx((SIZE + 1) / 2)
    assert hvd.allreduce(RANK + 1.0, average=False) == pytest.approx(SIZE * (SIZE + 1) / 2)
    assert hvd.allreduce(np.ones(3), op=hvd.Sum, compression=hvd.Compression.fp16).tolist() == [SIZE] * 3
    assert hvd.allgather([RANK], "rows").tolist() == list(range(SIZE))
    assert hvd.broadcast(RANK, SIZE - 1) == SIZE - 1
    assert hvd.reducescatter(np.arange(SIZE) * SIZE).tolist() == [RANK * SIZE]
    with pytest.raises(RuntimeError, match="broadcast_variables"):
        hvd.broadcast_global_variables(0)


# From .h5, Keras 3 loads an optimizer that knows other variables than the model's.
@pytest.mark.parametrize("kind", ["keras"] if KERAS_3 else ["keras", "h5"])
def test_loaded_model_goes_on_averaging(kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / f"model.{kind}")
    model = model_of(tf.keras.optimizers.SGD(0.1, momentum=0.5))
    fit(model, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    model.save(path)
    loaded = hvd.load_model(path, compression=hvd.Compression.none)
    assert type(loaded.optimizer).__name__ == "SGD"
    fit(model, [])
    fit(loaded, [])
    for mine, its in zip(model.get_weights(), loaded.get_weights()):
        np.testing.assert_allclose(mine, its, rtol=1e-6)
    assert_equal_on_all_ranks(loaded.get_weights())


def test_loaded_model_with_an_optimizer_of_the_programs_own_and_one_without(tmp_path: Path) -> None:
    class Mine(tf.keras.optimizers.SGD):
        pass

    model = model_of(Mine(0.1))
    fit(model, [])
    model.save(str(tmp_path / "mine.keras"))
    assert isinstance(hvd.load_model(str(tmp_path / "mine.keras"), custom_optimizers=[Mine]).optimizer, Mine)
    bare = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1)])
    bare.save(str(tmp_path / "bare.keras"))
    loaded = hvd.load_model(str(tmp_path / "bare.keras"))
    np.testing.assert_array_equal(loaded.get_weights()[0], bare.get_weights()[0])
    loaded.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), loss="mse", run_eagerly=True)
    fit(loaded, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    assert_equal_on_all_ranks(loaded.get_weights())


@pytest.mark.skipif(KERAS_3, reason="Keras 3 has no sessions")
def test_in_keras_session() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        v1.keras.backend.set_session(session)
        weight = v1.get_variable("w", initializer=[RANK + 1.0])
        session.run(v1.global_variables_initializer())
        hvd.broadcast_global_variables(0)
        assert session.run(weight).tolist() == [1.0]
        assert hvd.allreduce(RANK + 1.0, op=hvd.Sum) == pytest.approx(SIZE * (SIZE + 1) / 2)
    v1.keras.backend.clear_session()
