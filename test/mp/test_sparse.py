"""Sparse gradients: rows merged before they travel, or whole tables; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.tensorflow as hvd
from horovod_tf.tensorflow import mpi_ops, sparse
from tensorflow_support import RANK, SIZE, by_name, graph_session, several_ranks, v1

MODES = ["eager", "function", "graph"]
every_mode = pytest.mark.parametrize("mode", MODES)
TABLE = 6
MANY = 40  # rows of a rank


def slices_of(rank: int, count: int, dtype: tf.DType) -> tuple[Any, Any]:
    """Values and indices; index 0 most often, and the last one never twice."""
    values: Any = np.arange(2 * count).reshape(count, 2) % 7 - 3 * (rank + 1)
    indices: Any = np.arange(count) % (TABLE - 1) * (np.arange(count) % 2)
    if count:
        indices[-1] = TABLE - 1
    return values.astype(dtype.as_numpy_dtype), indices.astype(np.int64)


def total(count_of: Any, dtype: tf.DType) -> Any:
    table: Any = np.zeros((TABLE, 2), np.float64)
    for rank in range(SIZE):
        values, indices = slices_of(rank, count_of(rank), dtype)
        np.add.at(table, indices, values.astype(np.float64))
    return table


def run(program: Any, mode: str, *arrays: Any) -> Any:
    """The dense table and the indices that `program` makes of values and indices."""
    if mode == "graph":
        with graph_session() as session:
            fed = [v1.placeholder(one.dtype, (None, *one.shape[1:])) for one in arrays]
            return session.run(program(*fed), dict(zip(fed, arrays)))
    way: Any = tf.function(program) if mode == "function" else program
    return [one.numpy() for one in way(*(tf.constant(one) for one in arrays))]


@every_mode
@by_name([tf.float32, tf.float16, tf.bfloat16, tf.float64, tf.int32, tf.int64])
@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average], ids=["sum", "average"])
def test_each_index_travels_once(mode: str, dtype: tf.DType, op: Any) -> None:
    """And the table is that of dense gradients, also where an average of integers is truncated."""

    def program(values: Any, indices: Any) -> Any:
        reduced = hvd.allreduce(tf.IndexedSlices(values, indices, tf.constant([TABLE, 2])), op=op)
        assert reduced.dtype == dtype
        return tf.cast(tf.convert_to_tensor(reduced), tf.float64), reduced.indices

    table, indices = run(program, mode, *slices_of(RANK, MANY + RANK, dtype))
    expected = total(lambda rank: MANY + rank, dtype)
    if op == hvd.Average:
        expected = np.trunc(expected / SIZE) if dtype.is_integer else expected / SIZE
    np.testing.assert_allclose(table, expected, rtol={tf.float16: 2e-3, tf.bfloat16: 2e-2}.get(dtype, 1e-6))
    merged_everywhere = dtype.is_integer and op == hvd.Average
    distinct = sum(len(set(slices_of(rank, MANY + rank, dtype)[1])) for rank in range(SIZE))
    assert len(indices) == (len(set(indices)) if merged_everywhere else distinct)


@every_mode
def test_rows_without_duplicates_keep_their_order(mode: str) -> None:
    def program(values: Any, indices: Any) -> Any:
        reduced = hvd.allreduce(tf.IndexedSlices(values, indices, tf.constant([TABLE, 2])), op=hvd.Sum)
        return reduced.values, reduced.indices

    values: Any = np.array([[1, 2], [3, 4], [5, 6]], np.float32) + RANK
    found, indices = run(program, mode, values, np.array([4, 0, 2]))
    assert indices.tolist() == [4, 0, 2] * SIZE
    np.testing.assert_array_equal(found, np.concatenate([values - RANK + rank for rank in range(SIZE)]))


def reduced_by(sparse_as_dense: Any, weights: list[Any], rows: list[Any], **options: Any) -> list[Any]:
    """Averages of the gradients of `weights`, of which each rank takes some rows."""
    with tf.GradientTape() as tape:
        parts = [tf.reduce_sum(tf.gather(weight, one)) * (RANK + 1.0) for weight, one in zip(weights, rows)]
        loss = tf.add_n(parts)
    tape = hvd.DistributedGradientTape(tape, sparse_as_dense=sparse_as_dense, **options)
    gradients = tape.gradient(loss, weights)
    assert all(isinstance(one, tf.IndexedSlices) for one in gradients)
    return list(gradients)


@several_ranks
@pytest.mark.parametrize("mode", ["eager", "function"])
def test_ranks_agree_on_the_shorter_way(mode: str) -> None:
    """One table of which little is needed, one of which all is, and one that only the last rank needs all of."""
    weights = [tf.Variable(np.zeros((100, 8), np.float32)) for _ in range(3)]
    most = np.arange(100)
    mine = [np.array([RANK, 3, 3]), most, most if RANK == SIZE - 1 else np.zeros(0, np.int64)]

    def step() -> Any:
        found = reduced_by("auto", weights, mine)
        return [tf.convert_to_tensor(one) for one in found], [tf.size(one.indices) for one in found]

    way: Any = tf.function(step) if mode == "function" else step
    for _ in range(2):
        tables, counts = way()
        # Rows of all ranks times 40 bytes, against twice 100 times 32.
        few = sum(len({rank, 3}) for rank in range(SIZE))
        assert [int(one) for one in counts] == [few, 100 if SIZE * 40 > 64 else 200, 100]
        expected: Any = np.zeros((3, 100))
        for rank in range(SIZE):
            np.add.at(expected[0], [rank, 3, 3], (rank + 1) / SIZE)
            expected[1] += (rank + 1) / SIZE
        expected[2] = 1.0
        for table, one in zip(tables, expected):
            np.testing.assert_allclose(table, np.repeat(one[:, None], 8, axis=1), rtol=1e-6)


@several_ranks
@pytest.mark.parametrize("compression", [hvd.Compression.none, hvd.Compression.bf16])
def test_tables_and_dense_gradients_in_a_graph(compression: Any) -> None:
    with graph_session() as session:
        dense = v1.get_variable("dense", initializer=np.zeros(3, np.float32))
        table = v1.get_variable("table", initializer=np.zeros((4, 2), np.float32))
        rows = v1.placeholder(tf.int32, (None,))
        optimizer = hvd.DistributedOptimizer(
            v1.train.MomentumOptimizer(1.0, 0.5),
            sparse_as_dense="auto",
            compression=compression,
            gradient_predivide_factor=2.0,
        )
        loss = (tf.reduce_sum(dense) + tf.reduce_sum(tf.gather(table, rows))) * (RANK + 1)
        pairs = optimizer.compute_gradients(loss)
        train = optimizer.apply_gradients(pairs)
        session.run(v1.global_variables_initializer())
        for fed in ([RANK % 4], [0, 1, 2, 3] * 5):  # rows of all, then the table
            session.run(train, {rows: fed})
        mean = (SIZE + 1) / 2
        np.testing.assert_allclose(session.run(dense), np.full(3, -2.5 * mean), rtol=1e-2)
        first = np.zeros(4)
        for rank in range(SIZE):
            first[rank % 4] += (rank + 1) / SIZE
        # A row that is not touched in a step keeps its momentum as it is.
        expected = -(first + 5 * mean + 0.5 * first)
        np.testing.assert_allclose(session.run(table), np.repeat(expected[:, None], 2, axis=1), rtol=2e-2)


def test_many_words_of_a_large_table_send_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    before = mpi_ops.allgather

    def counted(tensor: Any, *args: Any) -> Any:
        sent.append(int(tf.size(tensor)) * tensor.dtype.size)
        return before(tensor, *args)

    monkeypatch.setattr(sparse, "allgather", counted)
    indices = np.random.RandomState(RANK).randint(0, 50, 10000) * 20000
    slices = tf.IndexedSlices(tf.ones((10000, 8)), tf.constant(indices), tf.constant([1000000, 8]))
    found = hvd.allreduce(slices, op=hvd.Sum)
    assert sum(sent) <= 50 * (8 * 4 + 8)
    np.testing.assert_allclose(tf.reduce_sum(found.values), 80000.0 * SIZE)


def test_what_sparse_as_dense_may_be() -> None:
    with pytest.raises(ValueError, match=r'sparse_as_dense is .maybe., and must be True, False or "auto"'):
        hvd.DistributedGradientTape(tf.GradientTape(), sparse_as_dense="maybe")
    assert mpi_ops.size() == SIZE
