"""T2, T8, T9, T10, T38: ranks whose programs differ, in names, branches, shapes, order or threads."""

from __future__ import annotations

import pytest

from fault_jobs import LIMIT, FaultError, fails, gives, has_ended, keras_module, launch_fault, says, succeeds, told
from launching import GRAPH_MODE, launch_script, needs_mpirun

pytestmark = needs_mpirun

SHORT = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "3"}
# Rank 1 first builds what it does not use, so that TensorFlow numbers its names differently. `{name}` is what the
# collective is given besides.
DUMMIES = {
    "graph": GRAPH_MODE
    + """
def layer(x):
    weight = v1.Variable(tf.ones([2, 2]))
    return tf.matmul(x, weight)
x = tf.ones([2, 2]) * (rank + 1.0)
if rank == 1:
    layer(x)
total = hvd.allreduce(layer(x), average=False{name})
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    say(session.run(total)[0])
""",
    "optimizer_of_graphs": GRAPH_MODE
    + """
weight = v1.get_variable("w", initializer=[0.0, 0.0])
if rank == 1:
    v1.gradients(tf.reduce_sum(weight), [weight])
loss = tf.reduce_sum(weight) * (rank + 1.0) * 4.0
train = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0)).minimize(loss)
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    session.run(train)
    say(-session.run(weight))
""",
    "keras": f"""
import {keras_module()} as hvd_keras
def make():
    model = tf.keras.Sequential(
        [tf.keras.layers.Input((2,)), tf.keras.layers.Dense(2, use_bias=False, kernel_initializer="zeros")])
    settings = {{"jit_compile": False}} if hasattr(tf.keras.optimizers.SGD, "apply") else {{}}
    model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(1.0)), loss=lambda y, p: -p, **settings)
    return model
if rank == 1:
    make()
model = make()
model.fit(np.full((2, 2), rank + 1.0, np.float32), np.zeros((2, 2), np.float32), batch_size=2, verbose=0)
say(model.get_weights()[0][0] * 8)
""",
    "function": """
if rank == 1:
    tf.function(lambda: tf.identity(tf.ones([2])))()
@tf.function
def program(x):
    if rank == 1:
        tf.identity(x)
    return hvd.allreduce(tf.identity(x), average=False{name})
say(program(tf.ones([2]) * (rank + 1.0) * 2.0).numpy())
""",
    "eager": """
if rank == 1:
    tf.identity(tf.ones([2]))
say(hvd.allreduce(tf.ones([2]) * (rank + 1.0) * 2.0, average=False).numpy())
""",
}


# Where TensorFlow's names are what ranks match calls by, and those of the two ranks.
BY_NAME = {
    "graph": ("'HorovodAllreduce_MatMul_0'", "'HorovodAllreduce_MatMul_1_0'"),
    "function": ("HorovodAllreduce_Identity_0'", "HorovodAllreduce_Identity_1_0'"),
}


@pytest.mark.parametrize("program", DUMMIES)
def test_t2_names_that_tensorflow_has_numbered_differently(program: str) -> None:
    """Where they matter, the calls have a name of their own."""
    job = launch_fault(2, DUMMIES[program].replace("{name}", ", name='of_ours'"), **SHORT)
    succeeds(job)
    for rank in range(2):
        gives(job, rank, "[6. 6.]")


@pytest.mark.parametrize("program", BY_NAME)
def test_t2_default_names_that_are_numbered_differently_are_an_error_that_says_so(program: str) -> None:
    indented = "".join("    " + line for line in DUMMIES[program].replace("{name}", "").splitlines(keepends=True))
    job = launch_fault(2, f"try:\n{indented}except Exception as error:\n    say('told', error)\n    raise\n", **SHORT)
    fails(job)
    for rank in range(2):
        told(job, rank, *BY_NAME[program], "[ranks: 0]", "[ranks: 1]", "build different graphs?", "name=")


