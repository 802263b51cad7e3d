"""Several tensors reduced by one operation; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

import horovod_tf.tensorflow as hvd
from horovod_tf.tensorflow import mpi_ops
from horovod_tf.tensorflow.gradients import _grouped_allreduce_grad
from tensorflow_support import (
    RANK,
    REDUCIBLE,
    SHAPES,
    SIZE,
    assert_same,
    by_name,
    graph_session,
    large,
    several_ranks,
    summed,
    v1,
    values,
)

GROUPED = "HorovodGroupedAllreduce"


def of_type(graph: tf.Graph, kind: str = GROUPED) -> list[tf.Operation]:
    return [op for op in graph.get_operations() if op.type == kind]


def placeholders(arrays: list[Any]) -> dict[Any, Any]:
    """What to feed: a placeholder for each, with its array."""
    return {v1.placeholder(array.dtype, array.shape): array for array in arrays}


def assert_sums(results: list[Any], shapes: list[tuple[int, ...]], dtype: tf.DType = tf.float32) -> None:
    for shape, result in zip(shapes, results):
        assert_same(result, summed(shape, dtype))


@by_name(REDUCIBLE)
def test_sums_of_every_size_in_one_operation(dtype: tf.DType) -> None:
    shapes = [(), *SHAPES, large(dtype), (17,)]
    with graph_session() as session:
        feed = placeholders([values(shape, dtype) for shape in shapes])
        totals = hvd.grouped_allreduce(feed, average=False)
        assert [total.shape.as_list() for total in totals] == [list(shape) for shape in shapes]
        assert [op.type for op in session.graph.get_operations() if op.type in mpi_ops.OP_TYPES] == [GROUPED]
        for _ in range(2):
            assert_sums(session.run(totals, feed), shapes, dtype)


@by_name(REDUCIBLE)
def test_averages_keep_the_type(dtype: tf.DType) -> None:
    shapes = [(3,), (), (5, 7)]
    for shape, result in zip(shapes, hvd.grouped_allreduce([values(shape, dtype) for shape in shapes])):
        total = summed(shape, tf.int64)
        assert result.dtype == dtype
        if dtype.is_integer:
            assert_same(result.numpy(), (total // SIZE).astype(dtype.as_numpy_dtype))
        else:
            np.testing.assert_allclose(tf.cast(result, tf.float64), total / SIZE, rtol=2.0**-8)


def several_kinds(x: Any) -> list[Any]:
    """Two of one type, one of another, and rows between them."""
    rows = tf.IndexedSlices(tf.stack([x, 2.0 * x]), tf.constant([RANK, SIZE]), tf.constant([SIZE + 1, 3]))
    return [x, rows, tf.cast(x, tf.int64), 3.0 * x]


def check_several_kinds(results: list[Any], data: Any) -> None:
    first, rows, integers, last = results
    assert_same(first, summed((3,), tf.float32))
    assert_same(integers, summed((3,), tf.int64))
    assert_same(last, 3 * summed((3,), tf.float32))
    expected: Any = [factor * values((3,), tf.float32, rank) for rank in range(SIZE) for factor in (1, 2)]
    assert_same(rows.values, np.stack(expected))
    assert rows.indices.tolist() == [index for rank in range(SIZE) for index in (rank, SIZE)]
    assert rows.dense_shape.tolist() == [SIZE + 1, 3]


@pytest.mark.parametrize("mode", ["graph", "function", "eager"])
def test_types_and_rows_mixed_come_back_in_order(mode: str) -> None:
    data = values((3,), tf.float32)

    def program(x: Any) -> list[Any]:
        return hvd.grouped_allreduce(several_kinds(x), average=False)

    if mode == "graph":
        with graph_session() as session:
            fed = v1.placeholder(tf.float32, (3,))
            results = session.run(program(fed), {fed: data})
            assert len(of_type(session.graph)) == 2
    else:
        run = tf.function(program) if mode == "function" else program
        results = tf.nest.map_structure(lambda one: one.numpy(), run(tf.constant(data)), expand_composites=True)
    check_several_kinds(results, data)


def test_nothing_is_nothing() -> None:
    with tf.Graph().as_default() as graph:
        assert hvd.grouped_allreduce([]) == []
        assert graph.get_operations() == []


def test_each_kind_is_placed_as_asked() -> None:
    with tf.Graph().as_default() as graph:
        hvd.grouped_allreduce(several_kinds(tf.ones(3)), device_dense="/cpu:1", device_sparse="/cpu:2")
        assert {op.device for op in of_type(graph)} == {"/device:CPU:1"}
        assert {op.device for op in of_type(graph, "HorovodAllgather")} == {"/device:CPU:2"}


# ---- names ---------------------------------------------------------------------------------------


def test_members_have_the_names_of_single_operations() -> None:
    """Whatever else is called so in the graph."""

    def build(one_by_one: bool) -> list[str]:
        with tf.Graph().as_default() as graph, tf.name_scope("outer"):
            x = tf.identity(tf.zeros(3), name="a/b-c")
            mpi_ops._allreduce(x)
            with tf.name_scope("inner"):
                mpi_ops._allreduce(x)
                if one_by_one:
                    return [mpi_ops._allreduce(one).op.name for one in (x, x, 2 * x)]
                group = mpi_ops._grouped_allreduce([x, x, 2 * x])[0].op
                # Taken, also for what comes later.
                assert mpi_ops._allreduce(x).op.name == "outer/inner/HorovodAllreduce_outer_a_b_c_0_3"
            assert group.name == "outer/inner/HorovodGroupedAllreduce"
            assert of_type(graph) == [group]
            return [f"outer/inner/{name.decode()}" for name in group.get_attr("tensor_names")]

    assert build(one_by_one=False) == build(one_by_one=True)


def test_names_that_are_given() -> None:
    with tf.Graph().as_default(), tf.name_scope("s"):
        one, other = hvd.grouped_allreduce([tf.ones(3), tf.constant(1)], name="mine/all")
        assert (one.op.name, other.op.name) == ("s/mine/all", "s/mine/all_1")
        assert one.op.get_attr("tensor_names") == [b"all_1of2"]
        assert other.op.get_attr("tensor_names") == [b"all_2of2"]


@pytest.mark.parametrize("mode", ["graph", "function"])
def test_ranks_may_group_differently(mode: str) -> None:
    """All in one, in other orders, in several, or none at all."""
    places = [[[0, 1, 2, 3]], [[3, 1], [0, 2]], [[0], [1], [3], [2]]][RANK % 3]

    def program(x: Any) -> list[Any]:
        tensors = [tf.identity(x * (i + 1.0), name=f"member_{i}") for i in range(4)]
        found: dict[int, Any] = {}
        for group in places:
            if len(group) == 1:
                found[group[0]] = hvd.allreduce(tensors[group[0]], average=False)
                continue
            found.update(zip(group, hvd.grouped_allreduce([tensors[i] for i in group], average=False)))
        return [found[i] for i in range(4)]

    data = values((5,), tf.float32)
    if mode == "graph":
        with graph_session() as session:
            fed = v1.placeholder(tf.float32, (5,))
            results = session.run(program(fed), {fed: data})
    else:
        results = [result.numpy() for result in tf.function(program)(tf.constant(data))]
    for i, result in enumerate(results):
        assert_same(result, (i + 1) * summed((5,), tf.float32))


def test_function_called_twice_at_once() -> None:
    """The calls tell the names of its operations apart."""

    @tf.function
    def inner(x: Any) -> Any:
        return tf.add_n(hvd.grouped_allreduce([x, 2.0 * x], average=False))

    @tf.function
    def outer(x: Any) -> Any:
        return inner(x) - 10.0 * inner(5.0 * x)

    assert_same(outer(tf.constant(values((3,), tf.float32))).numpy(), -147 * summed((3,), tf.float32))


@pytest.mark.parametrize("ignore_scope", [True, False])
def test_graph_of_the_reference_system(ignore_scope: bool) -> None:
    """Without names of members. With the scope, which differs between ranks, ignored, ranks match all the same."""
    text = f"""
      node {{ name: "x" op: "Placeholder" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }} }}
      node {{ name: "s/sums" op: "{GROUPED}" input: "x" input: "x"
        attr {{ key: "T" value {{ type: DT_FLOAT }} }} attr {{ key: "num_tensors" value {{ i: 2 }} }}
        attr {{ key: "reduce_op" value {{ i: 1 }} }} attr {{ key: "prescale_factor" value {{ f: 0.5 }} }}
        attr {{ key: "postscale_factor" value {{ f: 4.0 }} }} attr {{ key: "process_set_id" value {{ i: 0 }} }}
        attr {{ key: "ignore_name_scope" value {{ b: {str(ignore_scope).lower()} }} }} }}
      versions {{ producer: 24 }}"""
    with graph_session() as session:
        prefix = f"other_scope_{RANK if ignore_scope else 0}"
        tf.import_graph_def(text_format.Parse(text, v1.GraphDef()), name=prefix)
        group = of_type(session.graph)[0]
        feed = {group.inputs[0]: values((4,), tf.float32)}
        for result in session.run(group.outputs, feed):
            assert_same(result, 2 * summed((4,), tf.float32))
        # What its members are called: the other ranks ask for them one by one.
        names = [f"{'' if ignore_scope else prefix + '/s/'}sums_{i}of2" for i in (1, 2)]
        factors = {"prescale_factor": 0.5, "postscale_factor": 4.0}
        singles = [mpi_ops._ops.horovod_allreduce(group.inputs[0], tensor_name=name, **factors) for name in names]
        for result in session.run(group.outputs if RANK == 0 else singles, feed):
            assert_same(result, 2 * summed((4,), tf.float32))


# ---- errors --------------------------------------------------------------------------------------


@several_ranks
@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_disagreement_about_one_member_is_an_error_on_every_rank_and_no_more(mode: str) -> None:
    odd = RANK == SIZE - 1
    with contextlib.ExitStack() as stack:
        session = stack.enter_context(graph_session()) if mode == "graph" else None
        wait = session.run if session else (lambda tensors: tensors)
        with pytest.raises(tf.errors.FailedPreconditionError, match=r"Mismatched ALLREDUCE tensor shapes") as caught:
            wait(hvd.grouped_allreduce([tf.ones(2), tf.ones(4 if odd else 3), tf.ones(5)], name="one_differs"))
    assert "one_differs_2of3" in str(caught.value)
    results = hvd.grouped_allreduce([values((5,), tf.int32)] * 3, average=False, name="one_differs")
    assert_sums([result.numpy() for result in results], [(5,)] * 3, tf.int32)


def test_one_name_twice_in_a_group_is_this_ranks_error_and_nothing_is_submitted() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="'double' was submitted with the same name"):
        mpi_ops._ops.horovod_grouped_allreduce([tf.ones(3)] * 3, tensor_names=["free", "double", "double"])
    results = mpi_ops._ops.horovod_grouped_allreduce([values((3,), tf.int32)] * 2, tensor_names=["free", "double"])
    assert_sums([result.numpy() for result in results], [(3,)] * 2, tf.int32)


def test_attributes_that_make_no_sense_are_errors() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="tensor_names has 1 names for 2 tensors"):
        mpi_ops._ops.horovod_grouped_allreduce([tf.ones(3)] * 2, tensor_names=["one"])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"process set 12345.*has not been registered"):
        mpi_ops._ops.horovod_grouped_allreduce([tf.ones(3)], process_set_id=12345)
    with tf.Graph().as_default(), pytest.raises(TypeError, match=r"bool.*not in list of allowed values"):
        hvd.grouped_allreduce([v1.placeholder(tf.bool, (3,))])


# ---- what TensorFlow decides -----------------------------------------------------------------------


def test_input_is_reused_only_when_nobody_else_needs_it() -> None:
    data = values((1000,), tf.float32)
    with graph_session() as session:
        fed = v1.placeholder(tf.float32, (1000,))
        shared = fed * 2.0
        results = session.run(
            [*hvd.grouped_allreduce([fed * 3.0, shared, shared], average=False), shared + 0.0], {fed: data}
        )
    for factor, result in zip((3, 2, 2), results):
        assert_same(result, factor * summed((1000,), tf.float32))
    assert_same(results[3], 2 * data)


def test_constants_on_one_rank_are_neither_folded_nor_merged() -> None:
    with graph_session() as session:
        fed = v1.placeholder(tf.float32, (2,))
        tensor = tf.constant([7.0, 8.0]) * 2.0 if RANK == 0 else fed * 2.0
        one = hvd.grouped_allreduce([tensor, tensor], average=False, name="one")
        other = hvd.grouped_allreduce([tensor, tensor], average=False, name="other")
        total = tf.add_n([*one, *other]) * 0.25
        for step in range(5):
            others = sum(range(1, SIZE))
            expected = np.array([14 + 2 * step * (SIZE - 1), 16 + 2 * others], np.float32)
            assert_same(session.run(total, {fed: [step, RANK]}), expected)


def test_function_runs_an_unused_group_and_keeps_groups_concurrent() -> None:
    @tf.function
    def program(x: Any) -> Any:
        order = range(8) if RANK % 2 == 0 else reversed(range(8))
        found = {i: hvd.grouped_allreduce([x * float(i), x], average=False, name=f"group_{i}")[0] for i in order}
        hvd.grouped_allreduce([x, x], name="unused_group")
        return [found[i] for i in range(8)]

    x = tf.constant(values((17,), tf.float32))
    # Chained, ranks that go through them in different order would wait for each other for ever.
    for _ in range(2):
        for i, result in enumerate(program(x)):
            assert_same(result.numpy(), i * summed((17,), tf.float32))
    graph = program.get_concrete_function(x).graph
    groups = of_type(graph)
    assert len(groups) == 9
    assert all(not op.control_inputs for op in groups)
    assert any(op.name == "unused_group" for op in graph.control_outputs)


TRIPS = 20


def loop() -> Any:
    """The sum over trips of the reductions of (trip + rank) and of twice as much, ten trips at once."""

    def body(trip: Any, total: Any) -> Any:
        own = tf.cast(trip, tf.float64) + RANK
        return trip + 1, total + tf.add_n(hvd.grouped_allreduce([own, 2.0 * own], average=False))

    start = (tf.constant(0), tf.constant(0.0, tf.float64))
    return tf.while_loop(lambda trip, _: trip < TRIPS, body, start, parallel_iterations=10)[1]


@pytest.mark.parametrize("control_flow", ["v1", "v2", "function"])
def test_loop(control_flow: str) -> None:
    expected = 3 * (SIZE * TRIPS * (TRIPS - 1) / 2 + TRIPS * SIZE * (SIZE - 1) / 2)
    if control_flow == "function":
        assert [tf.function(loop)().numpy() for _ in range(2)] == [expected] * 2
        return
    if control_flow == "v1":
        v1.disable_control_flow_v2()
    try:
        with graph_session() as session:
            total = loop()
            assert [session.run(total) for _ in range(2)] == [expected] * 2
    finally:
        v1.enable_control_flow_v2()


# ---- gradients -------------------------------------------------------------------------------------


@pytest.mark.parametrize("average", [False, True])
def test_gradient_is_the_reduction_of_the_gradients(average: bool) -> None:
    """Of the sum of weights * outputs; one output has no part in it."""
    inputs = [values((4,), tf.float32), values((2, 3), tf.float32), values((5,), tf.float32)]
    weights = [np.float32(RANK + 1), np.float32(10 * RANK)]

    def loss_of(tensors: list[Any]) -> Any:
        outputs = hvd.grouped_allreduce(tensors, average=average)
        return tf.add_n([tf.reduce_sum(output * weight) for output, weight in zip(outputs, weights)])

    with graph_session() as session:
        feed = placeholders(inputs)
        gradients = v1.gradients(loss_of(list(feed)), list(feed))
        assert [op.get_attr("num_tensors") for op in of_type(session.graph)] == [3, 3]
        in_graph = session.run(gradients, feed)
    with tf.GradientTape() as tape:
        tensors = [tf.constant(one) for one in inputs]
        tape.watch(tensors)
        loss = loss_of(tensors)
    for found in (in_graph, [gradient.numpy() for gradient in tape.gradient(loss, tensors)]):
        count = SIZE if average else 1
        np.testing.assert_allclose(found[0], np.full(4, SIZE * (SIZE + 1) / 2 / count), rtol=1e-6)
        np.testing.assert_allclose(found[1], np.full((2, 3), 10 * SIZE * (SIZE - 1) / 2 / count), rtol=1e-6)
        np.testing.assert_array_equal(found[2], np.zeros(5))


def test_gradients_of_which_some_are_given() -> None:
    """What a caller of the gradient's function leaves out stays out, and is asked of no other rank."""
    with graph_session() as session:
        op = hvd.grouped_allreduce([tf.ones(3), tf.ones(2)], average=False)[0].op
        first, second = _grouped_allreduce_grad(op, None, tf.constant(values((2,), tf.float32)))
        assert first is None
        assert_same(session.run(second), summed((2,), tf.float32))


def test_factors_are_in_the_gradient_and_a_maximum_has_none() -> None:
    with graph_session() as session:
        x = tf.constant([1.0, 2.0])
        scaled = mpi_ops._ops.horovod_grouped_allreduce([x, x], prescale_factor=0.5, postscale_factor=6.0)
        gradient = v1.gradients(scaled[0] + 2.0 * scaled[1], x)[0]
        np.testing.assert_allclose(session.run(gradient), np.full(2, 9.0 * SIZE), rtol=1e-6)
        largest = mpi_ops._ops.horovod_grouped_allreduce([x], reduce_op=4)
        with pytest.raises(NotImplementedError, match=f"{GROUPED} with reduce_op 4"):
            v1.gradients(largest[0], x)
