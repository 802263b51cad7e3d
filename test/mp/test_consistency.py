"""Ranks whose variables have become different, and how they are told; `mpirun -np N pytest test/mp`.

The last rank is the odd one. On one rank there is nothing to compare, and no error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.keras as hvd_keras
import horovod_tf.tensorflow as hvd
from horovod_tf.tensorflow import consistency, divergence
from horovod_tf.tensorflow.divergence import Contents, Variable
from tensorflow_support import RANK, SIZE, assert_same, graph_session, only_rank_0, several_ranks, v1, values

ODD = SIZE - 1
OTHERS = divergence.ranks_text(range(SIZE - 1)) if SIZE > 1 else ""
TYPES = [
    *(tf.uint8, tf.int8, tf.uint16, tf.int16, tf.uint32, tf.int32, tf.uint64, tf.int64, tf.bool),
    *(tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64, tf.complex128),
]
KERAS_3 = hasattr(tf.keras.optimizers.SGD, "apply")


def error_of(check: Callable[[], Any]) -> str:
    """What this rank is told; afterwards collectives work."""
    with pytest.raises(tf.errors.FailedPreconditionError) as caught:
        check()
    works()
    return str(caught.value.message)


def works() -> None:
    with graph_session() as session:
        assert session.run(hvd.allreduce(tf.constant([RANK + 1.0]), average=False)) == SIZE * (SIZE + 1) / 2


def found_in(text: str, name: str) -> bool:
    """Whether the text says that this variable is another one on the odd rank."""
    return re.search(rf"\b{re.escape(name)}(:0)? \([^)]*\) on rank {ODD} is not as on {OTHERS}[;.]", text) is not None


def one_bit_off(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The last element's lowest bit is another one on the odd rank."""
    changed = array.copy()
    if RANK == ODD:
        changed.reshape(-1)[-1:].view(np.uint8)[0] ^= 1
    return changed


def eager(name: str, value: Any, dtype: tf.DType | None = None, shape: Any = None) -> Any:
    return tf.Variable(value, name=name, dtype=dtype, shape=shape)


# ---- values, in eager mode -----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (0,), (1,), (17,), (3, 0, 2), (3, 5, 7)], ids=str)
@pytest.mark.parametrize("dtype", TYPES, ids=[dtype.name for dtype in TYPES])
def test_equal_variables_of_every_type_and_shape_pass_unchanged(dtype: tf.DType, shape: tuple[int, ...]) -> None:
    value = values(shape, dtype, rank=0)
    variables = [eager("a", value), eager("b", value)]
    assert hvd.check_consistency(variables) is None
    for variable in variables:
        assert_same(variable.numpy(), value)


@several_ranks
@pytest.mark.parametrize("shape", [(), (3, 5, 7)], ids=str)
@pytest.mark.parametrize("dtype", TYPES, ids=[dtype.name for dtype in TYPES])
def test_one_bit_of_every_type_is_found(dtype: tf.DType, shape: tuple[int, ...]) -> None:
    value = values(shape, dtype, rank=0)
    variables = [eager("same", value), eager("other", one_bit_off(value)), eager("same_too", value)]
    text = error_of(lambda: hvd.check_consistency(variables))
    assert "Variables differ between ranks, 1 of 3: other:0" in text
    assert found_in(text, "other")
    assert f"({dtype.name} {list(shape)})" in text


@pytest.mark.parametrize("texts", [[], ["a", "bc", ""]], ids=["none", "three"])
def test_strings(texts: list[str]) -> None:
    for _ in range(20):  # what is undefined may be equal by chance
        hvd.check_consistency([tf.Variable(tf.constant(texts, tf.string), name="words")])
    if SIZE > 1 and texts:
        moved = ["ab", "c", ""] if RANK == ODD else texts
        text = error_of(lambda: hvd.check_consistency([tf.Variable(moved, name="words")]))
        assert found_in(text, "words")


