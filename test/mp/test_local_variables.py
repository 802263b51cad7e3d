"""Gradients that are not reduced, and groups of those that are; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.keras as hvd_keras
import horovod_tf.tensorflow as hvd
from horovod_tf.tensorflow import grouping
from tensorflow_support import RANK, SIZE, graph_session, several_ranks, v1

KERAS_3 = hasattr(tf.keras.optimizers.SGD, "apply")
OPTIMIZERS = [tf.keras.optimizers] + ([] if KERAS_3 else [tf.keras.optimizers.legacy])
every_generation = pytest.mark.parametrize("optimizers", OPTIMIZERS, ids=lambda module: module.__name__)
MODES = {"eager": lambda function: function, "function": tf.function}
every_mode = pytest.mark.parametrize("mode", MODES)
scaled_or_not = pytest.mark.parametrize("scale", [True, False], ids=["scaled", "unscaled"])
MEAN = (SIZE + 1) / 2  # of rank + 1


def own(scale: bool) -> float:
    """This rank's gradient of rank + 1, as it is applied to a local variable."""
    return (RANK + 1) / (SIZE if scale else 1)


# ---- tapes ---------------------------------------------------------------------------------------


@every_mode
@scaled_or_not
def test_local_sources_of_a_tape(mode: str, scale: bool) -> None:
    """Dense and sparse; ranks have different numbers of them."""
    shared, table = tf.Variable([1.0, 2.0]), tf.Variable(np.ones((4, 2), np.float32))
    mine = [tf.Variable(np.ones(3, np.float16)) for _ in range(RANK + 1)]

    @MODES[mode]
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(shared) + tf.reduce_sum(tf.gather(table, [RANK % 4]))
            loss += tf.add_n([tf.cast(tf.reduce_sum(one), tf.float32) for one in mine])
            loss *= RANK + 1
        tape = hvd.DistributedGradientTape(tape, scale_local_gradients=scale)
        for one in [*mine, table]:
            tape.register_local_source(one)
        return tape.gradient(loss, {"mine": mine, "shared": shared, "table": table})

    for _ in range(2):
        found = step()
        np.testing.assert_allclose(found["shared"], [MEAN, MEAN], rtol=1e-6)
        for one in found["mine"]:
            assert one.dtype == tf.float16
            np.testing.assert_allclose(one, np.full(3, own(scale)), rtol=1e-3)
        assert isinstance(found["table"], tf.IndexedSlices)
        rows = np.zeros((4, 2))
        rows[RANK % 4] = own(scale)
        np.testing.assert_allclose(tf.convert_to_tensor(found["table"]), rows, rtol=1e-6)


def two_layers() -> tuple[Any, Any, Any]:
    """A model whose first layer is each rank's own; weights are made at the first call."""
    mine = tf.keras.layers.Dense(2, use_bias=False, kernel_initializer="ones")
    shared = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    return tf.keras.Sequential([mine, shared]), mine, shared


@scaled_or_not
@pytest.mark.parametrize("as_list", [True, False])
def test_local_layers_of_a_tape(scale: bool, as_list: bool) -> None:
    model, mine, _ = two_layers()
    layers = [mine] if as_list else mine
    with hvd.PartialDistributedGradientTape(
        tf.GradientTape(), local_layers=layers, scale_local_gradients=scale
    ) as tape:
        loss = tf.reduce_sum(model(tf.ones((1, 3)))) * (RANK + 1.0)
    first, second = tape.gradient(loss, model.trainable_variables)
    np.testing.assert_allclose(first, np.full((3, 2), own(scale)), rtol=1e-6)
    np.testing.assert_allclose(second, np.full((2, 1), 3 * MEAN), rtol=1e-6)


def test_what_is_no_layer() -> None:
    message = r"All local layers must be of tf\.keras\.layers\.Layer type"
    with pytest.raises(ValueError, match=message):
        hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=[tf.Variable(1.0)])
    with pytest.raises(ValueError, match=message):
        hvd_keras.PartialDistributedOptimizer(tf.keras.optimizers.SGD(), local_layers="dense")


