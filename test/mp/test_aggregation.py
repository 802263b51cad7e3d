"""`backward_passes_per_step`: several passes, one step; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
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
PASSES = 3
every_way = pytest.mark.parametrize("average", [False, True], ids=["sum", "average"])
every_kind = pytest.mark.parametrize("as_dense", [False, True, "auto"], ids=["rows", "dense", "auto"])


def rows_of(step: int, rank: int) -> list[int]:
    """Row 1 twice, and two of this pass and rank."""
    return [1, 1, (step + rank) % 4, (2 * step) % 4]


def dense_of(step: int, rank: int) -> float:
    return float(rank + 1) * (step + 1)


def sparse_of(step: int, rank: int) -> np.ndarray[Any, Any]:
    table: Any = np.zeros((4, 2), np.float32)
    np.add.at(table, rows_of(step, rank), dense_of(step, rank))
    return table


def expected(updates: int, average: bool) -> tuple[Any, Any]:
    """What SGD with rate 1 has done to two weights and a table of zeros."""
    weight: Any = np.zeros(2, np.float32)
    table: Any = np.zeros((4, 2), np.float32)
    for step in range(updates * PASSES):
        for rank in range(SIZE):
            share = 1 / SIZE / (PASSES if average else 1)
            weight -= dense_of(step, rank) * share
            table -= sparse_of(step, rank) * share
    return weight, table


def check(found: Any, step: int, average: bool) -> None:
    for mine, theirs in zip(found, expected((step + 1) // PASSES, average)):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


# ---- graphs --------------------------------------------------------------------------------------


def train_in_graph(inner: Any, use_resource: bool, **options: Any) -> tuple[Any, Any, Any, Any, Any]:
    weight = v1.get_variable("w", initializer=np.zeros(2, np.float32), use_resource=use_resource)
    table = v1.get_variable("t", initializer=np.zeros((4, 2), np.float32), use_resource=use_resource)
    unused = v1.get_variable("unused", initializer=np.zeros(2, np.float32), use_resource=use_resource)
    rows, factor = v1.placeholder(tf.int32, (None,)), v1.placeholder(tf.float32, ())
    loss = (tf.reduce_sum(weight) + tf.reduce_sum(tf.gather(table, rows))) * factor
    optimizer = hvd.DistributedOptimizer(inner, backward_passes_per_step=PASSES, **options)
    step = v1.train.get_or_create_global_step()
    pairs = optimizer.compute_gradients(loss, [weight, table, unused])
    assert pairs[2][0] is None
    assert isinstance(pairs[1][0], tf.IndexedSlices) == (options.get("sparse_as_dense") is not True)
    train = optimizer.apply_gradients(pairs[:2] + pairs[2:], global_step=step)
    return train, [weight, table], step, rows, factor


@every_way
@every_kind
@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "ref"])
def test_graph(average: bool, as_dense: Any, use_resource: bool) -> None:
    with graph_session() as session:
        train, weights, count, rows, factor = train_in_graph(
            v1.train.GradientDescentOptimizer(1.0),
            use_resource,
            sparse_as_dense=as_dense,
            average_aggregated_gradients=average,
        )
        assert len(v1.trainable_variables()) == 3
        assert {one.op.name for one in v1.global_variables()} == {"w", "t", "unused", "global_step"}
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        for step in range(2 * PASSES + 1):
            session.run(train, {rows: rows_of(step, RANK), factor: dense_of(step, RANK)})
            check(session.run(weights), step, average)
            assert session.run(count) == (step + 1) // PASSES


@pytest.mark.parametrize("control_flow", ["v1", "v2"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: v1.train.AdamOptimizer(0.1),
        lambda: v1.train.MomentumOptimizer(0.1, 0.9),
        lambda: v1.train.AdagradOptimizer(0.1),
    ],
    ids=["adam", "momentum", "adagrad"],
)
def test_state_of_the_optimizer_moves_once_in_a_step(make: Callable[[], Any], control_flow: str) -> None:
    """As the plain optimizer that is given the sum of all passes, averaged over all ranks."""

    def run(distributed: bool) -> Any:
        with graph_session() as session:
            weight = v1.get_variable("w", initializer=np.ones(3, np.float32))
            fed = v1.placeholder(tf.float32, (3,))
            optimizer = make()
            if distributed:
                optimizer = hvd.DistributedOptimizer(optimizer, backward_passes_per_step=PASSES)
            train = optimizer.minimize(tf.reduce_sum(weight * fed))
            session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
            for step in range(4):
                parts: Any = [[np.arange(3.0) + rank - step + one for rank in range(SIZE)] for one in range(PASSES)]
                if distributed:
                    for one in parts:
                        session.run(train, {fed: one[RANK]})
                else:
                    session.run(train, {fed: np.sum(np.mean(parts, axis=1), axis=0)})
            slots = [optimizer.get_slot(weight, name) for name in optimizer.get_slot_names()]
            return session.run([weight, *slots])

    if control_flow == "v2":
        v1.enable_control_flow_v2()
    else:
        v1.disable_control_flow_v2()
    try:
        found = run(True)
    finally:
        v1.enable_control_flow_v2()
    for mine, theirs in zip(found, run(False)):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_collectives_run_in_the_last_pass_only() -> None:
    """Rank 0 runs passes alone; the others come when the last one is due."""
    with graph_session() as session:
        weight = v1.get_variable("w", initializer=np.zeros(2, np.float32))
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=PASSES)
        train = optimizer.minimize(tf.reduce_sum(weight) * (RANK + 1))
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        for rank in range(SIZE):
            if rank == RANK:
                for _ in range(PASSES - 1):
                    session.run(train)
            hvd.allgather_object(rank)
        session.run(train)
        np.testing.assert_allclose(session.run(weight), np.full(2, -PASSES * (SIZE + 1) / 2), rtol=1e-6)


def test_what_is_not_finite_in_one_step_is_gone_in_the_next() -> None:
    with graph_session() as session:
        weight = v1.get_variable("w", initializer=np.zeros(2, np.float32))
        fed = v1.placeholder(tf.float32, ())
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=2)
        pairs = optimizer.compute_gradients(tf.reduce_sum(weight) * fed, [weight])
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        for value in (np.inf, np.nan, 1.0):
            session.run(pairs[0][0], {fed: value})
        np.testing.assert_allclose(session.run(pairs[0][0], {fed: 2.0}), [3.0, 3.0])


def test_two_optimizers_and_two_losses_in_one_graph() -> None:
    with graph_session() as session:
        weights = [v1.get_variable(f"w{i}", initializer=np.zeros(2, np.float32)) for i in range(3)]
        one, other = (
            hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=passes)
            for passes in (2, 3)
        )
        losses = [tf.reduce_sum(weight) * (RANK + 1) for weight in weights]
        first = one.compute_gradients(losses[0], [weights[0]])
        second = one.compute_gradients(losses[1], [weights[1]])
        trains = [
            one.apply_gradients(first),
            one.apply_gradients(second),
            other.minimize(losses[2], var_list=weights[2:]),
        ]
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        for _ in range(6):
            session.run(trains)
        for weight, passes in zip(session.run(weights), (6, 6, 6)):
            np.testing.assert_allclose(weight, np.full(2, -passes * (SIZE + 1) / 2), rtol=1e-6)


def test_eager_optimizer_of_graphs() -> None:
    weight = tf.Variable(np.zeros(2, np.float32))
    optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=2)
    for step in range(5):
        optimizer.minimize(lambda: tf.reduce_sum(weight) * (RANK + 1.0), var_list=[weight])
        np.testing.assert_allclose(weight.numpy(), np.full(2, -2 * ((step + 1) // 2) * (SIZE + 1) / 2), rtol=1e-6)


# ---- Keras ---------------------------------------------------------------------------------------


@every_generation
@every_way
@every_kind
@pytest.mark.parametrize("mode", ["eager", "function"])
def test_keras(optimizers: Any, average: bool, as_dense: Any, mode: str) -> None:
    optimizer = hvd_keras.DistributedOptimizer(
        optimizers.SGD(1.0),
        sparse_as_dense=as_dense,
        backward_passes_per_step=PASSES,
        average_aggregated_gradients=average,
    )
    weights = [tf.Variable(np.zeros(2, np.float32)), tf.Variable(np.zeros((4, 2), np.float32))]

    def one_pass(rows: Any, factor: Any) -> None:
        with tf.GradientTape() as tape:
            loss = (tf.reduce_sum(weights[0]) + tf.reduce_sum(tf.gather(weights[1], rows))) * factor
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))

    run = tf.function(one_pass) if mode == "function" else one_pass
    for step in range(2 * PASSES + 1):
        run(tf.constant(rows_of(step, RANK)), tf.constant(dense_of(step, RANK)))
        check([weight.numpy() for weight in weights], step, average)
        assert int(optimizer.iterations) == (step + 1) // PASSES


def model_of(optimizer: Any) -> Any:
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input((3,)), layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    model.compile(optimizer, loss="mse", **({"jit_compile": False} if KERAS_3 else {}))
    return model


@every_generation
def test_fit(optimizers: Any) -> None:
    """One step of a batch of all ranks and passes, by Adam, and again."""
    data: Any = np.random.RandomState(3).rand(2 * PASSES, SIZE, 4, 3).astype(np.float32)
    mine = data[:, RANK].reshape(-1, 3)
    optimizer = hvd_keras.DistributedOptimizer(
        optimizers.Adam(0.1), backward_passes_per_step=PASSES, average_aggregated_gradients=True
    )
    model = model_of(optimizer)
    model.fit(mine, np.zeros((len(mine), 1)), 4, 1, verbose=0, shuffle=False)
    plain = model_of(optimizers.Adam(0.1))
    everything = data.reshape(-1, 3)
    plain.fit(everything, np.zeros((len(everything), 1)), 4 * SIZE * PASSES, 1, verbose=0, shuffle=False)
    np.testing.assert_allclose(model.get_weights()[0], plain.get_weights()[0], rtol=1e-5)
    assert int(optimizer.iterations) == 2


@every_generation
def test_loss_scaling_inside(optimizers: Any) -> None:
    """A rank overflows in one of the passes: all ranks leave that step out, and only that."""
    scaled = tf.keras.mixed_precision.LossScaleOptimizer(optimizers.SGD(0.5))
    model = model_of(hvd_keras.DistributedOptimizer(scaled, backward_passes_per_step=2))
    x: Any = np.full((16, 3), 1.0, np.float32)
    x[4:8] = np.inf if RANK == SIZE - 1 else 1.0
    x[8:] *= 0.5
    model.fit(x, np.zeros((16, 1)), 4, 1, verbose=0, shuffle=False)
    np.testing.assert_allclose(model.get_weights()[0][:, 0], np.full(3, 1.0 - 0.5 * 2 * 2 * 1.5 * 0.5), rtol=1e-5)


@pytest.mark.skipif(KERAS_3, reason="Keras 3 has no graph mode")
def test_fit_in_graph_mode() -> None:
    with graph_session() as session:
        v1.keras.backend.set_session(session)
        optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.legacy.SGD(0.125), backward_passes_per_step=2)
        model = model_of(optimizer)
        x: Any = np.full((20, 3), RANK + 1.0, np.float32)
        model.fit(x, np.zeros((20, 1)), 4, 1, verbose=0)
        names = [op.name for op in session.graph.get_operations() if op.type in mpi_ops.OP_TYPES]
        assert len(names) == (0 if SIZE == 1 else 1)
        weight = 1.0
        for _ in range(2):
            weight -= 0.125 * 2 * sum(6.0 * weight * (rank + 1) ** 2 for rank in range(SIZE)) / SIZE
        np.testing.assert_allclose(model.get_weights()[0][:, 0], np.full(3, weight), rtol=1e-4)
        assert session.run(optimizer.iterations) == 2


# ---- what does not go ----------------------------------------------------------------------------


@pytest.mark.parametrize("passes", [0, -1, 1.5])
def test_passes_that_are_none(passes: Any) -> None:
    message = "backward_passes_per_step is .* and must be a whole number from 1 on"
    with pytest.raises(ValueError, match=message):
        hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(), backward_passes_per_step=passes)
    with pytest.raises(ValueError, match=message):
        hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=passes)


def test_apply_without_compute() -> None:
    optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=2)
    with pytest.raises(ValueError, match="takes the variables that compute_gradients has given"):
        optimizer.apply_gradients([(tf.ones(2), tf.Variable([1.0, 2.0]))])


def test_sparse_and_dense_in_turns() -> None:
    helper = hvd.LocalGradientAggregationHelper(3, list)
    table = tf.Variable(np.zeros((4, 2), np.float32), name="table")
    helper.compute_gradients([tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1]), tf.constant([4, 2]))], [table])
    with pytest.raises(ValueError, match=r"table:0 is sparse in some passes and dense in others|table is sparse"):
        helper.compute_gradients([tf.ones((4, 2))], [table])


@every_generation
@pytest.mark.parametrize("mode", ["eager", "function"])
def test_gradients_that_are_none_in_some_passes_are_not_lost_without_a_word(optimizers: Any, mode: str) -> None:
    one, two = tf.Variable([0.0]), tf.Variable([0.0])
    optimizer = hvd_keras.DistributedOptimizer(optimizers.SGD(1.0), backward_passes_per_step=2)

    def first() -> None:
        optimizer.apply_gradients([(tf.ones(1), one), (tf.ones(1), two)])

    def second() -> None:
        optimizer.apply_gradients([(tf.ones(1), one), (None, two)])

    both, only = (tf.function(first), tf.function(second)) if mode == "function" else (first, second)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras', of gradients that do not exist
        both()
        with pytest.raises(tf.errors.InvalidArgumentError, match="unconnected_gradients"):
            only()
        np.testing.assert_array_equal([one.numpy(), two.numpy()], [[0.0], [0.0]])
        both()
        np.testing.assert_array_equal([one.numpy(), two.numpy()], [[-2.0], [-2.0]])
        for _ in range(2):  # not in a step of its own
            only()
        np.testing.assert_array_equal([one.numpy(), two.numpy()], [[-4.0], [-2.0]])
        only()
        with pytest.raises(tf.errors.InvalidArgumentError, match="unconnected_gradients"):
            both()