def test_nan_is_the_same_as_itself_and_other_bits_of_nan_are_not() -> None:
    quiet = np.array([1.0, np.nan, np.inf, -0.0], np.float32)
    hvd.check_consistency([eager("v", quiet)])
    if SIZE > 1:
        payload = quiet.copy()
        payload.view(np.uint32)[1] ^= RANK == ODD
        assert np.isnan(payload[1])
        assert found_in(error_of(lambda: hvd.check_consistency([eager("v", payload)])), "v")
        zero = quiet.copy()
        zero[3] = 0.0 if RANK == ODD else -0.0
        assert found_in(error_of(lambda: hvd.check_consistency([eager("v", zero)])), "v")


@several_ranks
@pytest.mark.parametrize("place", [0, 4999, 9999])
def test_one_ulp_of_one_element_among_many(place: int) -> None:
    value = np.linspace(1, 2, 10000, dtype=np.float32)
    if RANK == ODD:
        value[place] = np.nextafter(value[place], np.float32(3))
    assert found_in(error_of(lambda: hvd.check_consistency([eager("kernel", value)])), "kernel")


@several_ranks
def test_exchanged_elements_and_exchanged_variables_are_found() -> None:
    first, second = (1.0, 2.0) if RANK == ODD else (2.0, 1.0)
    elements = eager("elements", [first, second])
    text = error_of(lambda: hvd.check_consistency([elements, eager("first", first), eager("second", second)]))
    assert all(found_in(text, name) for name in ("elements", "first", "second"))


@several_ranks
def test_a_count_of_steps_that_one_rank_has_moved() -> None:
    step = eager("global_step", 7 + (RANK == ODD), tf.int64)
    text = error_of(lambda: hvd.check_consistency([eager("w", [1.0]), step]))
    assert found_in(text, "global_step")
    assert "1 of 2" in text


@several_ranks
def test_after_a_broadcast_they_are_equal_again() -> None:
    variable = eager("v", one_bit_off(np.ones(3, np.float32)))
    error_of(lambda: hvd.check_consistency([variable]))
    hvd.broadcast_variables([variable], 0)
    hvd.check_consistency([variable])


@several_ranks
def test_many_variables_are_counted_and_the_first_few_named() -> None:
    variables = [eager(f"v{i}", [float(RANK == ODD)]) for i in range(30)]
    text = error_of(lambda: hvd.check_consistency(variables))
    assert "30 of 30" in text
    assert "; and 20 more." in text
    assert found_in(text, "v0")
    assert "v10:0" not in text


@several_ranks
def test_of_variables_with_one_name_the_number_says_which() -> None:
    variables = [eager("v", [float(RANK == ODD and i == 2)]) for i in range(4)]
    text = error_of(lambda: hvd.check_consistency(variables))
    assert f"1 of 4: v:0 (float32 [1]), number 3 on rank {ODD} is not as on {OTHERS}." in text


def test_no_variables_at_all() -> None:
    hvd.check_consistency([])


# ---- lists that differ ---------------------------------------------------------------------------

MISSING = f"is missing on {OTHERS}, float32 [2] on rank {ODD}" if SIZE > 2 else "is missing on rank 0, float32 [2] on"


@several_ranks
def test_a_variable_that_only_one_rank_has() -> None:
    variables = [eager("w", [1.0])] + ([eager("lazy/kernel", [1.0, 2.0])] if RANK == ODD else [])
    text = error_of(lambda: hvd.check_consistency(variables, step=3))
    assert "Ranks have different variables at step 3: lazy/kernel:0 " + MISSING in text
    assert "w:0" not in text


@several_ranks
def test_a_variable_that_only_one_rank_lacks() -> None:
    text = error_of(lambda: hvd.check_consistency([] if RANK == ODD else [eager("w", [1.0])]))
    assert "w:0 is " in text
    assert f"missing on rank {ODD}" in text
    assert f"float32 [1] on {OTHERS}" in text


@several_ranks
@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (np.zeros((3, 2), np.float32), "float32 [3, 2]"),
        (np.zeros((2, 3), np.float64), "float64 [2, 3]"),
        (np.zeros((2, 3), np.int32), "int32 [2, 3]"),
    ],
    ids=["shape", "type", "type of the same size"],
)
def test_shape_or_type_that_differs(odd: Any, said: str) -> None:
    value = odd if RANK == ODD else np.zeros((2, 3), np.float32)
    text = error_of(lambda: hvd.check_consistency([eager("w", value)]))
    assert re.search(rf"w:0 is float32 \[2, 3\] on {OTHERS}, {re.escape(said)} on rank {ODD}\.", text)


