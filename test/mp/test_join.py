"""Ranks that run out of data: `hvd.join`; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.tensorflow as hvd
from tensorflow_support import RANK, SIZE, graph_session, v1

STEPS = 4


def steps_of(rank: int) -> int:
    """Rank 0 has the most data, so that it is known who joins last."""
    return STEPS + SIZE - rank


def with_data(step: int) -> list[int]:
    return [rank for rank in range(SIZE) if step < steps_of(rank)]


def mean(step: int) -> float:
    return float(np.mean([(rank + 1.0) * (step + 1) for rank in with_data(step)]))


def rows(step: int) -> Any:
    """The dense equivalent of the average of what `slices` gives."""
    total = np.zeros((SIZE + 1, 2))
    for rank in with_data(step):
        total[rank] += rank + 1.0
        total[SIZE] += 1.0
    return total / len(with_data(step))


def slices() -> tf.IndexedSlices:
    values = tf.constant([[RANK + 1.0] * 2, [1.0] * 2])
    return tf.IndexedSlices(values, tf.constant([RANK, SIZE]), dense_shape=(SIZE + 1, 2))


def test_others_go_on_with_every_collective() -> None:
    for step in range(steps_of(RANK)):
        mine = tf.fill([3], (RANK + 1.0) * (step + 1))
        ranks = with_data(step)
        np.testing.assert_allclose(hvd.allreduce(mine, name="dense"), [mean(step)] * 3, rtol=1e-6)
        np.testing.assert_allclose(hvd.allreduce(mine, op=hvd.Sum), [mean(step) * len(ranks)] * 3, rtol=1e-6)
        assert hvd.allreduce(tf.constant(RANK + 5), op=hvd.Min) == 5
        assert hvd.allreduce(tf.constant(-RANK - 5), op=hvd.Max) == -5
        assert hvd.allreduce(tf.constant(2), op=hvd.Product) == 2 ** len(ranks)
        np.testing.assert_allclose(tf.convert_to_tensor(hvd.allreduce(slices())), rows(step), rtol=1e-6)
        assert hvd.allgather(tf.fill([RANK + 1], RANK)).numpy().tolist() == [r for r in ranks for _ in range(r + 1)]
        assert hvd.broadcast(tf.constant(RANK + 7), 0) == 7
        for one in hvd.grouped_allreduce([mine, mine]):
            np.testing.assert_allclose(one, [mean(step)] * 3, rtol=1e-6)
        assert hvd.allgather_object(RANK) == ranks
        hvd.barrier()
    assert hvd.join() == 0
    assert hvd.allreduce(tf.constant(1), op=hvd.Sum) == SIZE


def test_large_tensor_goes_on_in_parts() -> None:
    for step in range(steps_of(RANK)):
        mine = tf.range(300_000, dtype=tf.float32) + RANK
        reduced = hvd.allreduce(mine, name="large", op=hvd.Average, prescale_factor=2.0)
        np.testing.assert_allclose(reduced, 2 * (np.arange(300_000) + np.mean(with_data(step))), rtol=1e-6)
    hvd.join()


def test_average_of_sparse_integers_is_cut_toward_zero() -> None:
    reduced = hvd.allreduce(tf.IndexedSlices(tf.constant([[-7]]), tf.constant([RANK]), dense_shape=(SIZE, 1)))
    assert reduced.values.numpy().tolist() == [[int(-7 / SIZE)]] * SIZE


def test_gradients_of_rows_without_the_first_rank() -> None:
    """What comes back is of this rank's rows, also where ranks before it bring none."""
    here = list(range(SIZE))[-max(SIZE - 1, 1) :]
    if RANK in here:
        weight = tf.range(1.0, 1.0 + sum(rank + 1 for rank in here))
        x = tf.Variable(tf.ones([RANK + 1]))
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(hvd.allgather(x) * weight)
        begin = sum(rank + 1 for rank in here if rank < RANK)
        np.testing.assert_allclose(tape.gradient(y, x), (len(here) * weight)[begin : begin + RANK + 1])
        rows = 2 * SIZE + 1
        share = np.array([max(0, (row - 1) // 2) for row in range(rows)])  # rank 0 has one row more
        expected = np.where(np.isin(share, here), share + 1.0, 0.0)
        for op, ranks in ((hvd.Sum, 1), (hvd.Average, len(here))):
            x, z = tf.Variable(tf.ones([rows])), tf.Variable(tf.ones([rows]))
            with tf.GradientTape() as tape:
                grouped = hvd.grouped_reducescatter([z], op=op)[0]
                y = tf.reduce_sum(hvd.reducescatter(x, op=op) + grouped) * (RANK + 1)
            for gradient in tape.gradient(y, [x, z]):
                np.testing.assert_allclose(gradient, expected / ranks, rtol=1e-6)
    assert hvd.join() in range(SIZE)


def test_gradient_of_a_sparse_average() -> None:
    def program(x: Any) -> Any:
        return tf.reduce_sum(hvd.allreduce(tf.IndexedSlices(x, tf.constant([RANK]), (SIZE, 1))).values)

    x = tf.constant([[3.0]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = program(x)
    assert tape.gradient(y, x).numpy().tolist() == [[1.0]]


def test_no_data_from_the_start() -> None:
    """T7."""
    if RANK == 0:
        gradient = tf.constant([0.1, -0.0, 3e-42])
        assert hvd.allreduce(gradient, name="alone").numpy().tobytes() == gradient.numpy().tobytes()
    assert hvd.join() in range(SIZE)


@pytest.mark.parametrize("how", ["eager", "function"])
def test_training_with_a_tape(how: str) -> None:
    """T5, and T6's sparse gradients."""
    weight = tf.Variable(tf.zeros([3]))
    table = tf.Variable(tf.zeros([SIZE + 1, 2]))

    def step_of(factor: tf.Tensor) -> None:
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            picked = tf.gather(table, [RANK, SIZE])
            loss = tf.reduce_sum(weight) * factor + tf.reduce_sum(picked * [[RANK + 1.0], [1.0]])
        for variable, gradient in zip([weight, table], tape.gradient(loss, [weight, table])):
            assert isinstance(gradient, tf.IndexedSlices) == (variable is table) or SIZE == 1
            variable.assign_sub(tf.convert_to_tensor(gradient))

    run = tf.function(step_of) if how == "function" else step_of
    for step in range(steps_of(RANK)):
        run(tf.constant((RANK + 1.0) * (step + 1)))
    last = hvd.join()
    # Those that ended earlier have not seen the last steps.
    for variable in (weight, table):
        variable.assign(hvd.broadcast(variable, int(last)))
    np.testing.assert_allclose(weight, [-sum(mean(step) for step in range(steps_of(0)))] * 3, rtol=1e-5)
    np.testing.assert_allclose(table, -sum(rows(step) for step in range(steps_of(0))), rtol=1e-5)


def test_training_in_a_graph() -> None:
    with graph_session() as session:
        weight = v1.get_variable("weight", [3], initializer=v1.zeros_initializer())
        factor = v1.placeholder(tf.float32, ())
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0))
        train = optimizer.minimize(tf.reduce_sum(weight) * factor)
        join = hvd.join()
        newest = v1.assign(weight, hvd.broadcast(weight, 0))
        session.run(v1.global_variables_initializer())
        for step in range(steps_of(RANK)):
            session.run(train, {factor: (RANK + 1.0) * (step + 1)})
        assert session.run(join) == 0
        value = session.run(newest)
    np.testing.assert_allclose(value, [-sum(mean(step) for step in range(steps_of(0)))] * 3, rtol=1e-5)


def test_in_a_function_it_is_in_the_order_of_the_program() -> None:
    @tf.function
    def program() -> Any:
        before = [hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name=f"before_{i}") for i in range(5)]
        last = hvd.join()
        after = hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name="after")
        return tf.add_n(before), last, after

    before, last, after = program()
    assert before == 5.0 * SIZE
    assert after == SIZE
    assert last in range(SIZE)


def share_of(rows: int, rank: int) -> slice:
    """Of dimension 0: the first ranks have one row more."""
    begins = [sum(rows // SIZE + (one < rows % SIZE) for one in range(rank)) for rank in range(SIZE + 1)]
    return slice(begins[rank], begins[rank + 1])


@pytest.mark.parametrize("count", [2 * SIZE + 1, 40_000 * SIZE + 1])
def test_rows_of_ranks_that_have_joined_are_left_out_of_reducescatter(count: int) -> None:
    for step in range(steps_of(RANK)):
        mine = tf.range(count, dtype=tf.float64) * (RANK + 1.0)
        total: Any = np.arange(count) * sum(rank + 1.0 for rank in with_data(step))
        summed = hvd.reducescatter(mine, op=hvd.Sum, name="summed")
        np.testing.assert_allclose(summed, total[share_of(count, RANK)], rtol=1e-12)
        averaged = hvd.reducescatter(mine, name="averaged")
        np.testing.assert_allclose(averaged, total[share_of(count, RANK)] / len(with_data(step)), rtol=1e-12)
    hvd.join()


@pytest.mark.skipif(SIZE == 1, reason="needs a rank that has joined")
def test_alltoall_goes_on_between_those_that_are_there() -> None:
    for step in range(steps_of(RANK)):
        there = with_data(step)
        splits = [2 if rank in there else 0 for rank in range(SIZE)]
        received, counts = hvd.alltoall(tf.fill([2 * len(there)], RANK), splits, name="between")
        assert received.numpy().tolist() == [rank for rank in there for _ in range(2)]
        assert counts.numpy().tolist() == splits
    if RANK == 0:  # all others have joined, or will
        with pytest.raises(tf.errors.FailedPreconditionError, match="rank 0 has rows for rank 1, which has no more"):
            hvd.alltoall(tf.fill([SIZE], RANK), name="to_all")
    hvd.join()


def test_root_that_has_joined_is_an_error_for_the_others() -> None:
    if SIZE == 1:
        pytest.skip("there are no others")
    if RANK > 0:
        assert hvd.allreduce(tf.constant(1), op=hvd.Sum, name="rank_0_has_joined") == SIZE - 1
        with pytest.raises(tf.errors.FailedPreconditionError, match="rank 0, the root of this BROADCAST"):
            hvd.broadcast(tf.constant(1.0), 0, name="from_a_joined_root")
        assert hvd.broadcast(tf.constant(float(RANK)), 1, name="from_another") == 1.0
    hvd.join()
