"""Process sets; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.keras as keras_hvd
import horovod_tf.tensorflow as hvd
from horovod_tf.common import basics
from tensorflow_support import RANK, SIZE, graph_session, several_ranks, v1

MODES = ["eager", "function"]
every_mode = pytest.mark.parametrize("mode", MODES)
# The upper half, the first and the last, the last alone: disjoint and overlapping ones. As far as they are sets beside
# the one of all ranks.
LISTS = [
    ranks
    for ranks in {tuple(range(SIZE // 2, SIZE)), tuple(sorted({0, SIZE - 1})), (SIZE - 1,), (0,)}
    if len(ranks) < SIZE
]
LISTS.sort()


@pytest.fixture(params=LISTS, ids=str)
def process_set(request: pytest.FixtureRequest) -> Iterator[hvd.ProcessSet]:
    one = hvd.add_process_set(request.param)
    yield one
    assert hvd.remove_process_set(one)


def in_mode(mode: str, call: Any) -> Any:
    return call() if mode == "eager" else tf.function(call)()


def mine(rank: int = RANK) -> np.ndarray[Any, Any]:
    return np.arange(5, dtype=np.float32) + 10 * rank


# ---- the objects -----------------------------------------------------------------------------------


def test_questions(process_set: hvd.ProcessSet) -> None:
    ranks = process_set.ranks
    assert ranks is not None
    assert process_set.size() == len(ranks)
    assert process_set.included() == (RANK in ranks)
    assert f"ranks={ranks}" in repr(process_set)
    assert process_set.process_set_id in basics.process_set_ids()
    if RANK in ranks:
        assert process_set.rank() == ranks.index(RANK)
    else:
        with pytest.raises(ValueError, match=r"Process is not part of provided process set\."):
            process_set.rank()


def test_set_of_all_ranks() -> None:
    one = hvd.global_process_set
    assert (one.process_set_id, one.ranks, one.size(), one.rank()) == (0, list(range(SIZE)), SIZE, RANK)
    assert one.included()
    assert not hvd.remove_process_set(one)
    assert keras_hvd.global_process_set is one


def test_what_is_not_registered() -> None:
    one = hvd.ProcessSet([0])
    assert (one.process_set_id, one.size(), one.rank(), one.included(), one.ranks) == (None, None, None, None, [0])
    assert not hvd.remove_process_set(one)
    calls: list[Any] = [
        lambda: hvd.allreduce(tf.ones([1]), process_set=one),
        lambda: hvd.broadcast(tf.ones([1]), 0, process_set=one),
        lambda: hvd.barrier(process_set=one),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="does not exist or has not been registered"):
            call()


@pytest.mark.parametrize("what", ["01", 7, [0.5], [None], object()], ids=repr)
def test_what_is_no_set(what: Any) -> None:
    with pytest.raises(ValueError, match="rank"):
        hvd.ProcessSet(what)


@several_ranks
def test_set_that_is_removed_by_its_number() -> None:
    one = hvd.add_process_set([0])
    numbers = [one.process_set_id]
    assert numbers[0] is not None
    assert hvd.remove_process_set(hvd.ProcessSet.of_id(numbers[0]))
    numbers.append(one.process_set_id)
    assert numbers[1] is None
    assert hvd.add_process_set(one) is one
    assert hvd.remove_process_set(one)


def test_ranks_are_sorted_and_may_be_numpys() -> None:
    assert hvd.ProcessSet(np.array([3, 1])).ranks == [1, 3]
    assert hvd.ProcessSet(range(2)).ranks == [0, 1]


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([], "one rank"), ([0, 0], "twice"), ([SIZE], f"no rank {SIZE}"), (range(SIZE), "add a duplicate process set")],
    ids=["none", "twice", "unknown", "all"],
)
def test_what_cannot_be_registered(ranks: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        hvd.add_process_set(ranks)


def test_duplicate(process_set: hvd.ProcessSet) -> None:
    with pytest.raises(ValueError, match="Attempted to add a duplicate process set"):
        hvd.add_process_set(process_set.ranks)


@several_ranks
def test_ranks_that_disagree_all_hear_of_both_lists() -> None:
    wanted = [0] if RANK == 0 else [SIZE - 1]
    with pytest.raises(ValueError, match=rf"rank 0 adds the ranks \[0\], and rank 1 adds the ranks \[{SIZE - 1}\]"):
        hvd.add_process_set(wanted)
    one = hvd.ProcessSet([0])
    one.process_set_id = 12345
    with pytest.raises(ValueError, match="process set 12345"):
        hvd.remove_process_set(one) if RANK == 0 else hvd.add_process_set([0])


# ---- collectives -----------------------------------------------------------------------------------


@every_mode
def test_reductions(mode: str, process_set: hvd.ProcessSet) -> None:
    if not process_set.included():
        return
    inputs = np.stack([mine(rank) for rank in process_set.ranks or []])
    for op, expected in [
        (hvd.Sum, inputs.sum(0)),
        (hvd.Average, inputs.mean(0)),
        (hvd.Min, inputs.min(0)),
        (hvd.Max, inputs.max(0)),
    ]:
        found = in_mode(mode, lambda op=op: hvd.allreduce(tf.constant(mine()), op=op, process_set=process_set))
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    found = in_mode(
        mode,
        lambda: hvd.grouped_allreduce(
            [tf.constant(mine()), tf.ones([2], tf.int32)], op=hvd.Sum, process_set=process_set, name="pair"
        ),
    )
    np.testing.assert_array_equal(found[0], inputs.sum(0))
    np.testing.assert_array_equal(found[1], [len(inputs)] * 2)


@every_mode
def test_gathers_and_broadcasts(mode: str, process_set: hvd.ProcessSet) -> None:
    ranks = process_set.ranks or []
    if not process_set.included():
        return
    rows = [np.full([rank + 1, 2], rank) for rank in ranks]
    own = rows[ranks.index(RANK)]
    expected = np.concatenate(rows)
    found = in_mode(mode, lambda: hvd.allgather(tf.constant(own), process_set=process_set))
    np.testing.assert_array_equal(found, expected)
    found = in_mode(mode, lambda: hvd.grouped_allgather([tf.constant(own)] * 2, "two", process_set=process_set))
    for one in found:
        np.testing.assert_array_equal(one, expected)
    for root in ranks:
        found = in_mode(mode, lambda root=root: hvd.broadcast(tf.constant(mine()), root, process_set=process_set))
        np.testing.assert_array_equal(found, mine(root))
    hvd.barrier(process_set=process_set)


@every_mode
def test_rows_are_shared_among_the_set(mode: str, process_set: hvd.ProcessSet) -> None:
    ranks = process_set.ranks or []
    if not process_set.included():
        return
    count, place = len(ranks), ranks.index(RANK)
    # Made inside, as functions name what they are given by numbers that count this rank's tensors.
    own: Any = np.repeat(10 * RANK + np.arange(count), 2)
    found = in_mode(mode, lambda: hvd.alltoall(tf.constant(own), process_set=process_set))
    np.testing.assert_array_equal(found, np.repeat([10 * rank + place for rank in ranks], 2))
    found, received = in_mode(
        mode, lambda: hvd.alltoall(tf.constant(own), splits=[2] * count, process_set=process_set, name="splits")
    )
    np.testing.assert_array_equal(found, np.repeat([10 * rank + place for rank in ranks], 2))
    np.testing.assert_array_equal(received, [2] * count)
    total = np.sum([np.repeat(10 * rank + np.arange(count), 2) for rank in ranks], 0)
    found = in_mode(mode, lambda: hvd.reducescatter(tf.constant(own), op=hvd.Sum, process_set=process_set))
    np.testing.assert_array_equal(found, total[2 * place : 2 * place + 2])
    found = in_mode(mode, lambda: hvd.grouped_reducescatter([tf.constant(own)], op=hvd.Sum, process_set=process_set))
    np.testing.assert_array_equal(found[0], total[2 * place : 2 * place + 2])


@every_mode
def test_sparse_averages_are_over_the_set(mode: str, process_set: hvd.ProcessSet) -> None:
    ranks = process_set.ranks or []
    if not process_set.included():
        return

    def reduce() -> Any:
        slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([RANK], tf.int64), tf.constant([SIZE, 2], tf.int64))
        return tf.convert_to_tensor(hvd.allreduce(slices, process_set=process_set, name="sparse"))

    expected = np.zeros([SIZE, 2])
    expected[ranks] = 1 / len(ranks)
    np.testing.assert_allclose(in_mode(mode, reduce), expected, rtol=1e-6)


def test_objects_and_variables(process_set: hvd.ProcessSet) -> None:
    ranks = process_set.ranks or []
    if not process_set.included():
        return
    root = ranks[-1]
    assert hvd.broadcast_object({"from": RANK}, root, process_set=process_set) == {"from": root}
    assert hvd.broadcast_object_fn(root, process_set=process_set)(RANK) == root
    assert hvd.allgather_object(RANK, process_set=process_set) == ranks
    variable = tf.Variable(mine(), name="value")
    hvd.broadcast_variables([variable], root, process_set=process_set)
    np.testing.assert_array_equal(variable.numpy(), mine(root))


def test_in_a_session(process_set: hvd.ProcessSet) -> None:
    ranks = process_set.ranks or []
    if not process_set.included():
        return
    with graph_session() as session:
        found = session.run(hvd.allreduce(tf.constant(mine()), op=hvd.Sum, process_set=process_set))
    np.testing.assert_array_equal(found, np.sum([mine(rank) for rank in ranks], 0))


@every_mode
def test_gradients_are_of_the_set(mode: str, process_set: hvd.ProcessSet) -> None:
    ranks = process_set.ranks or []
    if not process_set.included():
        return
    root = ranks[0]
    for collective, expected in [
        (lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=process_set, name="a"), len(ranks)),
        (lambda x: hvd.allgather(x, process_set=process_set, name="g"), len(ranks)),
        (lambda x: hvd.broadcast(x, root, process_set=process_set, name="b"), len(ranks) * (root == RANK)),
        (lambda x: hvd.reducescatter(x, op=hvd.Sum, process_set=process_set, name="r"), 1),
        (lambda x: hvd.alltoall(x, [5] + [0] * (len(ranks) - 1), process_set=process_set, name="t")[0], 1),
        (lambda x: hvd.grouped_allreduce([x], op=hvd.Sum, process_set=process_set, name="l")[0], len(ranks)),
    ]:

        def differentiate(collective: Any = collective) -> Any:
            x = tf.constant(mine())
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.reduce_sum(collective(x))
            return tape.gradient(y, x)

        np.testing.assert_allclose(in_mode(mode, differentiate), np.full(5, expected), rtol=1e-6)


def test_ranks_outside_get_an_error(process_set: hvd.ProcessSet) -> None:
    ranks = process_set.ranks or []
    if not process_set.included():
        text = "is not a member of the provided process set"
        for call in (
            lambda: hvd.allreduce(tf.ones([1]), process_set=process_set),
            lambda: hvd.grouped_allreduce([tf.ones([1])], process_set=process_set),
            lambda: hvd.allgather(tf.ones([1]), process_set=process_set),
            lambda: hvd.broadcast(tf.ones([1]), ranks[0], process_set=process_set),
            lambda: hvd.alltoall(tf.ones([SIZE]), process_set=process_set),
            lambda: hvd.reducescatter(tf.ones([1]), process_set=process_set),
            lambda: hvd.grouped_reducescatter([tf.ones([1])], process_set=process_set),
            lambda: hvd.barrier(process_set=process_set),
        ):
            with pytest.raises(tf.errors.InvalidArgumentError, match=text):
                call()
    elif len(ranks) < SIZE:
        outside = next(rank for rank in range(SIZE) if rank not in ranks)
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"invalid root rank {outside} for provided process"):
            hvd.broadcast(tf.ones([1]), outside, process_set=process_set)
    np.testing.assert_array_equal(hvd.allreduce(tf.ones([1]), op=hvd.Sum), [SIZE])


def test_members_that_disagree_get_an_error_and_go_on(process_set: hvd.ProcessSet) -> None:
    ranks = process_set.ranks or []
    if not process_set.included() or len(ranks) == 1:
        return
    text = rf"process set {process_set.process_set_id} .*counted from 0.*Mismatched data types"
    with pytest.raises(tf.errors.FailedPreconditionError, match=text):
        hvd.allreduce(tf.ones([1], tf.int32 if ranks[0] == RANK else tf.float32), process_set=process_set)
    np.testing.assert_array_equal(hvd.allreduce(tf.ones([1]), op=hvd.Sum, process_set=process_set), [len(ranks)])


@several_ranks
def test_disjoint_sets_at_the_same_time() -> None:
    alone = [hvd.add_process_set([rank]) for rank in range(SIZE)]
    # Each rank as often as it likes.
    for _ in range(10 * (RANK + 1)):
        np.testing.assert_array_equal(hvd.allgather(tf.constant([RANK]), process_set=alone[RANK]), [RANK])
    for one in alone:
        hvd.remove_process_set(one)


@several_ranks
def test_a_set_does_not_wait_for_the_job() -> None:
    one = hvd.add_process_set([SIZE - 1])
    found: list[Any] = []
    # The others' part of it comes when this rank has used its set.
    thread = threading.Thread(target=lambda: found.append(hvd.allreduce(tf.ones([1]), op=hvd.Sum, name="late").numpy()))
    if RANK == SIZE - 1:
        thread.start()
        for _ in range(10):
            hvd.allreduce(tf.ones([1]), process_set=one)
        assert not found
    hvd.barrier("used")
    if RANK != SIZE - 1:
        thread.start()
    thread.join()
    np.testing.assert_array_equal(found[0], [SIZE])
    hvd.remove_process_set(one)


# ---- gradients of training -------------------------------------------------------------------------


@every_mode
@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum], ids=["average", "sum"])
def test_tape_reduces_in_the_set_and_passes_outside(mode: str, op: int, process_set: hvd.ProcessSet) -> None:
    variable = tf.Variable(mine())

    def step() -> Any:
        with hvd.DistributedGradientTape(tf.GradientTape(), op=op, process_set=process_set) as tape:
            loss = tf.reduce_sum(variable) * (RANK + 1.0)
        return tape.gradient(loss, [variable])[0]

    of_ranks = [rank + 1.0 for rank in process_set.ranks or []]
    inside = sum(of_ranks) if op == hvd.Sum else np.mean(of_ranks)
    expected = inside if process_set.included() else RANK + 1.0
    np.testing.assert_allclose(in_mode(mode, step), np.full(5, expected), rtol=1e-6)


def test_optimizers_reduce_in_the_set_and_pass_outside(process_set: hvd.ProcessSet) -> None:
    of_ranks = [rank + 1.0 for rank in process_set.ranks or []]
    expected = -(np.mean(of_ranks) if process_set.included() else RANK + 1.0)
    with graph_session() as session:
        variable = v1.get_variable("weight", initializer=np.zeros([3], np.float32), use_resource=True)
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), process_set=process_set)
        step = optimizer.minimize(tf.reduce_sum(variable) * (RANK + 1.0))
        session.run(v1.global_variables_initializer())
        session.run(step)
        np.testing.assert_allclose(session.run(variable), np.full(3, expected), rtol=1e-6)
    weight = tf.Variable(np.zeros([3], np.float32))
    keras_optimizer = keras_hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), process_set=process_set)
    keras_optimizer.apply_gradients([(tf.fill([3], RANK + 1.0), weight)])
    np.testing.assert_allclose(weight.numpy(), np.full(3, expected), rtol=1e-6)


# ---- life ------------------------------------------------------------------------------------------


def resources() -> tuple[int, int, int]:
    """Threads, descriptors, and pieces of shared memory of this process."""
    with open("/proc/self/maps") as maps:
        shared = sum("memfd:" in line for line in maps)
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")), shared


def test_adding_and_removing_leaves_nothing_behind() -> None:
    ranks = list(range(SIZE - 1)) or [0]

    def round_trip() -> None:
        one = hvd.add_process_set(ranks)
        if one.included():
            np.testing.assert_array_equal(hvd.allreduce(tf.ones([1]), op=hvd.Sum, process_set=one), [len(ranks)])
        assert hvd.remove_process_set(one)
        assert (one.process_set_id, one.size()) == (None, None)

    if SIZE == 1:
        return  # there is no set but that of all ranks
    round_trip()
    before = resources()
    ids = basics.process_set_ids()
    for _ in range(20):
        round_trip()
    assert basics.process_set_ids() == ids
    hvd.barrier()
    assert all(now <= then for now, then in zip(resources(), before)), (resources(), before)


@several_ranks
def test_removal_ends_what_waits_and_what_still_has_the_number() -> None:
    one = hvd.add_process_set(sorted({0, SIZE - 1}) if SIZE > 2 else [1])
    number = one.process_set_id
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            hvd.allreduce(tf.ones([1]), process_set=one, name="waits")
        except tf.errors.OpError as error:
            errors.append(error)

    waits = SIZE > 2 and RANK == 0
    thread = threading.Thread(target=wait)
    if waits:
        thread.start()
        while "waits" not in hvd.status():
            pass
    hvd.barrier("it waits")
    hvd.remove_process_set(one)
    if waits:
        thread.join()
        assert isinstance(errors[0], tf.errors.AbortedError)
        assert "Process set has been removed" in str(errors[0])
    again = hvd.add_process_set(one)
    assert again is one
    assert again.process_set_id != number
    stale = hvd.ProcessSet([0])
    stale.process_set_id = number
    with pytest.raises(tf.errors.InvalidArgumentError, match="does not exist or has not been registered"):
        hvd.allreduce(tf.ones([1]), process_set=stale)
    with pytest.raises(ValueError, match="does not exist or has not been registered"):
        stale.size()
    assert hvd.remove_process_set(one)


def test_init_with_sets_and_again_without() -> None:
    ranks = [[0], [SIZE - 1]] if SIZE > 2 else [[0]] if SIZE > 1 else []
    sets = [hvd.ProcessSet(one) for one in ranks]
    hvd.shutdown()
    with pytest.raises(ValueError, match="is a duplicate"):
        hvd.init(process_sets=[*sets, hvd.ProcessSet([0]), hvd.ProcessSet([0])])
    with pytest.raises(ValueError, match="process_sets is 7"):
        hvd.init(process_sets=7)
    hvd.init(process_sets=sets)
    for number, one in enumerate(sets):
        assert one.process_set_id == number + 1
        if one.included():
            np.testing.assert_array_equal(hvd.allreduce(tf.ones([1]), op=hvd.Sum, process_set=one), [1])
    hvd.init(process_sets=sets)  # harmless
    hvd.barrier()
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
    assert [one.process_set_id for one in sets] == [None] * len(sets)
    assert basics.process_set_ids() == [0]
    hvd.barrier()