@several_ranks
def test_shape_that_only_the_value_has() -> None:
    shape = (4, 1) if RANK == ODD else (2, 2)
    variable = eager("w", np.zeros(shape, np.float32), shape=tf.TensorShape(None))
    text = error_of(lambda: hvd.check_consistency([variable]))
    assert found_in(text, "w")


@several_ranks
def test_order_that_differs() -> None:
    names = ["b", "a"] if RANK == ODD else ["a", "b"]
    text = error_of(lambda: hvd.check_consistency([eager(name, [1.0]) for name in names]))
    assert f"number 1 is a:0 on {OTHERS}, b:0 on rank {ODD}" in text


@several_ranks
def test_two_variables_of_one_name_here_and_one_there() -> None:
    variables = [eager("v", [1.0]) for _ in range(1 if RANK == ODD else 2)]
    text = error_of(lambda: hvd.check_consistency(variables))
    assert f"v:0 is float32 [1] and float32 [1] on {OTHERS}, float32 [1] on rank {ODD}" in text


# ---- steps ---------------------------------------------------------------------------------------


def gathers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the allgathers from here on."""
    names: list[str] = []
    gather = consistency._gather

    def counted(rows: Any, name: str) -> Any:
        names.append(name)
        return gather(rows, name)

    monkeypatch.setattr(consistency, "_gather", counted)
    return names


def test_one_allgather_of_any_number_of_variables_at_each_so_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    names = gathers(monkeypatch)
    variables = [eager(f"v{i}", np.ones(i, np.float32)) for i in range(50)]
    for step in range(1, 21):
        hvd.check_consistency(variables, step=step, every=5)
    assert len(names) == (4 if SIZE > 1 else 0)
    with graph_session() as session:
        v1.get_variable("w", initializer=np.ones(3, np.float32))
        session.run(v1.global_variables_initializer())
        check: Any = hvd.check_consistency(every=5, name="mine")
        for step in range(1, 21):
            check(session, step)
    assert len(names) == (8 if SIZE > 1 else 0)
    assert set(names[4:]) <= {"mine"}


@several_ranks
def test_steps_that_differ() -> None:
    text = error_of(lambda: hvd.check_consistency([eager("w", [1.0])], step=20 if RANK == ODD else 10, every=10))
    assert f"different steps: 10 on {OTHERS}, 20 on rank {ODD}." in text


def test_step_may_be_a_variable() -> None:
    step = eager("step", 4, tf.int64)
    odd = eager("w", float(RANK == ODD))
    hvd.check_consistency([odd], step=step, every=5)
    step.assign_add(1)
    if SIZE > 1:
        assert "at step 5, 1 of 1: w:0" in error_of(lambda: hvd.check_consistency([odd], step=step, every=5))


def test_arguments_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="every=0 must be at least 1"):
        hvd.check_consistency([], step=1, every=0)
    with pytest.raises(ValueError, match="every=0 must be at least 1"):
        hvd.ConsistencyHook(every=0)
    with pytest.raises(ValueError, match="every=5 needs the step"):
        hvd.check_consistency([], every=5)
    with pytest.raises(RuntimeError, match="needs the variables outside of a graph"):
        hvd.check_consistency()
    with graph_session() as session:
        check: Any = hvd.check_consistency(every=5)
        with pytest.raises(ValueError, match="every=5 needs the step"):
            check(session)


# ---- graphs and functions ------------------------------------------------------------------------


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_all_global_variables_of_a_graph(resource: bool) -> None:
    with graph_session() as session:
        variable = v1.get_variable("w", initializer=np.ones(3, np.float32), use_resource=resource)
        v1.get_variable("own", initializer=float(RANK), collections=[v1.GraphKeys.LOCAL_VARIABLES])
        check: Any = hvd.check_consistency()
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        session.graph.finalize()  # what is needed is there
        check(session)
        if RANK == ODD:
            session.run(variable.initializer, {variable.initializer.inputs[1]: [1, 1, 2]})
        if SIZE > 1:
            text = error_of(lambda: check(session, 17))
            assert "at step 17, 1 of 1: w:0" in text
            assert found_in(text, "w")


@several_ranks
@pytest.mark.parametrize("dtype", [*TYPES, tf.string], ids=lambda dtype: dtype.name)
def test_a_variable_that_comes_after_what_compares(dtype: tf.DType) -> None:
    start = ["a", "", "b"] if dtype == tf.string else values((3,), dtype, rank=0)
    with graph_session() as session:
        v1.get_variable("early", initializer=0.0)
        check: Any = hvd.check_consistency()
        late = v1.get_variable("late", initializer=start)
        session.run(v1.global_variables_initializer())
        session.graph.finalize()
        check(session)
        if RANK == ODD:
            session.run(late.initializer, {late.initializer.inputs[1]: np.roll(session.run(late), 1)})
        text = error_of(lambda: check(session))
        assert "1 of 2" in text
        assert found_in(text, "late")


def test_variables_of_ones_choice_in_a_graph() -> None:
    with graph_session() as session:
        own = v1.get_variable("moving_average", initializer=float(RANK))
        v1.get_variable("w", initializer=1.0)
        check: Any = hvd.check_consistency([one for one in v1.global_variables() if one is not own])
        session.run(v1.global_variables_initializer())
        check(session)


@several_ranks
def test_inside_a_function() -> None:
    variable, step = eager("w", [1.0, 2.0]), eager("step", 0, tf.int64)

    @tf.function
    def train() -> Any:
        step.assign_add(1)
        variable.assign_add([1.0, 1.0 + tf.cast(RANK == ODD and step >= 4, tf.float32)])
        hvd.check_consistency([variable, step], step=step, every=5)
        return step.read_value()

    for _ in range(4):
        train()
    with pytest.raises(tf.errors.UnknownError) as caught:
        train()
    assert "at step 5, 1 of 2" in str(caught.value)
    assert found_in(str(caught.value), "w")
    works()
    assert train() == 6  # not at this step


# ---- the hook ------------------------------------------------------------------------------------


class Model:
    """w -> (1, 2, 3) by Adam, on data that differ by rank, from a start that differs by rank."""

    def __init__(self, counts: bool = True) -> None:
        self.weight = v1.get_variable("w", initializer=values((3,), tf.float32))
        step = v1.train.get_or_create_global_step()
        loss = tf.reduce_sum(tf.square(self.weight - [1.0, 2.0, 3.0]) * (RANK + 1))
        self.optimizer = hvd.DistributedOptimizer(v1.train.AdamOptimizer(0.1))
        self.train = self.optimizer.minimize(loss, global_step=step if counts else None)


def steps_until_error(
    model: Model, hooks: Iterable[Any], steps: int = 20, at: int = -1, change: Any = None
) -> tuple[int, str]:
    """After which step there is an error, and which; the odd rank runs `change` after step `at`, besides the hooks."""
    done = 0

    def run() -> None:
        nonlocal done
        with v1.train.MonitoredTrainingSession(hooks=list(hooks), log_step_count_steps=0) as session:
            for done in range(1, steps + 1):
                session.run(model.train)
                if done == at and RANK == ODD:
                    session.run_step_fn(lambda step_context: step_context.session.run(change))

    text = error_of(run)
    return done, text


def broadcast_and_check(every: int = 5, **arguments: Any) -> list[Any]:
    return [hvd.BroadcastGlobalVariablesHook(0), hvd.ConsistencyHook(every, **arguments)]


@pytest.mark.parametrize("counts", [True, False], ids=["global step", "runs"])
def test_training_that_is_right_is_left_alone(counts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = []
    names = gathers(monkeypatch)
    for hooks in (broadcast_and_check()[:1], broadcast_and_check()):
        with tf.Graph().as_default():
            model = Model(counts)
            with v1.train.MonitoredTrainingSession(hooks=hooks, log_step_count_steps=0) as session:
                for _ in range(20):
                    session.run(model.train)
                weights.append(session.run_step_fn(lambda step_context: step_context.session.run(model.weight)))  # noqa: B023
    assert_same(weights[0], weights[1])
    assert len(names) == (5 if SIZE > 1 else 0)  # after steps 1, 5, 10, 15 and 20


@several_ranks
@pytest.mark.parametrize("counts", [True, False], ids=["global step", "runs"])
@pytest.mark.parametrize("at", [5, 7, 9])
def test_a_weight_that_one_rank_has_changed_is_found_within_so_many_steps(at: int, counts: bool) -> None:
    with tf.Graph().as_default():
        model = Model(counts)
        change = v1.assign_add(model.weight, [0.0, 1e-3, 0.0])
        done, text = steps_until_error(model, broadcast_and_check(), at=at, change=change)
    assert done == 10
    assert "at step 10 of this session" in text
    assert found_in(text, "w")


@several_ranks
@pytest.mark.parametrize("slot", ["m", "v"])
def test_slots_of_adam_are_compared(slot: str) -> None:
    with tf.Graph().as_default():
        model = Model()
        variable = model.optimizer.get_slot(model.weight, slot)
        change = v1.assign_add(variable, [0.0, 0.5, 0.0])
        done, text = steps_until_error(model, broadcast_and_check(), at=7, change=change)
        assert done == 10
        assert found_in(text, variable.name[: -len(":0")])


@several_ranks
def test_a_global_step_that_one_rank_has_moved_is_found() -> None:
    with tf.Graph().as_default():
        model = Model()
        change = v1.assign_add(v1.train.get_global_step(), 100)
        done, text = steps_until_error(model, broadcast_and_check(), at=7, change=change)
    assert done == 10
    assert found_in(text, "global_step")
    assert "1 of " in text


@several_ranks
def test_without_a_broadcast_the_first_step_tells() -> None:
    with tf.Graph().as_default():
        done, text = steps_until_error(Model(), [hvd.ConsistencyHook(1000)])
    assert done == 1
    assert "at step 1 of this session" in text
    assert "w:0" in text


class CreatesAfterTheBroadcast(v1.train.SessionRunHook):
    """And gives what it has created a value of each rank's own, when the broadcast is over."""

    def begin(self) -> None:
        self.variable = v1.get_variable("late", initializer=np.zeros(3, np.float32), use_resource=True)

    def after_create_session(self, session: Any, coord: Any) -> None:
        initializer = self.variable.initializer
        session.run(initializer, {initializer.inputs[1]: np.full(3, RANK == ODD, np.float32)})


