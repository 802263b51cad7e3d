"""`DistributedOptimizer` among checkpoints, clipping and other wrappers; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.tensorflow as hvd
from tensorflow_support import RANK, SIZE, assert_same, graph_session, v1

MEAN_OF_RANKS = (SIZE + 1) / 2  # the average of rank + 1


def zeros(*shape: int) -> Any:
    return v1.get_variable("w", initializer=np.zeros(shape, np.float32))


@pytest.mark.parametrize("norm", [1.0, 1000.0], ids=["clipped", "not_clipped"])
def test_gradients_computed_clipped_and_applied(norm: float) -> None:
    """What is clipped is the average: each rank's own norm is another one."""
    gradient = np.array([3.0, 4.0], np.float32)
    with graph_session() as session:
        weight = zeros(2)
        step = v1.train.get_or_create_global_step()
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0))
        pairs = optimizer.compute_gradients(tf.reduce_sum(weight * gradient * (RANK + 1.0)), [weight])
        clipped, norm_before = tf.clip_by_global_norm([pair[0] for pair in pairs], norm)
        train = optimizer.apply_gradients(zip(clipped, [pair[1] for pair in pairs]), global_step=step)
        session.run(v1.global_variables_initializer())
        for count in (1, 2):
            before, _ = session.run([norm_before, train])
            np.testing.assert_allclose(before, 5 * MEAN_OF_RANKS, rtol=1e-6)
            assert session.run(step) == count
        moved = 2 * gradient * MEAN_OF_RANKS * min(1.0, norm / (5 * MEAN_OF_RANKS))
        np.testing.assert_allclose(session.run(weight), -moved, rtol=1e-5)


@pytest.mark.parametrize("wrap", [hvd.DistributedOptimizer, lambda optimizer: optimizer], ids=["wrapped", "plain"])
def test_checkpoint_of_the_optimizer_itself(wrap: Any, tmp_path: Path) -> None:
    """What a checkpoint asks of an optimizer reaches the wrapped one: its slots come back, for either kind."""

    def build() -> tuple[Any, Any, Any, Any]:
        weight = zeros(3)
        optimizer = wrap(v1.train.AdamOptimizer(0.5))
        train = optimizer.minimize(tf.reduce_sum(weight * [1.0, 2.0, 3.0]))
        return weight, optimizer, train, v1.train.Checkpoint(weight=weight, optimizer=optimizer)

    with graph_session() as session:
        weight, optimizer, train, checkpoint = build()
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(train)
        path = checkpoint.save(str(tmp_path / "model"), session=session)
        state = [weight, optimizer.get_slot(weight, "m"), optimizer.get_slot(weight, "v"), *optimizer.variables()]
        saved = session.run(state)
    with graph_session() as session:
        weight, optimizer, train, checkpoint = build()
        status = checkpoint.restore(path)
        status.assert_consumed()
        status.initialize_or_restore(session)
        state = [weight, optimizer.get_slot(weight, "m"), optimizer.get_slot(weight, "v"), *optimizer.variables()]
        for before, after in zip(saved, session.run(state)):
            assert_same(after, before)
        assert not np.array_equal(saved[1], np.zeros(3))


def test_optimizer_in_another_wrapper() -> None:
    """Loss scaling multiplies the loss, takes gradients of it, and divides them again."""
    with graph_session() as session:
        weight = zeros(3)
        inner = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(1.0, 0.9))
        optimizer = v1.mixed_precision.MixedPrecisionLossScaleOptimizer(inner, 128.0)
        train = optimizer.minimize(tf.reduce_sum(weight * (RANK + 1.0)))
        session.run(v1.global_variables_initializer())
        session.run(train)
        np.testing.assert_allclose(session.run(weight), np.full(3, -MEAN_OF_RANKS), rtol=1e-6)
        momentum = session.run(inner.get_slot(weight, "momentum"))
        np.testing.assert_allclose(momentum, np.full(3, MEAN_OF_RANKS), rtol=1e-6)


def test_all_ranks_stay_bitwise_equal() -> None:
    """Different data, an adaptive optimizer, many steps."""
    with graph_session() as session:
        weight = v1.get_variable("w", initializer=np.random.RandomState(RANK).randn(50, 3).astype(np.float32))
        data = v1.placeholder(tf.float32, (None, 50))
        loss = tf.reduce_mean(tf.square(tf.matmul(data, weight) - 1.0))
        train = hvd.DistributedOptimizer(v1.train.AdamOptimizer(0.01)).minimize(loss)
        everybodys = hvd.allgather(tf.reshape(weight, (1, -1)))
        session.run(v1.global_variables_initializer())
        assert SIZE == 1 or not np.array_equal(*session.run(everybodys)[:2])
        session.run(hvd.broadcast_global_variables(0))
        random = np.random.RandomState(100 + RANK)
        for _ in range(50):
            session.run(train, {data: random.rand(8, 50)})
        everywhere = session.run(everybodys)
    assert all(one.tobytes() == everywhere[0].tobytes() for one in everywhere)