BRANCHES = """
@tf.function
def program(which):
    ones = tf.ones([2])
    x = tf.cond(which, lambda: hvd.allreduce(tf.identity(ones, name="in_branch"), average=False), lambda: ones)
    return hvd.allreduce(tf.identity(x, name="behind_branch"), average=False)
try:
    program(tf.constant(rank == 0))
    say("no error")
except Exception as error:
    say("told", error)
"""


def test_t8_branch_that_one_rank_takes_is_an_error_with_both_calls() -> None:
    job = launch_fault(2, BRANCHES, **SHORT)
    has_ended(job)
    for rank in range(2):
        told(job, rank, "in_branch", "behind_branch")


# Rank 1 leaves out step 2. No collective knows of steps: its third call goes together with rank 0's third.
LEAVES_OUT = """
@tf.function
def program(step):
    return hvd.allreduce(tf.identity(step, name="step"), average=False)
weight = tf.Variable(0.0, name="weight")
for step in range(5):
    if rank == 1 and step == 2:
        continue
    try:
        value = float(program(tf.constant(10.0 ** step)))
        {check}
    except Exception as error:
        say("told", error)
        break
    say(step, value)
"""


def test_t8_rank_with_more_steps_is_told_at_the_first_one_too_many() -> None:
    job = launch_fault(2, LEAVES_OUT.format(check=""))
    has_ended(job)
    gives(job, 0, "0 2.0", "1 20.0", "2 1100.0", "3 11000.0")
    gives(job, 1, "4 11000.0")
    told(job, 0, "rank 1", "ended", "fewer steps or less data")


def test_t8_check_of_variables_finds_the_step_that_one_rank_leaves_out() -> None:
    job = launch_fault(2, LEAVES_OUT.format(check="hvd.check_consistency([weight], step=step)"))
    has_ended(job)
    for rank in range(2):
        says(job, rank, "1 20.0")
        told(job, rank, "different steps", "rank 0", "rank 1", "2", "3")


MISMATCHES = {
    "shape": ("hvd.allreduce(tf.ones([4 + rank]), average=False)", ["[4]", "[5]"]),
    "type": ("hvd.allreduce(tf.ones([4], [tf.float32, tf.float64][rank]), average=False)", ["float"]),
    "operation": ("hvd.allreduce(tf.ones([4]), average=rank == 0)", ["ismatched"]),
    "root": ("hvd.broadcast(tf.ones([4]), rank, name='x')", ["root rank"]),
    "kind": (
        "hvd.allgather(tf.ones([4]), name='x') if rank == 0 else hvd.broadcast(tf.ones([4]), 0, name='x')",
        ["ALLGATHER", "BROADCAST"],
    ),
    "row_of_gather": ("hvd.allgather(tf.ones([2, 3 + rank]), name='x')", ["ismatched", "3", "4"]),
}


@pytest.mark.parametrize("kind", MISMATCHES)
def test_t9_mismatch_is_an_error_on_both_and_the_next_good_call_works(kind: str) -> None:
    call, texts = MISMATCHES[kind]
    job = launch_fault(
        2,
        f"try:\n    {call}\n    say('no error')\nexcept Exception as error:\n    say('told', error)\n"
        + "say(hvd.allreduce(tf.fill([3], rank + 1.0), average=False).numpy())\n",
        **SHORT,
    )
    succeeds(job)
    for rank in range(2):
        told(job, rank, *texts)
        gives(job, rank, "[3. 3. 3.]")


REPEATED = """
@tf.function
def unused_on_rank_0(x):
    unused = hvd.allreduce(tf.identity(x, name="first"), average=False)
    used = hvd.allreduce(tf.identity(x, name="second"), average=False)
    return used if rank == 0 else used + 0.0 * unused
@tf.function
def identical(x):
    return (hvd.allreduce(x, average=False) + hvd.allreduce(x, average=False)) / 2.0
@tf.function
def in_another_order(x):
    found = {name: hvd.allreduce(tf.identity(x, name=name), average=False) for name in "ab"[:: 1 - 2 * rank]}
    return (found["a"] + found["b"]) / 2.0
for program in (unused_on_rank_0, identical, in_another_order):
    for step in range(200):
        value = program(tf.constant([rank + 1.0, step]))
    say(program.__name__, value.numpy())
"""


