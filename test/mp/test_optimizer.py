"""`DistributedOptimizer` among checkpoints, clipping and other wrappers; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.tensorflow as hvd
from horovod_tf.tensorflow import grouping, mpi_ops
from horovod_tf.tensorflow.grouping import SMALL_BYTES
from tensorflow_support import RANK, SIZE, assert_same, graph_session, several_ranks, v1

MEAN = (SIZE + 1) / 2  # of rank + 1
Wrap = Callable[[Any], Any]
WRAPS: dict[str, Wrap] = {"plain": lambda optimizer: optimizer, "wrapped": hvd.DistributedOptimizer}


def adam(wrap: Wrap) -> tuple[Any, Any]:
    return v1.get_variable("w", initializer=np.zeros(3, np.float32)), wrap(v1.train.AdamOptimizer(0.5))


def train_of(weight: Any, optimizer: Any) -> Any:
    return optimizer.minimize(tf.reduce_sum(weight * [1.0, 2.0, 3.0]))


def state_of(weight: Any, optimizer: Any) -> list[Any]:
    return [weight, optimizer.get_slot(weight, "m"), optimizer.get_slot(weight, "v"), *optimizer.variables()]


@pytest.mark.parametrize("when", ["before_its_slots_exist", "after"])
@pytest.mark.parametrize("read_by", WRAPS)
@pytest.mark.parametrize("written_by", WRAPS)
def test_checkpoint_of_the_optimizer_itself(written_by: str, read_by: str, when: str, tmp_path: Path) -> None:
    """Its slots come back, whichever of the two kinds wrote it and whichever reads it."""
    with graph_session() as session:
        weight, optimizer = adam(WRAPS[written_by])
        train = train_of(weight, optimizer)
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(train)
        path = v1.train.Checkpoint(w=weight, o=optimizer).save(str(tmp_path / "model"), session=session)
        saved = session.run(state_of(weight, optimizer))
    assert np.count_nonzero(saved[1]) == 3
    with graph_session() as session:
        weight, optimizer = adam(WRAPS[read_by])
        checkpoint = v1.train.Checkpoint(w=weight, o=optimizer)
        if when == "after":
            train_of(weight, optimizer)
            status = checkpoint.restore(path)
        else:
            status = checkpoint.restore(path)
            train_of(weight, optimizer)
        status.assert_consumed()
        status.initialize_or_restore(session)
        for before, after in zip(saved, session.run(state_of(weight, optimizer))):
            assert_same(after, before)


def test_eager_steps_and_checkpoint(tmp_path: Path) -> None:
    """One trains all the time, the other is restored in the middle, before it has slots."""

    def made() -> tuple[Any, Any, Any]:
        weight = tf.Variable(np.zeros(3, np.float32))
        optimizer = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(1.0, 0.5))
        return weight, optimizer, tf.train.Checkpoint(w=weight, o=optimizer)

    def step(weight: Any, optimizer: Any) -> None:
        optimizer.minimize(lambda: tf.reduce_sum(weight) * (RANK + 1.0), var_list=[weight])

    one, first, checkpoint = made()
    step(one, first)
    path = checkpoint.save(str(tmp_path / "model"))
    step(one, first)
    two, second, checkpoint = made()
    status = checkpoint.restore(path)
    step(two, second)
    status.assert_consumed()
    np.testing.assert_allclose(one.numpy(), np.full(3, -2.5 * MEAN), rtol=1e-6)
    assert_same(two.numpy(), one.numpy())


def test_one_state_only() -> None:
    """What the wrapped optimizer knows and what this one knows cannot differ."""
    with graph_session() as session:
        inner = v1.train.AdamOptimizer(0.5, name="inner")
        optimizer = hvd.DistributedOptimizer(inner)
        weight = v1.get_variable("w", initializer=np.zeros(3, np.float32))
        train = train_of(weight, optimizer)
        assert set(vars(optimizer)) == {
            "_name",
            "_use_locking",
            "_optimizer",
            "_reduction",
            "_local",
            "_passes",
            "_aggregations",
        }
        assert optimizer._slots is inner._slots
        assert optimizer._get_beta_accumulators() == inner._get_beta_accumulators()
        assert optimizer._get_non_slot_variable("beta1_power", weight.graph) is inner._get_beta_accumulators()[0]
        assert optimizer._zeros_slot(weight, "m", "inner") is inner.get_slot(weight, "m")
        later = v1.get_variable("later", initializer=np.zeros(2, np.float32))
        optimizer._create_slots([later])
        assert inner.get_slot(later, "m").shape == (2,)
        assert copy.copy(optimizer).get_slot(weight, "v") is inner.get_slot(weight, "v")
        session.run(v1.global_variables_initializer())
        session.run(train)
        np.testing.assert_allclose(session.run(weight), np.full(3, -0.5), rtol=1e-5)


@pytest.mark.parametrize("norm", [1.0, 1000.0], ids=["clipped", "not_clipped"])
def test_gradients_computed_clipped_and_applied(norm: float) -> None:
    """What is clipped is the average: each rank's own norm is another one."""
    gradient = np.array([3.0, 4.0], np.float32)
    with graph_session() as session:
        weight = v1.get_variable("w", initializer=np.zeros(2, np.float32))
        step = v1.train.get_or_create_global_step()
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0))
        pairs = optimizer.compute_gradients(tf.reduce_sum(weight * gradient * (RANK + 1.0)), [weight])
        clipped, norm_before = tf.clip_by_global_norm([pair[0] for pair in pairs], norm)
        train = optimizer.apply_gradients(zip(clipped, [pair[1] for pair in pairs]), global_step=step)
        session.run(v1.global_variables_initializer())
        for count in (1, 2):
            before, _ = session.run([norm_before, train])
            np.testing.assert_allclose(before, 5 * MEAN, rtol=1e-6)
            assert session.run(step) == count
        moved = 2 * gradient * MEAN * min(1.0, norm / (5 * MEAN))
        np.testing.assert_allclose(session.run(weight), -moved, rtol=1e-5)


