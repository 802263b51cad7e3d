"""The operations and their Python face, on any number of ranks.

`mpirun -np N pytest test/test_tensorflow.py`, or plain pytest for one rank. All ranks run the same tests in the same
order. Data differs per rank and index; what comes out is known in closed form.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

import horovod_tf.tensorflow as hvd
from horovod_tf.tensorflow import mpi_ops
from tensorflow_support import (
    RANK,
    REDUCIBLE,
    SHAPES,
    SIZE,
    TYPES,
    assert_same,
    by_name,
    fused_or_not,
    graph_session,
    large,
    run_all,
    several_ranks,
    summed,
    v1,
    values,
)

# ---- the three collectives ----------------------------------------------------------------------


@fused_or_not
@by_name(REDUCIBLE)
def test_allreduce_sums(dtype: tf.DType, fused: bool) -> None:
    shapes = [(), *SHAPES, large(dtype)]
    results = run_all(lambda tensor, _: mpi_ops._allreduce(tensor), [values(s, dtype) for s in shapes], fused)
    for shape, result in zip(shapes, results):
        assert_same(result, summed(shape, dtype))


@by_name(REDUCIBLE)
def test_allreduce_averages_and_keeps_the_type(dtype: tf.DType) -> None:
    shapes = [(), (0,), (17,), (3, 5, 7), large(dtype)]
    results = run_all(lambda tensor, _: hvd.allreduce(tensor), [values(s, dtype) for s in shapes], True)
    for shape, result in zip(shapes, results):
        total = summed(shape, tf.complex128 if dtype.is_complex else tf.int64)
        if dtype.is_integer:
            assert_same(result, (total // SIZE).astype(dtype.as_numpy_dtype))
        else:
            assert result.dtype == dtype.as_numpy_dtype
            wide = np.complex128 if dtype.is_complex else np.float64
            np.testing.assert_allclose(result.astype(wide), total / SIZE, rtol=2.0**-8)


@fused_or_not
@by_name(TYPES)
def test_allgather_of_equal_and_of_different_rows(dtype: tf.DType, fused: bool) -> None:
    def shape_of(shape: tuple[int, ...], rank: int, variable: bool) -> tuple[int, ...]:
        return (shape[0] + 2 * rank, *shape[1:]) if variable else shape

    cases = [(shape, variable) for shape in [*SHAPES, large(dtype)] for variable in (False, True)]
    inputs = [values(shape_of(shape, RANK, variable), dtype) for shape, variable in cases]
    results = run_all(lambda tensor, _: hvd.allgather(tensor), inputs, fused)
    for (shape, variable), result in zip(cases, results):
        parts = [values(shape_of(shape, rank, variable), dtype, rank) for rank in range(SIZE)]
        assert_same(result, np.concatenate(parts))


@fused_or_not
@by_name(TYPES)
def test_broadcast_from_every_root(dtype: tf.DType, fused: bool) -> None:
    cases = [(shape, root) for shape in [(), *SHAPES, large(dtype)] for root in range(SIZE)]
    inputs = [values(shape, dtype) for shape, _ in cases]
    results = run_all(lambda tensor, i: hvd.broadcast(tensor, cases[i][1]), inputs, fused)
    for (shape, root), result in zip(cases, results):
        assert_same(result, values(shape, dtype, root))


def test_static_shapes() -> None:
    with tf.Graph().as_default():
        tensor = tf.zeros((4, 5))
        assert hvd.allreduce(tensor).shape.as_list() == [4, 5]
        assert hvd.broadcast(tensor, 0).shape.as_list() == [4, 5]
        assert hvd.allgather(tensor).shape.as_list() == [None, 5]
        with pytest.raises(ValueError, match="rank"):
            hvd.allgather(tf.zeros(()))


def test_input_is_reused_only_when_nobody_else_needs_it() -> None:
    data = values((1000,), tf.float32)
    with graph_session() as session:
        fed = v1.placeholder(tf.float32, (1000,))
        shared = fed * 2.0
        alone = mpi_ops._allreduce(fed * 3.0, "alone")
        total = mpi_ops._allreduce(shared, "shared")
        results = session.run([alone, total, shared + 0.0], {fed: data})
    assert_same(results[0], 3 * summed((1000,), tf.float32))
    assert_same(results[1], 2 * summed((1000,), tf.float32))
    assert_same(results[2], 2 * data)


def test_names_come_from_the_tensors() -> None:
    with tf.Graph().as_default():
        tensor = tf.identity(tf.zeros(3), name="a/b-c")
        assert mpi_ops._allreduce(tensor).op.name == "HorovodAllreduce_a_b_c_0"
        assert hvd.allgather(tensor).op.name == "HorovodAllgather_a_b_c_0"
        assert hvd.broadcast(tensor, 0).op.name == "HorovodBroadcast_a_b_c_0"
        assert hvd.broadcast(tensor, 0, name="mine").op.name == "mine"


# ---- gradients ----------------------------------------------------------------------------------


def gradient_of(op: Callable[[Any], Any], rows: int) -> tuple[Any, Any]:
    """The gradient of sum(weight * op(x)) for weights that differ by rank and row, in graph and eager mode."""

    def both(x: Any) -> Any:
        output = op(x)
        count = tf.cast(tf.shape(output)[0], tf.float32)
        return tf.reduce_sum(output * (tf.range(count)[:, None] + 10.0 * RANK))

    data = values((rows, 3), tf.float32)
    with graph_session() as session:
        fed = v1.placeholder(tf.float32, (None, 3), "x")
        in_graph = session.run(v1.gradients(both(fed), fed)[0], {fed: data})
    with tf.GradientTape() as tape:
        x = tf.constant(data)
        tape.watch(x)
        loss = both(x)
    return in_graph, tape.gradient(loss, x).numpy()


def summed_weights(first: int, rows: int) -> np.ndarray[Any, Any]:
    """The sum over ranks of the weights of these rows, in 3 columns."""
    row = SIZE * np.arange(first, first + rows, dtype=np.float32) + 10 * SIZE * (SIZE - 1) / 2
    return np.repeat(row[:, None], 3, axis=1).astype(np.float32)


def test_gradient_of_allreduce() -> None:
    for gradient in gradient_of(mpi_ops._allreduce, 4):
        assert_same(gradient, summed_weights(0, 4))


def test_gradient_of_average() -> None:
    for gradient in gradient_of(hvd.allreduce, 4):
        np.testing.assert_allclose(gradient, summed_weights(0, 4) / SIZE, rtol=1e-6)


def test_gradient_of_allgather_is_this_ranks_rows() -> None:
    first = sum(rank + 1 for rank in range(RANK))
    for gradient in gradient_of(hvd.allgather, RANK + 1):
        assert_same(gradient, summed_weights(first, RANK + 1))


@pytest.mark.parametrize("root", range(SIZE))
def test_gradient_of_broadcast_is_the_roots(root: int) -> None:
    for gradient in gradient_of(lambda x: hvd.broadcast(x, root), 4):
        assert_same(gradient, summed_weights(0, 4) if root == RANK else np.zeros((4, 3), np.float32))


# ---- ranks that disagree ------------------------------------------------------------------------

ODD = RANK == SIZE - 1  # the rank that differs
MISMATCHES: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "types": (
        lambda: mpi_ops._allreduce(tf.ones(3, tf.int32 if ODD else tf.float32), "x_types"),
        ["Mismatched data types", "float32", "int32"],
    ),
    "kinds": (
        lambda: hvd.allgather(tf.ones(3), "x_kinds") if ODD else mpi_ops._allreduce(tf.ones(3), "x_kinds"),
        ["Mismatched", "operations", "ALLREDUCE", "ALLGATHER"],
    ),
    "reduce_ops": (
        lambda: mpi_ops._allreduce(tf.ones(3), "x_ops", hvd.Average if ODD else hvd.Sum),
        ["Mismatched reduction operations", "Sum", "Average"],
    ),
    "shapes": (
        lambda: mpi_ops._allreduce(tf.ones((2, 4 if ODD else 3)), "x_shapes"),
        ["Mismatched ALLREDUCE tensor shapes", "[2, 3]", "[2, 4]"],
    ),
    "ranks_of_shapes": (
        lambda: mpi_ops._allreduce(tf.ones((6,) if ODD else (2, 3)), "x_dims"),
        ["Mismatched ALLREDUCE tensor shapes", "[2, 3]", "[6]"],
    ),
    "broadcast_shapes": (
        lambda: hvd.broadcast(tf.ones(4 if ODD else 3), 0, "x_broadcast"),
        ["Mismatched BROADCAST tensor shapes", "[3]", "[4]"],
    ),
    "allgather_rows": (
        lambda: hvd.allgather(tf.ones((2, 4 if ODD else 3)), "x_rows"),
        ["Mismatched ALLGATHER tensor shapes", "[2, 3]", "[2, 4]"],
    ),
    "allgather_dimensions": (
        lambda: hvd.allgather(tf.ones((2, 3, 1) if ODD else (2, 3)), "x_gather_dims"),
        ["Mismatched ALLGATHER tensor shapes", "[2, 3]", "[2, 3, 1]"],
    ),
    "roots": (
        lambda: hvd.broadcast(tf.ones(3), SIZE - 1 if ODD else 0, "x_roots"),
        ["root ranks", "root rank 0", f"root rank {SIZE - 1}"],
    ),
}


@several_ranks
@pytest.mark.parametrize("mode", ["graph", "eager"])
@pytest.mark.parametrize("case", MISMATCHES)
def test_disagreement_is_an_error_on_every_rank_and_no_more(case: str, mode: str) -> None:
    build, texts = MISMATCHES[case]
    with contextlib.ExitStack() as stack:
        session = stack.enter_context(graph_session()) if mode == "graph" else None
        wait = session.run if session else tf.identity
        with pytest.raises(tf.errors.FailedPreconditionError) as caught:
            wait(build())
    for text in texts:
        assert text in str(caught.value)
    # The same name, this time with one mind.
    assert_same(mpi_ops._allreduce(values((5,), tf.int32), f"x_{case}").numpy(), summed((5,), tf.int32))


def test_allgather_of_a_scalar_of_unknown_shape_is_an_error() -> None:
    with graph_session() as session:
        fed = v1.placeholder(tf.float32, None)
        gathered = hvd.allgather(fed, "scalar")
        with pytest.raises(tf.errors.FailedPreconditionError, match="rank-zero"):
            session.run(gathered, {fed: 1.0})
        assert session.run(gathered, {fed: [1.0]}).shape == (SIZE,)


def test_a_root_that_is_no_rank_is_this_ranks_error() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="root"):
        hvd.broadcast(tf.ones(3), SIZE)


def test_one_name_twice_at_once_is_this_ranks_error() -> None:
    """Rank 0 waits with the first until the second has been refused; the other ranks come when they know."""
    with graph_session() as session:
        fed = v1.placeholder(tf.float32, (3,))
        pair = [mpi_ops._ops.horovod_allreduce(fed * i, tensor_name="twice") for i in (1.0, 2.0)]
        feed = {fed: [1.0, 2.0, 3.0]}
        if RANK == 0 and SIZE > 1:
            with pytest.raises(tf.errors.InvalidArgumentError, match="'twice' was submitted with the same name"):
                session.run(pair, feed)
        session.run(hvd.allgather([RANK], "rank_0_knows"))
        for one in pair:
            total = np.array([1, 2, 3], np.float32) * SIZE * (1 if one is pair[0] else 2)
            assert_same(session.run(one, feed), total)


def test_attributes_that_are_not_offered_are_errors() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"process set 12345.*has not been registered"):
        mpi_ops._ops.horovod_allreduce(tf.ones(3), process_set_id=12345)
    with pytest.raises(tf.errors.InvalidArgumentError, match="reduce_op is 2"):
        mpi_ops._ops.horovod_allreduce(tf.ones(3), reduce_op=2)


# ---- never folded, merged or pruned on one rank only ---------------------------------------------


def test_constant_here_and_placeholder_there() -> None:
    with graph_session() as session:
        if RANK == 0:
            tensor = tf.constant([7.0, 8.0])
            feed: dict[Any, Any] = {}
        else:
            tensor = v1.placeholder(tf.float32, (2,))
        total = mpi_ops._allreduce(tensor, "mixed")
        for step in range(5):
            if RANK != 0:
                feed = {tensor: [10.0 * step + RANK, RANK]}
            others = SIZE * (SIZE - 1) / 2
            expected = np.array([7 + 10 * step * (SIZE - 1) + others, 8 + others], np.float32)
            assert_same(session.run(total, feed), expected)


def test_equal_reductions_and_an_unused_one() -> None:
    with graph_session() as session:
        tensor = tf.constant(float(RANK + 1))
        both = [mpi_ops._allreduce(tensor, "first"), mpi_ops._allreduce(tensor, "second")]
        if RANK == 0:
            mpi_ops._allreduce(tensor, "never_run")
        with tf.control_dependencies([mpi_ops._allreduce(tensor, "only_a_dependency")]):
            result = both[0] + 10.0 * both[1]
        for _ in range(3):
            assert session.run(result) == 11.0 * SIZE * (SIZE + 1) / 2


def test_function_runs_an_unused_reduction_and_keeps_reductions_concurrent() -> None:
    @tf.function
    def program(x: Any) -> Any:
        order = range(8) if RANK % 2 == 0 else reversed(range(8))
        found = {i: mpi_ops._allreduce(x * float(i), f"independent_{i}") for i in order}
        mpi_ops._allreduce(x, "unused")
        return [found[i] for i in range(8)]

    # Chained, ranks that go through them in different order would wait for each other for ever.
    for _ in range(2):
        for i, result in enumerate(program(tf.constant(values((17,), tf.float32)))):
            assert_same(result.numpy(), i * summed((17,), tf.float32))
    graph = program.get_concrete_function(tf.constant(values((17,), tf.float32))).graph
    ours = [op for op in graph.get_operations() if op.type in mpi_ops.OP_TYPES]
    assert len(ours) == 9
    assert all(not op.control_inputs for op in ours)
    assert any(op.name == "unused" for op in graph.control_outputs)


TRIPS = 50
EXPECTED_LOOP = SIZE * TRIPS * (TRIPS - 1) / 2 + TRIPS * SIZE * (SIZE - 1) / 2


def loop() -> Any:
    """The sum over 50 trips of the reduction of (trip + rank), ten trips at once."""

    def body(trip: Any, total: Any) -> Any:
        return trip + 1, total + mpi_ops._allreduce(tf.cast(trip, tf.float64) + RANK, "in_loop")

    start = (tf.constant(0), tf.constant(0.0, tf.float64))
    return tf.while_loop(lambda trip, _: trip < TRIPS, body, start, parallel_iterations=10)[1]


@pytest.mark.parametrize("control_flow", ["v1", "v2"])
def test_loop_in_a_session(control_flow: str) -> None:
    if control_flow == "v1":
        v1.disable_control_flow_v2()
    try:
        with graph_session() as session:
            total = loop()
            assert [session.run(total) for _ in range(2)] == [EXPECTED_LOOP] * 2
    finally:
        v1.enable_control_flow_v2()


def test_loop_in_a_function() -> None:
    function = tf.function(loop)
    assert [function().numpy() for _ in range(2)] == [EXPECTED_LOOP] * 2


def test_branch_that_all_take() -> None:
    with graph_session() as session:
        which = v1.placeholder(tf.bool, ())
        ones = tf.ones(3) * (RANK + 1.0)
        result = tf.cond(which, lambda: mpi_ops._allreduce(ones, "yes"), lambda: -mpi_ops._allreduce(ones, "no"))
        total: Any = np.full(3, SIZE * (SIZE + 1) / 2, np.float32)
        assert_same(session.run(result, {which: True}), total)
        assert_same(session.run(result, {which: False}), -total)


def test_eager() -> None:
    for step in range(3):
        data: Any = values((5, 3), tf.float32) + step
        assert_same(mpi_ops._allreduce(data).numpy(), summed((5, 3), tf.float32) + step * SIZE)
        assert_same(hvd.allgather(data[: RANK + 1]).numpy()[:1], values((5, 3), tf.float32, 0)[:1] + step)
        assert_same(hvd.broadcast(data, SIZE - 1, name="e").numpy(), values((5, 3), tf.float32, SIZE - 1) + step)


# ---- sparse gradients, variables, hook, optimizer ------------------------------------------------


@pytest.mark.parametrize("average", [True, False])
def test_sparse(average: bool) -> None:
    rows = values((RANK + 1, 2), tf.float32)
    slices = tf.IndexedSlices(tf.constant(rows), tf.constant([10 * RANK + i for i in range(RANK + 1)]), (100, 2))
    result = hvd.allreduce(slices, average=average)
    parts = np.concatenate([values((rank + 1, 2), tf.float32, rank) for rank in range(SIZE)])
    assert_same(result.values.numpy(), parts / np.float32(SIZE) if average else parts)
    assert result.indices.numpy().tolist() == [10 * rank + i for rank in range(SIZE) for i in range(rank + 1)]
    assert list(result.dense_shape) == [100, 2]


@pytest.mark.parametrize("root", range(SIZE))
def test_broadcast_variables(root: int) -> None:
    eager = [tf.Variable(values((3,), dtype), name=f"v_{dtype.name}") for dtype in (tf.float32, tf.int64)]
    assert hvd.broadcast_variables(eager, root_rank=root) is None
    for variable in eager:
        assert_same(variable.numpy(), values((3,), variable.dtype, root))
    with pytest.raises(RuntimeError, match="broadcast_variables"):
        hvd.broadcast_global_variables(root)
    for resource in (True, False):
        with graph_session() as session:
            variable = v1.get_variable("v", initializer=values((3,), tf.float32), use_resource=resource)
            session.run(v1.global_variables_initializer())
            session.run(hvd.broadcast_global_variables(root))
            assert_same(session.run(variable), values((3,), tf.float32, root))


def test_hook_in_a_monitored_session_and_again_in_another_graph() -> None:
    hook = hvd.BroadcastGlobalVariablesHook(SIZE - 1)
    for _ in range(2):
        with tf.Graph().as_default():
            variable = v1.get_variable("v", initializer=values((5,), tf.float32))
            v1.train.get_or_create_global_step()
            with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
                assert_same(session.run(variable), values((5,), tf.float32, SIZE - 1))


def test_optimizer_averages() -> None:
    with graph_session() as session:
        weight = v1.get_variable("w", initializer=np.zeros(3, np.float32))
        table = v1.get_variable("table", initializer=np.zeros((SIZE + 1, 2), np.float32))
        unused = v1.get_variable("unused", initializer=np.zeros(2, np.float32))
        loss = tf.reduce_sum(weight * (RANK + 1) * [1.0, 2.0, 3.0]) + tf.reduce_sum(
            tf.gather(table, [RANK, SIZE]) * (RANK + 1)
        )
        optimizer = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(1.0, 0.9))
        assert optimizer.get_name() == "DistributedMomentumOptimizer"
        pairs = optimizer.compute_gradients(loss)
        assert {variable.name: gradient for gradient, variable in pairs}[unused.name] is None
        ours = [op.name for op in session.graph.get_operations() if op.type in mpi_ops.OP_TYPES]
        assert len(ours) == (0 if SIZE == 1 else 3)
        assert all(name.startswith("DistributedMomentumOptimizer_Allreduce/") for name in ours)
        step = v1.train.get_or_create_global_step()
        train = optimizer.apply_gradients(pairs, global_step=step)
        session.run(v1.global_variables_initializer())
        session.run(train)
        expected = -np.array([1, 2, 3], np.float32) * (SIZE + 1) / 2
        np.testing.assert_allclose(session.run(weight), expected, rtol=1e-6)
        rows = -np.array([*(np.arange(SIZE) + 1), SIZE * (SIZE + 1) / 2]) / SIZE
        np.testing.assert_allclose(session.run(table), np.repeat(rows[:, None], 2, 1), rtol=1e-6)
        assert session.run(step) == 1
        assert optimizer.get_slot_names() == ["momentum"]
        np.testing.assert_allclose(session.run(optimizer.get_slot(weight, "momentum")), -expected, rtol=1e-6)
        assert len(optimizer.variables()) == 2


def test_optimizer_is_the_wrapped_one_but_for_its_gradients() -> None:
    with tf.Graph().as_default():
        inner = v1.train.MomentumOptimizer(1.0, 0.9, use_nesterov=True, name="inner")
        inner.something = 7
        optimizer = hvd.DistributedOptimizer(inner, name="mine")
        assert isinstance(optimizer, v1.train.Optimizer)
        assert optimizer.get_name() == "mine"
        assert (optimizer.something, optimizer._use_nesterov) == (7, True)
        with pytest.raises(AttributeError, match="nothing_like_this"):
            _ = optimizer.nothing_like_this
        assert copy.copy(optimizer).something == 7
        variable = v1.get_variable("v", initializer=np.zeros(3, np.float32))
        train = optimizer.minimize(tf.reduce_sum(variable), var_list=[variable], name="train")
        assert train.name == "train"
        assert optimizer.variables() == inner.variables()


# ---- graphs of the reference system --------------------------------------------------------------

OLD = {
    "v0.14": ("", "", ""),
    "v0.28": (
        'attr { key: "reduce_op" value { i: 1 } } attr { key: "prescale_factor" value { f: 0.5 } } '
        'attr { key: "postscale_factor" value { f: 2.0 } } ',
        'attr { key: "ignore_name_scope" value { b: true } } attr { key: "process_set_id" value { i: 0 } } ',
        'attr { key: "ignore_name_scope" value { b: false } } attr { key: "process_set_id" value { i: 0 } } ',
    ),
}


@pytest.mark.parametrize("version", OLD)
def test_graph_of_the_reference_system(version: str) -> None:
    reduction, scoped, unscoped = OLD[version]
    t = 'attr { key: "T" value { type: DT_FLOAT } } '
    text = f"""
      node {{ name: "x" op: "Placeholder" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }} }}
      node {{ name: "s/sum" op: "HorovodAllreduce" input: "x" {t}{reduction}{scoped} }}
      node {{ name: "s/all" op: "HorovodAllgather" input: "x" {t}{unscoped} }}
      node {{ name: "s/root" op: "HorovodBroadcast" input: "x" {t}{unscoped}
              attr {{ key: "root_rank" value {{ i: {SIZE - 1} }} }} }}
      versions {{ producer: 24 }}"""
    with graph_session() as session:
        tf.import_graph_def(text_format.Parse(text, v1.GraphDef()), name=f"other_scope_{RANK if scoped else 0}")
        fetches = [op.outputs[0] for op in session.graph.get_operations() if op.type in mpi_ops.OP_TYPES]
        data = values((4,), tf.float32)
        feed = {session.graph.get_operations()[0].outputs[0]: data}
        total = session.run(fetches[0], feed)
        assert_same(total, summed((4,), tf.float32))
        if scoped:  # only the reduction ignores the scope, which differs between ranks here
            return
        assert_same(session.run(fetches[1], feed), np.concatenate([values((4,), tf.float32, r) for r in range(SIZE)]))
        assert_same(session.run(fetches[2], feed), values((4,), tf.float32, SIZE - 1))
