"""Every optimizer that Keras has: N ranks with a part of the batch train as one process with all of it."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.keras as hvd_keras
from tensorflow_support import RANK, SIZE

KERAS_3 = hasattr(tf.keras.optimizers.SGD, "apply")
MODULES = [tf.keras.optimizers] + ([] if KERAS_3 else [tf.keras.optimizers.legacy])
ROWS = 4
STEPS = 3
# Of Keras itself: around others, or the base of all.
NONE_OF_THEM = {"Optimizer", "LossScaleOptimizer", "MultiOptimizer"}
OPTIONS: dict[str, dict[str, Any]] = {
    "clipnorm": {"clipnorm": 0.5},
    "clipvalue": {"clipvalue": 0.1},
    "global_clipnorm": {"global_clipnorm": 0.5},
    "moving_average": {"use_ema": True, "ema_overwrite_frequency": 2},
}


def classes_of(module: Any) -> list[type]:
    found = [one for name, one in vars(module).items() if inspect.isclass(one) and name not in NONE_OF_THEM]
    optimizers = {one for one in found if callable(getattr(one, "apply_gradients", None))}
    return sorted(optimizers, key=lambda one: one.__name__)


def name_of(kind: type) -> str:
    return f"{kind.__module__.split('.')[-2]}-{kind.__name__}"


ALL = [one for module in MODULES for one in classes_of(module)]


def made(kind: Any, options: dict[str, Any]) -> Any:
    try:
        return kind(learning_rate=0.05, **options)
    except (TypeError, ValueError) as error:
        pytest.skip(f"Keras: {error}")


def trained(optimizer: Any, parts: list[slice]) -> list[Any]:
    """A small net's weights after some steps on these rows of each batch."""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input((3,)),
            layers.Dense(4, "tanh", kernel_initializer=tf.keras.initializers.Constant(0.25)),
            layers.Dense(2, kernel_initializer=tf.keras.initializers.Constant(0.5)),
        ]
    )
    dice = np.random.default_rng(5)
    model.build((None, 3))
    model.set_weights([dice.normal(size=one.shape).astype(np.float32) for one in model.get_weights()])

    @tf.function
    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))

    for _ in range(STEPS):
        x, y = dice.normal(size=(ROWS * SIZE, 3)), dice.normal(size=(ROWS * SIZE, 2))
        for part in parts:
            step(tf.constant(x[part], tf.float32), tf.constant(y[part], tf.float32))
    return [np.array(one) for one in model.get_weights()]


def check(kind: Any, options: dict[str, Any]) -> None:
    whole = trained(made(kind, options), [slice(None)])
    parts = trained(hvd_keras.DistributedOptimizer(made(kind, options)), [slice(RANK * ROWS, (RANK + 1) * ROWS)])
    for one, other in zip(parts, whole):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ALL, ids=name_of)
def test_parts_of_the_batch_train_as_the_whole(kind: Any) -> None:
    check(kind, {})


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_what_is_clipped_and_averaged_over_time_is_the_average(module: Any, options: dict[str, Any]) -> None:
    check(module.Adam, options)


def test_there_are_many() -> None:
    assert len(ALL) >= 9