# ---- optimizers ----------------------------------------------------------------------------------


@scaled_or_not
@pytest.mark.parametrize("passes", [1, 2])
def test_local_variables_of_the_optimizer_of_graphs(scale: bool, passes: int) -> None:
    with graph_session() as session:
        weights = [v1.get_variable(f"w{i}", initializer=np.zeros(2, np.float32)) for i in range(2)]
        optimizer = hvd.DistributedOptimizer(
            v1.train.GradientDescentOptimizer(1.0), scale_local_gradients=scale, backward_passes_per_step=passes
        )
        optimizer.register_local_var(weights[0])
        train = optimizer.minimize((tf.reduce_sum(weights[0]) + tf.reduce_sum(weights[1])) * (RANK + 1))
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        for _ in range(passes):
            session.run(train)
        mine, shared = session.run(weights)
        np.testing.assert_allclose(mine, np.full(2, -passes * own(scale)), rtol=1e-6)
        np.testing.assert_allclose(shared, np.full(2, -passes * MEAN), rtol=1e-6)


@every_generation
@scaled_or_not
@pytest.mark.parametrize("passes", [1, 2])
def test_local_layers_of_the_keras_optimizer(optimizers: Any, scale: bool, passes: int) -> None:
    model, mine, shared = two_layers()
    optimizer = hvd_keras.PartialDistributedOptimizer(
        optimizers.SGD(0.25), local_layers=mine, scale_local_gradients=scale, backward_passes_per_step=passes
    )
    model.compile(optimizer, loss=lambda _, y: y * (RANK + 1.0), **({"jit_compile": False} if KERAS_3 else {}))
    model.fit(np.ones((passes, 3), np.float32), np.zeros((passes, 1)), 1, 1, verbose=0)
    np.testing.assert_allclose(mine.get_weights()[0], np.full((3, 2), 1 - 0.25 * passes * own(scale)), rtol=1e-6)
    np.testing.assert_allclose(shared.get_weights()[0], np.full((2, 1), 1 - 0.25 * passes * 3 * MEAN), rtol=1e-6)


@every_generation
def test_registered_variable_of_the_keras_optimizer(optimizers: Any) -> None:
    model, mine, shared = two_layers()
    model.build((None, 3))
    optimizer = hvd_keras.DistributedOptimizer(optimizers.SGD(0.25))
    optimizer.register_local_var(mine.trainable_weights[0])
    model.compile(optimizer, loss=lambda _, y: y * (RANK + 1.0), **({"jit_compile": False} if KERAS_3 else {}))
    model.fit(np.ones((1, 3), np.float32), np.zeros((1, 1)), 1, 1, verbose=0)
    np.testing.assert_allclose(mine.get_weights()[0], np.full((3, 2), 1 - 0.25 * own(True)), rtol=1e-6)
    np.testing.assert_allclose(shared.get_weights()[0], np.full((2, 1), 1 - 0.25 * 3 * MEAN), rtol=1e-6)


# ---- groups --------------------------------------------------------------------------------------


def groups_in(graph: Any) -> list[int]:
    """How many gradients each operation reduces."""
    grouped = [len(op.inputs) for op in graph.get_operations() if op.type == "HorovodGroupedAllreduce"]
    return sorted(grouped + [1 for op in graph.get_operations() if op.type == "HorovodAllreduce"])


def weights_of_a_graph(count: int) -> tuple[list[Any], Any]:
    weights = [v1.get_variable(f"w{i}", initializer=np.zeros(2 + i, np.float32)) for i in range(count)]
    return weights, tf.add_n([tf.reduce_sum(weight) * (i + 1) for i, weight in enumerate(weights)]) * (RANK + 1)


@several_ranks
@pytest.mark.parametrize(("groups", "sizes"), [(None, [7]), (0, [7]), (1, [7]), (3, [2, 2, 3]), (9, [1] * 7)])
def test_numbers_of_groups(groups: int | None, sizes: list[int]) -> None:
    with graph_session() as session:
        weights, loss = weights_of_a_graph(7)
        train = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), groups=groups).minimize(loss)
        assert groups_in(session.graph) == sizes
        session.run(v1.global_variables_initializer())
        session.run(train)
        for i, weight in enumerate(session.run(weights)):
            np.testing.assert_allclose(weight, np.full(2 + i, -(i + 1) * MEAN), rtol=1e-6)


