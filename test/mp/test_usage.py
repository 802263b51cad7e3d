"""How training scripts use the library, line by line; `mpirun -np N pytest test/mp`.

Graph mode, data that differs by rank, and results that are computed again without the library.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.tensorflow as hvd
from horovod_tf.tensorflow import mpi_ops
from tensorflow_support import RANK, SIZE, graph_session, v1

MEAN = (SIZE + 1) / 2  # of rank + 1
SUM = SIZE * MEAN
SQUARES = sum((rank + 1) ** 2 for rank in range(SIZE))


def zeros(name: str, *shape: int) -> Any:
    return v1.get_variable(name, initializer=np.zeros(shape, np.float32))


def started(session: Any) -> Any:
    session.run(v1.global_variables_initializer())
    return session


def test_learning_rate_times_size() -> None:
    with graph_session() as session:
        weight = zeros("w", 3)
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.5 * hvd.size()))
        train = optimizer.minimize(tf.reduce_sum(weight) * (RANK + 1))
        started(session).run(train)
        np.testing.assert_allclose(session.run(weight), np.full(3, -0.5 * SUM), rtol=1e-6)


def test_dataset_shards_are_the_whole_once() -> None:
    with graph_session() as session:
        mine = tf.data.Dataset.range(10).shard(hvd.size(), hvd.rank()).batch(10)
        rows = hvd.allgather(v1.data.make_one_shot_iterator(mine).get_next())
        assert sorted(session.run(rows)) == list(range(10))


def test_gradients_computed_clipped_and_applied() -> None:
    with graph_session() as session:
        step = v1.train.get_or_create_global_step()
        weight = zeros("w", 2)
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0))
        pairs = optimizer.compute_gradients(tf.reduce_sum(weight * [1.0, 100.0]) * (RANK + 1))
        clipped = [(tf.clip_by_value(gradient, -10.0, 10.0), variable) for gradient, variable in pairs]
        train = optimizer.apply_gradients(clipped, global_step=step)
        started(session).run(train)
        np.testing.assert_allclose(session.run(weight), [-MEAN, -10.0], rtol=1e-6)
        assert session.run(step) == 1


def test_gradients_reduced_one_by_one_in_a_name_scope() -> None:
    with graph_session() as session:
        weights = [zeros(f"w{i}", i + 1) for i in range(3)]
        loss = tf.add_n([tf.reduce_sum(weight) * (i + 1.0) * (RANK + 1) for i, weight in enumerate(weights)])
        with tf.name_scope("reduced"):
            gradients = [hvd.allreduce(gradient) for gradient in v1.gradients(loss, weights)]
        if SIZE > 1:
            assert all(gradient.op.name.startswith("reduced/") for gradient in gradients)
        results = started(session).run(gradients)
        for i, result in enumerate(results):
            np.testing.assert_allclose(result, np.full(i + 1, (i + 1) * MEAN), rtol=1e-6)


def sparse_gradient() -> tuple[Any, Any]:
    """A table of 4 rows, and the gradient of a loss that takes row 1 twice and this rank's row, modulo 4, once."""
    table = zeros("table", 4, 2)
    loss = tf.reduce_sum(tf.gather(table, [1, 1, RANK % 4])) * (RANK + 1)
    gradient = v1.gradients(loss, table)[0]
    assert isinstance(gradient, tf.IndexedSlices)
    return table, gradient


def expected_sparse_sum() -> Any:
    rows = np.zeros(4)
    for rank in range(SIZE):
        for row in (1, 1, rank % 4):
            rows[row] += rank + 1
    return np.repeat(rows[:, None], 2, axis=1)


def test_sparse_gradient_with_its_duplicates_merged_first() -> None:
    with graph_session() as session:
        _, gradient = sparse_gradient()
        rows, positions = tf.unique(gradient.indices)
        merged = tf.IndexedSlices(
            v1.unsorted_segment_sum(gradient.values, positions, tf.shape(rows)[0]), rows, gradient.dense_shape
        )
        reduced = hvd.allreduce(merged)
        dense = tf.convert_to_tensor(reduced)
        started(session)
        np.testing.assert_allclose(session.run(dense), expected_sparse_sum() / SIZE, rtol=1e-6)
        assert session.run(tf.shape(reduced.indices))[0] == sum(1 if rank % 4 == 1 else 2 for rank in range(SIZE))


def test_sparse_gradient_turned_dense_first() -> None:
    with graph_session() as session:
        _, gradient = sparse_gradient()
        dense = hvd.allreduce(tf.convert_to_tensor(gradient), average=False)
        np.testing.assert_allclose(started(session).run(dense), expected_sparse_sum(), rtol=1e-6)