def test_in_another_wrapper() -> None:
    """Loss scaling multiplies the loss, takes its gradients, and divides them again."""
    with graph_session() as session:
        weight = v1.get_variable("w", initializer=np.zeros(3, np.float32))
        inner = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(1.0, 0.9))
        optimizer = v1.mixed_precision.MixedPrecisionLossScaleOptimizer(inner, 128.0)
        train = optimizer.minimize(tf.reduce_sum(weight * (RANK + 1.0)))
        session.run(v1.global_variables_initializer())
        session.run(train)
        np.testing.assert_allclose(session.run(weight), np.full(3, -MEAN), rtol=1e-6)
        momentum = session.run(inner.get_slot(weight, "momentum"))
        np.testing.assert_allclose(momentum, np.full(3, MEAN), rtol=1e-6)


def test_gradients_of_each_kind_are_placed_as_asked() -> None:
    with graph_session() as session:
        dense = v1.get_variable("dense", initializer=np.zeros(3, np.float32))
        table = v1.get_variable("table", initializer=np.zeros((2, 3), np.float32))
        unused = v1.get_variable("unused", initializer=np.zeros(2, np.float32))
        optimizer = hvd.DistributedOptimizer(
            v1.train.GradientDescentOptimizer(1.0), "mine", device_dense="/cpu:0", device_sparse="/device:CPU:0"
        )
        loss = tf.reduce_sum(dense) + tf.reduce_sum(tf.gather(table, [0, 0]))
        pairs = optimizer.compute_gradients(loss * (RANK + 1), [dense, table, unused])
        assert [variable for _, variable in pairs] == [dense, table, unused]
        assert isinstance(pairs[1][0], tf.IndexedSlices)
        assert pairs[2][0] is None
        ours = [op for op in session.graph.get_operations() if op.type in mpi_ops.OP_TYPES]
        assert len(ours) == (0 if SIZE == 1 else 3)
        assert all(op.name.startswith("mine_Allreduce/") and op.device == "/device:CPU:0" for op in ours)
        train = optimizer.apply_gradients(pairs)
        session.run(v1.global_variables_initializer())
        session.run(train)
        np.testing.assert_allclose(session.run(dense), np.full(3, -MEAN), rtol=1e-6)
        np.testing.assert_allclose(session.run(table), np.array([[-2 * MEAN] * 3, [0] * 3]), rtol=1e-6)