@several_ranks
@pytest.mark.parametrize("last", [True, False], ids=["created last", "created first"])
def test_a_variable_created_or_restored_after_the_broadcast_is_named(last: bool) -> None:
    with tf.Graph().as_default():
        broadcast, check = broadcast_and_check()
        creator = CreatesAfterTheBroadcast()
        hooks = [broadcast, check, creator] if last else [broadcast, creator, check]
        done, text = steps_until_error(Model(), hooks)
    assert done == 1
    assert found_in(text, "late")
    assert "1 of " in text


def test_what_one_rank_runs_besides_training_does_not_count() -> None:
    with tf.Graph().as_default():
        model = Model()
        with v1.train.MonitoredTrainingSession(hooks=broadcast_and_check(3), log_step_count_steps=0) as session:
            for _ in range(12):
                if RANK == 0:
                    session.run(model.weight)
                session.run(model.train)


def test_one_hook_for_several_sessions_and_a_checkpoint_on_rank_0(tmp_path: Any) -> None:
    hooks = broadcast_and_check(2)
    folder = str(tmp_path) if RANK == 0 else None
    for _ in range(3):
        with tf.Graph().as_default():
            model = Model()
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=folder, hooks=hooks, save_checkpoint_steps=100, log_step_count_steps=0
            ) as session:
                for _ in range(3):
                    session.run(model.train)