@several_ranks
def test_lists_of_variables() -> None:
    with graph_session() as session:
        weights, loss = weights_of_a_graph(5)
        unused = v1.get_variable("unused", initializer=np.zeros(2, np.float32))
        groups = [[weights[0], weights[3]], [weights[4], unused], [unused]]
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), groups=groups)
        pairs = optimizer.compute_gradients(loss, [*weights, unused])
        assert groups_in(session.graph) == [1, 2, 2]
        assert pairs[0][0].op is pairs[3][0].op
        assert pairs[1][0].op is pairs[2][0].op
        session.run(v1.global_variables_initializer())
        for i, (gradient, _) in enumerate(pairs[:5]):
            np.testing.assert_allclose(session.run(gradient), np.full(2 + i, (i + 1) * MEAN), rtol=1e-6)


@every_mode
@pytest.mark.parametrize("as_lists", [True, False], ids=["lists", "number"])
def test_groups_of_a_tape(mode: str, as_lists: bool) -> None:
    weights = [tf.Variable(np.ones((4, 2), np.float32)) for _ in range(4)]
    groups = [[weights[0], weights[2]]] if as_lists else 2

    @MODES[mode]
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(tf.gather(one, [1]) if one is weights[2] else one) for one in weights])
            loss *= RANK + 1
        return hvd.DistributedGradientTape(tape, groups=groups).gradient(loss, weights)

    found = step()
    assert isinstance(found[2], tf.IndexedSlices)
    for place, one in enumerate(found):
        expected = np.zeros((4, 2)) if place == 2 else np.full((4, 2), MEAN)
        expected[1] = MEAN
        np.testing.assert_allclose(tf.convert_to_tensor(one), expected, rtol=1e-6)


@every_generation
def test_groups_of_the_keras_optimizer(optimizers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, mine, shared = two_layers()
    model.build((None, 3))
    seen: list[Any] = []
    before = grouping._as_listed

    def listed(*args: Any) -> Any:
        seen.append(before(*args))
        return seen[-1]

    monkeypatch.setattr(grouping, "_as_listed", listed)
    groups = [list(model.trainable_variables)]
    model.compile(
        hvd_keras.DistributedOptimizer(optimizers.SGD(0.25), groups=groups),
        loss=lambda _, y: y * (RANK + 1.0),
        **({"jit_compile": False} if KERAS_3 else {}),
    )
    model.fit(np.ones((1, 3), np.float32), np.zeros((1, 1)), 1, 1, verbose=0)
    assert SIZE == 1 or seen[-1] == [[0, 1]]
    np.testing.assert_allclose(mine.get_weights()[0], np.full((3, 2), 1 - 0.25 * MEAN), rtol=1e-6)
    np.testing.assert_allclose(shared.get_weights()[0], np.full((2, 1), 1 - 0.25 * 3 * MEAN), rtol=1e-6)


def test_older_name_of_groups() -> None:
    with pytest.warns(DeprecationWarning, match="num_groups is the older name of groups"):
        hvd.DistributedGradientTape(tf.GradientTape(), num_groups=2)
    with pytest.warns(DeprecationWarning, match="num_groups is the older name of groups"):
        hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(), num_groups=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), groups=2)


@pytest.mark.parametrize("groups", [-1, 1.5, "two", [1, 2], True])
def test_groups_that_are_none(groups: Any) -> None:
    message = r"groups should be a non-negative integer or a list of list of tf\.Variable"
    with pytest.raises(ValueError, match=message):
        hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), groups=groups)
    with pytest.raises(ValueError, match=message):
        hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(), groups=groups)
    with pytest.raises(ValueError, match=message):
        hvd.DistributedGradientTape(tf.GradientTape(), groups=groups)