def gradients_of_many_sizes() -> tuple[dict[str, Any], list[tuple[Any, Any]]]:
    """Averaged gradients of variables of all kinds, by the kind, and the pairs that the optimizer makes."""
    sizes = {"small": (3,), "tiny": (), "large": (SMALL_BYTES // 4 + 1,), "half": (5,), "largest_small": (128, 128)}
    weights = [
        v1.get_variable(name, shape, tf.float16 if name == "half" else tf.float32, v1.zeros_initializer())
        for name, shape in sizes.items()
    ]
    of_any_shape = v1.placeholder_with_default(np.zeros(4, np.float32), (None,))
    weights.append(v1.get_variable("unknown", initializer=of_any_shape, validate_shape=False))
    table = v1.get_variable("rows", initializer=np.zeros((2, 3), np.float32))
    weights += [table, v1.get_variable("half_too", (2,), tf.float16, v1.zeros_initializer())]
    factor = RANK + 1
    parts = [tf.cast(tf.reduce_sum(tf.gather(one, [0, 0]) if one is table else one), tf.float32) for one in weights]
    unused = v1.get_variable("unused", initializer=np.zeros(2, np.float32))
    optimizer = hvd.DistributedOptimizer(
        v1.train.GradientDescentOptimizer(1.0), "mine", device_dense="/cpu:0", device_sparse="/device:CPU:0"
    )
    pairs = optimizer.compute_gradients(tf.add_n(parts) * factor, [*weights, unused])
    return {variable.op.name: gradient for gradient, variable in pairs}, pairs


@several_ranks
def test_small_gradients_are_averaged_together_and_others_alone() -> None:
    with graph_session() as session:
        found, pairs = gradients_of_many_sizes()
        ours = [op for op in session.graph.get_operations() if op.type in mpi_ops.OP_TYPES]
        assert all(op.name.startswith("mine_Allreduce/") and op.device == "/device:CPU:0" for op in ours)
        groups = [op for op in ours if op.type == "HorovodGroupedAllreduce"]
        together = [{name for name, one in found.items() if one is not None and one.op is op} for op in groups]
        assert together == [{"half", "half_too"}, {"small", "tiny", "largest_small"}]
        assert {found[name].op.type for name in ("large", "unknown")} == {"HorovodAllreduce"}
        assert isinstance(found["rows"], tf.IndexedSlices)
        assert found["unused"] is None
        # Their places among all gradients, whatever TensorFlow calls them here.
        names = [[name.decode() for name in op.get_attr("tensor_names")] for op in groups]
        places = {variable.op.name: place for place, (_, variable) in enumerate(pairs)}
        named = [{name for name, place in places.items() if f"gradient_{place}" in group} for group in names]
        assert named == together
        session.run(v1.global_variables_initializer())
        for gradient, variable in pairs[:6]:
            np.testing.assert_allclose(session.run(gradient), np.full(session.run(variable).shape, MEAN), rtol=1e-3)


@several_ranks
def test_ranks_whose_groups_differ_average_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here rank 0 groups all, rank 1 nothing, rank 2 two by two."""
    monkeypatch.setattr(grouping, "SMALL_BYTES", [1000, -1, 1000][RANK % 3])
    monkeypatch.setattr(grouping, "GROUP_BYTES", [1000, 1000, 24][RANK % 3])
    with graph_session() as session:
        weights = [v1.get_variable(f"w{i}", initializer=np.zeros(3, np.float32)) for i in range(6)]
        loss = tf.add_n([tf.reduce_sum(weight) * (i + 1) for i, weight in enumerate(weights)]) * (RANK + 1)
        train = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0)).minimize(loss)
        groups = [op for op in session.graph.get_operations() if op.type == "HorovodGroupedAllreduce"]
        assert len(groups) == [1, 0, 3][RANK % 3]
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(train)
        for i, weight in enumerate(session.run(weights)):
            np.testing.assert_allclose(weight, np.full(3, -3 * (i + 1) * MEAN), rtol=1e-6)


@pytest.mark.parametrize("adaptive", [True, False], ids=["adam", "momentum"])
def test_all_ranks_stay_bitwise_equal(adaptive: bool) -> None:
    """Different data, different beginnings, many steps."""
    with graph_session() as session:
        weight = v1.get_variable("w", initializer=np.random.RandomState(RANK).randn(50, 3).astype(np.float32))
        data = v1.placeholder(tf.float32, (None, 50))
        loss = tf.reduce_mean(tf.square(tf.matmul(data, weight) - 1.0))
        inner = v1.train.AdamOptimizer(0.01) if adaptive else v1.train.MomentumOptimizer(0.01, 0.9)
        train = hvd.DistributedOptimizer(inner).minimize(loss)
        everybodys = hvd.allgather(tf.reshape(weight, (1, -1)))
        session.run(v1.global_variables_initializer())
        assert SIZE == 1 or not np.array_equal(*session.run(everybodys)[:2])
        session.run(hvd.broadcast_global_variables(0))
        random = np.random.RandomState(100 + RANK)
        first = session.run(loss, {data: random.rand(64, 50)})
        for _ in range(50):
            session.run(train, {data: random.rand(8, 50)})
        everywhere = session.run(everybodys)
        assert session.run(loss, {data: random.rand(64, 50)}) < first
    assert all(one.tobytes() == everywhere[0].tobytes() for one in everywhere)