def test_hook_with_variables_of_ones_choice() -> None:
    with tf.Graph().as_default():
        model = Model()
        v1.get_variable("own", initializer=0.0).assign_add(1.0)
        own = v1.assign(v1.global_variables()[-1], float(RANK))
        hooks = broadcast_and_check(2, variables=[model.weight])
        with v1.train.MonitoredTrainingSession(hooks=hooks, log_step_count_steps=0) as session:
            for _ in range(4):
                session.run([model.train, own])


# ---- Keras ---------------------------------------------------------------------------------------


def build_layer(layer: Any) -> Any:
    layer(tf.zeros((1, 3)))
    return layer


@several_ranks
@pytest.mark.parametrize("everywhere", [True, False], ids=["everywhere", "on one rank"])
def test_a_layer_built_lazily_after_the_broadcast_is_named(everywhere: bool) -> None:
    """Seeds that differ, Adam, a broadcast before the first step, and one more layer in step 3."""
    first = build_layer(tf.keras.layers.Dense(3, name="first", kernel_initializer="glorot_uniform"))
    second = tf.keras.layers.Dense(2, name="second", kernel_initializer=tf.keras.initializers.RandomNormal(seed=RANK))
    first.set_weights([values((3, 3), tf.float32), values((3,), tf.float32)])
    hvd.broadcast_variables(_values(first), 0)
    rate = 0.01

    def variables() -> list[Any]:
        return [*first.variables, *second.variables]

    def run() -> None:
        for step in range(1, 6):
            if step == 3 and (everywhere or RANK == ODD):
                build_layer(second)
            for variable in _values(first):
                gradient = hvd.allreduce(tf.ones(variable.shape) * (RANK + 1.0))
                variable.assign_sub(rate * gradient)
            hvd.check_consistency(variables(), step=step, every=5)

    text = error_of(run)
    assert "at step 5" in text
    name = "second/kernel"
    if everywhere:
        assert f"1 of 4: {name}" in text
    else:
        assert f"{name}{'' if KERAS_3 else ':0'} is missing on {OTHERS}, float32 [3, 2] on rank {ODD}" in text


