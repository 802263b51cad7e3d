"""Collectives where XLA compiles; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.keras as hvd_keras
import horovod_tf.tensorflow as hvd
from horovod_tf.tensorflow import mpi_ops
from tensorflow_support import RANK, SIZE, assert_same, several_ranks, summed, values

KERAS_3 = hasattr(tf.keras.optimizers.SGD, "apply")
SAID = r"inside a function that XLA compiles: XLA knows no collectives, so leave jit_compile=True out"
X = values((4,), tf.float32)
COLLECTIVES: dict[str, Any] = {
    "HorovodAllreduce": hvd.allreduce,
    "HorovodGroupedAllreduce": lambda x: hvd.grouped_allreduce([x, x])[0],
    "HorovodAllgather": hvd.allgather,
    "HorovodBroadcast": lambda x: hvd.broadcast(x, 0),
}


@pytest.mark.parametrize("kind", COLLECTIVES)
@pytest.mark.parametrize("nested", [False, True])
def test_collective_in_a_compiled_function(kind: str, nested: bool) -> None:
    """One sentence, on all ranks, before anything is sent."""

    def program(x: Any) -> Any:
        return COLLECTIVES[kind](x * 2.0)

    inner = tf.function(program) if nested else program
    with pytest.raises(tf.errors.UnimplementedError, match=f"{kind} {SAID}"):
        tf.function(inner, jit_compile=True)(tf.constant(X))
    assert_same(mpi_ops._allreduce(X).numpy(), summed((4,), tf.float32))


def test_compiled_parts_between_collectives() -> None:
    @tf.function(jit_compile=True)
    def part(x: Any) -> Any:
        return x * 2.0 + 1.0

    @tf.function
    def program(x: Any) -> Any:
        return part(mpi_ops._allreduce(part(x)))

    assert_same(program(tf.constant(X)).numpy(), (2 * summed((4,), tf.float32) + SIZE) * 2 + 1)


def model_of(jit: Any) -> Any:
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input((3,)), layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.01))
    model.compile(optimizer, loss="mse", jit_compile=jit)
    return model


@several_ranks
def test_keras_with_xla() -> None:
    model = model_of(True)
    with pytest.raises(tf.errors.UnimplementedError, match=SAID):
        model.fit(np.ones((4, 3), np.float32), np.zeros((4, 1)), 4, 1, verbose=0)


@pytest.mark.parametrize("jit", [False, "auto"])
def test_keras_without_xla(jit: Any) -> None:
    """Without a GPU, Keras 3 does not choose it by itself."""
    if jit == "auto" and not KERAS_3:
        pytest.skip("Keras 2 has no 'auto'")
    model = model_of(jit)
    if getattr(model, "jit_compile", False):
        pytest.skip("Keras has chosen XLA here")
    model.fit(np.full((4, 3), RANK + 1.0, np.float32), np.zeros((4, 1)), 4, 1, verbose=0)
    average = sum(6.0 * (rank + 1) ** 2 for rank in range(SIZE)) / SIZE
    np.testing.assert_allclose(model.get_weights()[0][:, 0], np.full(3, 1 - 0.01 * average), rtol=1e-5)
