"""Gradients of allgather and broadcast as sums and as averages; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf
import horovod_tf.tensorflow as hvd
from horovod_tf.tensorflow import gradient_convention
from tensorflow_support import RANK, SIZE, several_ranks


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    gradient_convention.set_average_gradients(None)


def gradient_of(collective: Any) -> Any:
    x = tf.Variable(np.ones((2, 3), np.float32))

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(collective(x)) * (RANK + 1.0)
        return tape.gradient(loss, x)

    return step().numpy()


def gathered() -> float:
    return float(gradient_of(hvd.allgather)[0, 0])


TOTAL = SIZE * (SIZE + 1) / 2


def test_argument() -> None:
    assert gathered() == TOTAL
    horovod_tf.install_as_horovod(average_gradients=True)
    np.testing.assert_allclose(gathered(), TOTAL / SIZE)
    found = gradient_of(lambda x: hvd.broadcast(x, SIZE - 1))
    np.testing.assert_allclose(found, np.full((2, 3), TOTAL / SIZE if RANK == SIZE - 1 else 0.0))
    horovod_tf.install_as_horovod(average_gradients=False)
    assert gathered() == TOTAL


@pytest.mark.parametrize(("value", "average"), [("1", True), ("Yes", True), ("off", False), ("0", False)])
def test_environment(value: str, average: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gradient_convention.VARIABLE, value)
    np.testing.assert_allclose(gathered(), TOTAL / (SIZE if average else 1))
    horovod_tf.install_as_horovod(average_gradients=not average)  # what the program says itself counts
    np.testing.assert_allclose(gathered(), TOTAL / (1 if average else SIZE))


@several_ranks
def test_ranks_that_differ_are_told() -> None:
    gradient_convention.set_average_gradients(RANK == 0)
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"reduce|op"):
        gathered()