def test_square_of_gradients_in_a_hand_written_adam() -> None:
    rate, beta_1, beta_2, epsilon = 0.1, 0.9, 0.99, 1e-8
    with graph_session() as session:
        weight, first, second = zeros("w", 3), zeros("m", 3), zeros("v", 3)
        gradient = v1.gradients(tf.reduce_sum(weight * [1.0, 2.0, 3.0]) * (RANK + 1), weight)[0]
        update_first = first.assign(beta_1 * first + (1 - beta_1) * hvd.allreduce(gradient))
        update_second = second.assign(beta_2 * second + (1 - beta_2) * hvd.allreduce(tf.square(gradient)))
        train = weight.assign_sub(rate * update_first / (tf.sqrt(update_second) + epsilon))
        started(session)
        m, v, w = np.zeros(3), np.zeros(3), np.zeros(3)
        for _ in range(5):
            session.run(train)
            m = beta_1 * m + (1 - beta_1) * MEAN * np.array([1, 2, 3])
            v = beta_2 * v + (1 - beta_2) * SQUARES / SIZE * np.array([1, 4, 9])
            w -= rate * m / (np.sqrt(v) + epsilon)
        np.testing.assert_allclose(session.run(weight), w, rtol=1e-5)


def test_plain_sum_in_a_loss() -> None:
    """The mean of all ranks' data in every rank's loss, as normalisation over the whole batch does it."""
    with graph_session() as session:
        weight = zeros("w", 1)
        count = mpi_ops._allreduce(tf.constant([RANK + 1.0]))
        total = mpi_ops._allreduce((weight + 1.0) * (RANK + 1))
        loss = tf.reduce_sum(tf.square(total / count))
        gradient = v1.gradients(loss, weight)[0]
        # d(total) / d(weight) on this rank is rank + 1; the loss of every rank depends on it.
        results = started(session).run([loss, gradient])
        np.testing.assert_allclose(results[0], 1.0, rtol=1e-6)
        np.testing.assert_allclose(results[1], [SIZE * 2.0 / SUM * (RANK + 1)], rtol=1e-6)


class ExamplesPerSecondHook(v1.train.SessionRunHook):
    """As benchmark scripts have it."""

    def __init__(self, batch: int) -> None:
        self.examples, self.batch = 0, batch

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.examples += self.batch * hvd.size()
        logging.info("rank %d local %d of %d: %d", hvd.rank(), hvd.local_rank(), hvd.size(), self.examples)


@pytest.mark.parametrize("broadcast_first", [True, False])
def test_hook_beside_another_hook(broadcast_first: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with tf.Graph().as_default():
        weight = v1.get_variable("w", initializer=np.full(3, RANK, np.float32))
        train = weight.assign_add([1.0, 1.0, 1.0])
        counter = ExamplesPerSecondHook(32)
        hooks = [hvd.BroadcastGlobalVariablesHook(0), counter]
        v1.train.get_or_create_global_step()
        with v1.train.MonitoredTrainingSession(hooks=hooks if broadcast_first else hooks[::-1]) as session:
            for _ in range(3):
                session.run(train)
            np.testing.assert_array_equal(session.run(weight), np.full(3, 3, np.float32))
        assert counter.examples == 4 * 32 * SIZE
        assert f"rank {RANK} local {hvd.local_rank()} of {SIZE}: 32" in caplog.text.replace(str(32 * SIZE), "32")


# ---- the hook, checkpoints, and variables that come late -----------------------------------------


def test_restored_variables_win_on_all_ranks(tmp_path: Path) -> None:
    """Only rank 0 has the checkpoint."""

    def program(value: float) -> Any:
        v1.train.get_or_create_global_step()
        return v1.get_variable("w", initializer=np.full(3, value, np.float32))

    folder = str(tmp_path) if RANK == 0 else None
    with tf.Graph().as_default():
        program(40.0 + RANK)
        with v1.train.MonitoredTrainingSession(checkpoint_dir=folder, hooks=[hvd.BroadcastGlobalVariablesHook(0)]):
            pass
    with tf.Graph().as_default():
        weight = program(70.0 + RANK)
        hooks = [hvd.BroadcastGlobalVariablesHook(0)]
        with v1.train.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks) as session:
            np.testing.assert_array_equal(session.run(weight), np.full(3, 40, np.float32))


class CreatesVariable(v1.train.SessionRunHook):
    """As hooks that keep averages do."""

    def begin(self) -> None:
        self.variables = [
            v1.get_variable("late", initializer=np.full(3, 10 + RANK, np.float32), use_resource=True),
            v1.get_variable("late_too", initializer=np.array(20 + RANK, np.int64), use_resource=False),
        ]


@pytest.mark.parametrize("root", range(min(SIZE, 2)))
def test_variables_created_after_the_hook_are_given_too(root: int) -> None:
    with tf.Graph().as_default():
        weight = v1.get_variable("w", initializer=np.full(3, RANK, np.float32))
        v1.train.get_or_create_global_step()
        creator = CreatesVariable()
        hooks = [hvd.BroadcastGlobalVariablesHook(root), creator]
        with v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            values = session.run([weight, *creator.variables])
        np.testing.assert_array_equal(values[0], np.full(3, root, np.float32))
        np.testing.assert_array_equal(values[1], np.full(3, 10 + root, np.float32))
        assert values[2] == 20 + root