def test_t10_collectives_of_a_function_run_as_they_are_written() -> None:
    job = launch_fault(2, REPEATED, **SHORT)
    succeeds(job)
    for rank in range(2):
        for program in ("unused_on_rank_0", "identical", "in_another_order"):
            gives(job, rank, f"{program} [  3. 398.]")


THREADS = """
import threading
wrong, errors = [], []
def work(i):
    try:
        for step in range(100):
            value = float(call(i, 1000.0 * i + step))
            if value != 2000.0 * i + 2 * step:
                wrong.append((i, step, value))
    except Exception as error:
        errors.append(error)
threads = [threading.Thread(target=work, args=(i,)) for i in (range(4) if rank == 0 else reversed(range(4)))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for error in errors[:1]:
    say("told", error)
say("wrong" if wrong else "no value wrong", wrong[:3])
"""
THREADED_CALLS = {
    "eager": """
def call(i, value):
    return hvd.allreduce(tf.constant(value), average=False, name="of_thread_%d" % i)
""",
    "functions": """
functions = [tf.function(lambda x, i=i: hvd.allreduce(tf.identity(x, name="of_thread_%d" % i), average=False))
             for i in range(4)]
def call(i, value):
    return functions[i](tf.constant(value))
""",
    "session": """
graph = tf.Graph()
with graph.as_default():
    fed = [v1.placeholder(tf.float32, ()) for i in range(4)]
    totals = [hvd.allreduce(tf.identity(one, name="of_thread_%d" % i), average=False) for i, one in enumerate(fed)]
session = v1.Session(graph=graph)
def call(i, value):
    return session.run(totals[i], {fed[i]: value})
""",
}


def test_t38_threads_of_which_each_has_its_names() -> None:
    job = launch_fault(2, "".join(call + THREADS for call in THREADED_CALLS.values()), **SHORT)
    succeeds(job)
    for rank in range(2):
        if job.of(rank).count("no value wrong") != len(THREADED_CALLS):
            raise FaultError("wrong value", job)
        if "told" in job.of(rank):
            raise FaultError("error", job)


# Each with a collective's own name: one that all have is mixed up, and an error.
NAMELESS = {
    "allreduce": "return hvd.allreduce(tf.constant(value), average=False)",
    "grouped": "return hvd.grouped_allreduce([tf.constant(value)], average=False)[0]",
    "allgather": "return tf.reduce_sum(hvd.allgather(tf.constant([value])))",
}


@pytest.mark.parametrize("kind", NAMELESS)
def test_t38_eager_calls_of_threads_without_a_name_are_an_error(kind: str) -> None:
    job = launch_fault(2, f"def call(i, value):\n    {NAMELESS[kind]}\n" + THREADS, **SHORT)
    has_ended(job)
    for rank in range(2):
        told(job, rank, "thread 'Thread-", "without a name while thread 'Thread-", "name=")


def test_t38_trips_of_a_loop_are_paired() -> None:
    job = launch_script(
        2,
        """
@tf.function
def loop():
    def body(trip, total):
        return trip + 1, total + hvd.allreduce(tf.cast(trip, tf.float64) * (rank + 1.0), average=False)
    return tf.while_loop(
        lambda trip, _: trip < 50, body, (tf.constant(0), tf.constant(0.0, tf.float64)), parallel_iterations=10)[1]
say(loop().numpy(), loop().numpy())
""",
        seconds=LIMIT,
    )
    succeeds(job)
    for rank in range(2):
        gives(job, rank, "3675.0 3675.0")
