"""Wrapped optimizers among clipping, schedules, loss scaling, settings; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.keras as hvd_keras
import horovod_tf.tensorflow as hvd
from tensorflow_support import RANK, SIZE

KERAS_3 = hasattr(tf.keras.optimizers.SGD, "apply")
OPTIMIZERS = [tf.keras.optimizers] + ([] if KERAS_3 else [tf.keras.optimizers.legacy])
every_generation = pytest.mark.parametrize("optimizers", OPTIMIZERS, ids=lambda module: module.__name__)
every_passes = pytest.mark.parametrize("passes", [1, 2])
CLIPS = {"clipnorm": 1.0, "global_clipnorm": 1.0, "clipvalue": 0.75}
OWN = np.array([[3.0, 4.0], [30.0, 40.0], [-6.0, 8.0]])  # of ranks 0, 1, 2


@every_generation
@pytest.mark.parametrize("clip", CLIPS)
def test_keras_clips_the_averages(optimizers: Any, clip: str) -> None:
    optimizer = hvd_keras.DistributedOptimizer(optimizers.SGD(1.0, **{clip: CLIPS[clip]}))
    weight = tf.Variable(np.zeros(2, np.float32))
    optimizer.apply_gradients([(tf.constant(OWN[RANK % 3], tf.float32), weight)])
    mean: Any = np.mean([OWN[rank % 3] for rank in range(SIZE)], axis=0)
    norm = float(np.linalg.norm(mean))
    expected = np.clip(mean, -0.75, 0.75) if clip == "clipvalue" else mean / max(norm, 1.0)
    np.testing.assert_allclose(weight, -expected, rtol=1e-5)


@every_generation
def test_clipped_before_by_hand(optimizers: Any) -> None:
    """What is clipped before it is given to the optimizer is each rank's own gradient."""
    optimizer = hvd_keras.DistributedOptimizer(optimizers.SGD(1.0))
    weight = tf.Variable(np.zeros(2, np.float32))
    own, _ = tf.clip_by_global_norm([tf.constant(OWN[RANK % 3], tf.float32)], 1.0)
    optimizer.apply_gradients(zip(own, [weight]))
    expected: Any = np.mean([OWN[rank % 3] / np.linalg.norm(OWN[rank % 3]) for rank in range(SIZE)], axis=0)
    np.testing.assert_allclose(weight, -expected, rtol=1e-5)


def test_tape_then_clip() -> None:
    """[3, 4] and its tenfold: the mean clipped to length 1, the same on all ranks."""
    weight = tf.Variable(np.zeros(2, np.float32))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weight * [3.0, 4.0]) * (10.0**RANK)
    (gradient,) = hvd.DistributedGradientTape(tape).gradient(loss, [weight])
    (clipped,), _ = tf.clip_by_global_norm([gradient], 1.0)
    np.testing.assert_allclose(clipped, [0.6, 0.8], rtol=1e-5)


@every_generation
@every_passes
def test_settings_come_back_with_a_schedule(optimizers: Any, passes: int) -> None:
    """The schedule counts steps, not passes."""
    schedule = tf.keras.optimizers.schedules.ExponentialDecay(0.5, 1, 0.5, staircase=True)
    first = hvd_keras.DistributedOptimizer(
        optimizers.SGD(schedule), backward_passes_per_step=passes, average_aggregated_gradients=True
    )
    again = type(first).from_config(first.get_config())
    for optimizer in (first, again):
        weight = tf.Variable(np.zeros(2, np.float32))
        for _ in range(2 * passes):
            optimizer.apply_gradients([(tf.constant([RANK + 1.0, 0.0]), weight)])
        np.testing.assert_allclose(weight, [-(0.5 + 0.25) * (SIZE + 1) / 2, 0.0], rtol=1e-6)
        assert int(optimizer.iterations) == 2
    plain = optimizers.SGD.from_config(first.get_config())
    assert type(plain) is optimizers.SGD


def scaled_inside(optimizer: Any, **options: Any) -> Any:
    return hvd_keras.DistributedOptimizer(tf.keras.mixed_precision.LossScaleOptimizer(optimizer), **options)


def scaled_outside(optimizer: Any, **options: Any) -> Any:
    return tf.keras.mixed_precision.LossScaleOptimizer(hvd_keras.DistributedOptimizer(optimizer, **options))


every_scaling = pytest.mark.parametrize(
    "scaling", [scaled_inside, scaled_outside, hvd_keras.DistributedOptimizer], ids=["inside", "outside", "by_compile"]
)


@every_generation
@every_passes
@every_scaling
def test_compiled_under_mixed_precision(optimizers: Any, passes: int, scaling: Any) -> None:
    """float16 inside, float32 weights; and then one rank's gradients overflow: all skip that step."""
    if optimizers is not tf.keras.optimizers:
        pytest.skip("Keras' compile knows loss scaling of its own generation")
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        layers = tf.keras.layers
        model = tf.keras.Sequential([layers.Input((3,)), layers.Dense(1, use_bias=False, kernel_initializer="ones")])
        optimizer = scaling(optimizers.SGD(8.0), backward_passes_per_step=passes, average_aggregated_gradients=True)
        model.compile(optimizer, loss="mse", **({"jit_compile": False} if KERAS_3 else {}))
        assert isinstance(model.optimizer, tf.keras.mixed_precision.LossScaleOptimizer)
        # Small: a gradient times the first scale, 2^15, must be a float16.
        x: Any = np.full((4 * passes, 3), (RANK + 1) / 16, np.float32)
        model.fit(x, np.zeros((len(x), 1)), 4, 1, verbose=0)
        mean = np.mean([6.0 * ((rank + 1) / 16) ** 2 for rank in range(SIZE)])
        stepped = model.get_weights()[0][:, 0]
        np.testing.assert_allclose(stepped, np.full(3, 1 - 8.0 * mean), rtol=1e-3)
        if RANK == SIZE - 1:
            x[:4] = np.inf
        model.fit(x, np.zeros((len(x), 1)), 4, 1, verbose=0, shuffle=False)
        np.testing.assert_array_equal(model.get_weights()[0][:, 0], stepped)
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")


@pytest.mark.parametrize("persistent", [True, False])
def test_nested_sources_of_a_tape(persistent: bool) -> None:
    weights = {"a": [tf.Variable(1.0), (tf.Variable(2.0), tf.Variable(3.0))], "b": tf.Variable(4.0)}
    with hvd.DistributedGradientTape(tf.GradientTape(persistent=persistent)) as tape:
        loss = (tf.add_n([one * (i + 1.0) for i, one in enumerate(tf.nest.flatten(weights))])) * (RANK + 1.0)
    for _ in range(2 if persistent else 1):
        found = tape.gradient(loss, weights)
        tf.nest.assert_same_structure(found, weights)
        np.testing.assert_allclose(tf.nest.flatten(found), np.arange(1, 5) * (SIZE + 1) / 2, rtol=1e-6)