def _values(layer: Any) -> list[Any]:
    return [getattr(variable, "value", variable) if KERAS_3 else variable for variable in layer.variables]


class Checks(tf.keras.callbacks.Callback):
    """As a user writes it."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        optimizer = self.model.optimizer
        state = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
        hvd.check_consistency([*self.model.variables, *state], step=batch + 1, every=5)


@pytest.mark.parametrize("seed_differs", [False, True], ids=["same seeds", "other seeds"])
def test_in_a_callback_of_fit(seed_differs: bool) -> None:
    start = tf.keras.initializers.RandomNormal(seed=RANK if seed_differs else 0)
    model = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(1, kernel_initializer=start)])
    jit = {"jit_compile": False} if KERAS_3 else {}
    model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.Adam(0.1)), loss="mse", **jit)

    def fit() -> None:
        rows = values((40, 3), tf.float32)
        model.fit(rows, rows.sum(axis=1), batch_size=4, epochs=1, verbose=0, callbacks=[Checks()])

    if seed_differs and SIZE > 1:
        text = error_of(fit)
        assert "at step 5" in text
        assert "kernel" in text
    else:
        fit()


# ---- texts for more ranks than there are here ----------------------------------------------------


@only_rank_0
def test_ranks_are_written_as_spans() -> None:
    texts = [divergence.ranks_text(ranks) for ranks in ([3], [0, 1], [0, 2, 3, 4, 9])]
    assert texts == ["rank 3", "ranks 0-1", "ranks 0, 2-4, 9"]


@only_rank_0
def test_most_ranks_are_right_and_else_the_lowest() -> None:
    variables = [Variable("a", "int64 []"), Variable("b", "int64 []"), Variable("c", "int64 []")]
    values_of_rank = [[9, 1, 1], [1, 1, 2], [1, 1, 1], [1, 1, 2]]
    ranks = [Contents(1, [0, 0, 0], values) for values in values_of_rank]
    text = divergence.different_values(ranks, variables, "")
    assert text is not None
    assert "2 of 3: a (int64 []) on rank 0 is not as on ranks 1-3; c (int64 []) on ranks 1, 3 is not as on " in text
    assert "is not as on ranks 0, 2." in text
    assert divergence.different_values(ranks[2:3] * 5, variables, "") is None
