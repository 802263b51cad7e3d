"""Collectives where TensorFlow decides what runs, when, and how often; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.tensorflow as hvd
from horovod_tf.tensorflow import mpi_ops
from tensorflow_support import RANK, SIZE, assert_same, graph_session, summed, v1, values

OTHERS = SIZE * (SIZE - 1) / 2  # the sum of all ranks


def test_constant_on_one_rank_is_not_folded_by_the_optimizer_of_graphs() -> None:
    """It leaves graphs of a few nodes alone, so here are more."""
    with graph_session() as session:
        fed = v1.placeholder(tf.float32, (2,))
        tensor = tf.constant([7.0, 8.0]) * 2.0 + 1.0 if RANK == 0 else fed * 2.0 + 1.0
        total = mpi_ops._allreduce(tensor, "folded") * 3.0 - 1.0
        total = tf.reduce_sum(total) + tf.reduce_sum(mpi_ops._allreduce(tf.square(tensor), "folded_square"))
        for step in range(5):
            result = session.run(total, {fed: [step, RANK]})
            inputs = [[15.0, 17.0]] + [[2.0 * step + 1, 2.0 * rank + 1] for rank in range(1, SIZE)]
            everything: Any = np.sum(inputs, axis=0)
            squares: Any = np.sum(np.square(inputs), axis=0)
            assert result == np.sum(everything * 3 - 1) + np.sum(squares), step


def test_loop_written_in_python() -> None:
    @tf.function
    def program(trips: Any) -> Any:
        total = tf.constant(0.0)
        for trip in tf.range(trips):
            reduced = mpi_ops._allreduce(tf.cast(trip, tf.float32) + RANK, "trip")
            if reduced > 20.0 * SIZE + OTHERS:  # all ranks agree, as all have the same sum
                break
            total += reduced
        return total

    # More trips than are taken; the second call has fewer.
    assert program(tf.constant(50)).numpy() == SIZE * 210 + 21 * OTHERS
    assert program(tf.constant(5)).numpy() == SIZE * 10 + 5 * OTHERS


def test_loop_until_all_ranks_are_ready() -> None:
    """Each rank has another number of trips to do; the sum of what is left tells all when to end."""

    @tf.function
    def program(mine: Any) -> Any:
        trips = tf.constant(0)
        left = mpi_ops._allreduce(mine, "left_at_first")
        while left > 0:
            mine = tf.maximum(mine - 1, 0)
            left = mpi_ops._allreduce(mine, "left")
            trips += 1
        return trips

    assert program(tf.constant(3 * RANK + 2)).numpy() == 3 * (SIZE - 1) + 2


@pytest.mark.parametrize("control_flow", ["v1", "v2"])
def test_nested_loops_with_a_reduction_at_each_level(control_flow: str) -> None:
    """Trips of the outer loop run at the same time, each with an inner loop of its own."""

    def inner(outer_trip: Any) -> Any:
        def body(trip: Any, total: Any) -> Any:
            return trip + 1, total + mpi_ops._allreduce(trip * 10 + outer_trip + RANK, "inner")

        start = (tf.constant(0, tf.int64), tf.constant(0, tf.int64))
        return tf.while_loop(lambda trip, _: trip < 4, body, start)[1]

    def outer(trip: Any, total: Any) -> Any:
        return trip + 1, total + inner(trip) * 100 + mpi_ops._allreduce(trip, "outer")

    if control_flow == "v1":
        v1.disable_control_flow_v2()
    try:
        with graph_session() as session:
            start = (tf.constant(0, tf.int64), tf.constant(0, tf.int64))
            result = tf.while_loop(lambda trip, _: trip < 3, outer, start)[1]
            inner_sums = sum(SIZE * (10 * i + o) + SIZE * (SIZE - 1) // 2 for i in range(4) for o in range(3))
            assert [session.run(result) for _ in range(3)] == [100 * inner_sums + SIZE * 3] * 3
    finally:
        v1.enable_control_flow_v2()


@pytest.mark.parametrize("taken", [True, False])
def test_branch_that_all_take_in_a_function(taken: bool) -> None:
    @tf.function
    def program(which: Any, x: Any) -> Any:
        y = -x
        if which:
            y = mpi_ops._allreduce(x, "yes")
        else:
            y *= hvd.broadcast(x, 0, "no")
        return y

    result = program(tf.constant(taken), tf.constant(values((17,), tf.float32))).numpy()
    assert_same(
        result, summed((17,), tf.float32) if taken else -values((17,), tf.float32) * values((17,), tf.float32, 0)
    )


def test_gradient_through_a_loop() -> None:
    """x times the sum over ranks of a constant one, three times: x * N^3."""
    with graph_session() as session:
        x = v1.placeholder(tf.float64, ())

        def body(trip: Any, product: Any) -> Any:
            return trip + 1, mpi_ops._allreduce(product, "power")

        result = tf.while_loop(lambda trip, _: trip < 3, body, (tf.constant(0), x))[1]
        gradient = v1.gradients(result, x)[0]
        # Each reduction sums the ranks' values, and in the gradient their gradients.
        found = session.run([result, gradient], {x: RANK + 1.0})
        assert found == [SIZE**2 * SIZE * (SIZE + 1) / 2, SIZE**3]


def test_threads_that_submit_in_different_order() -> None:
    threads, steps = 4, 25
    wrong: list[str] = []
    with graph_session() as session:
        fed = [v1.placeholder(tf.int64, ()) for _ in range(threads)]
        totals = [mpi_ops._allreduce(one, f"thread_{i}") for i, one in enumerate(fed)]

        def work(i: int) -> None:
            for step in range(steps):
                result = session.run(totals[i], {fed[i]: 1000 * i + step + RANK})
                if result != SIZE * (1000 * i + step) + OTHERS:
                    wrong.append(f"thread {i}, step {step}: {result}")

        order = range(threads) if RANK % 2 == 0 else reversed(range(threads))
        running = [threading.Thread(target=work, args=(i,)) for i in order]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    assert wrong == []


def test_compiler_that_does_not_know_the_operations_says_which() -> None:
    @tf.function(jit_compile=True)
    def program(x: Any) -> Any:
        return mpi_ops._allreduce(x, "compiled")

    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.UnimplementedError), match="HorovodAllreduce"):
        program(tf.ones(3))
    assert_same(mpi_ops._allreduce(values((3,), tf.int32)).numpy(), summed((3,), tf.int32))


def test_tensors_from_outside_of_a_function() -> None:
    """Their names are numbers of TensorFlow's, and each rank has made another number of things before."""
    kept = [tf.Variable(float(place)) for place in range(3 * RANK + 1)]
    one, two = tf.constant([1.0, 2.0]) * len(kept), tf.ones([2], tf.int32)
    rows = tf.IndexedSlices(tf.constant([[1.0 + RANK]]), tf.constant([1], tf.int64), tf.constant([3, 1], tf.int64))

    @tf.function
    def program() -> Any:
        wide = hvd.Compression.fp16
        return (
            hvd.allreduce(one, op=hvd.Sum),
            hvd.allreduce(two, op=hvd.Sum),
            hvd.grouped_allreduce([one, two], op=hvd.Sum),
            hvd.allgather(one),
            hvd.broadcast(one, 0),
            hvd.reducescatter(tf.ones([SIZE]), op=hvd.Sum),
            hvd.allreduce(one, op=hvd.Sum, compression=wide),
            tf.cond(two[0] > 0, lambda: hvd.allreduce(one, op=hvd.Sum), lambda: one),
            tf.convert_to_tensor(hvd.allreduce(rows, op=hvd.Sum)),
        )

    lengths = [3 * rank + 1 for rank in range(SIZE)]
    total: Any = np.array([1.0, 2.0]) * sum(lengths)
    for _ in range(2):
        first, second, group, every, root, mine, halves, branch, table = program()
        for sums in (first, group[0], halves, branch):
            np.testing.assert_array_equal(sums, total)
        for counts in (second, group[1]):
            np.testing.assert_array_equal(counts, [SIZE, SIZE])
        np.testing.assert_array_equal(every, [factor * length for length in lengths for factor in (1, 2)])
        np.testing.assert_array_equal(root, [1.0, 2.0])
        np.testing.assert_array_equal(mine, [SIZE])
        np.testing.assert_array_equal(table, [[0.0], [SIZE * (SIZE + 1) / 2], [0.0]])
