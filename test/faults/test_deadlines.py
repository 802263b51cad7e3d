"""T1, T3, T4, T16, T21: ranks that come late, leave the loop, or never come; and signals while one waits."""

from __future__ import annotations

import pytest

from fault_jobs import (
    LIMIT,
    RANK_OF_LAUNCHER,
    FaultError,
    at_most,
    ends_promptly,
    gives,
    has_ended,
    keras_module,
    launch_fault,
    seconds_said,
    succeeds,
    told,
)
from launching import GRAPH_MODE, IMPORTS, launch_script, needs_mpirun

pytestmark = needs_mpirun

SHORT = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "3"}
CALLS = {
    "eager": "def call(i):\n    return hvd.allreduce(tf.ones([3]), average=False)\n",
    "session": """
graph = tf.Graph()
with graph.as_default():
    calls = [hvd.allreduce(tf.identity(tf.ones([3]), name="call_%d" % i), average=False) for i in range(6)]
session = v1.Session(graph=graph)
def call(i):
    return session.run(calls[i])
""",
}


@pytest.mark.parametrize("mode", CALLS)
def test_t1_call_that_a_rank_never_makes_ends_the_job_with_who_is_missing(mode: str) -> None:
    """Rank 2 has finished four, and then does something else."""
    job = launch_fault(
        3,
        CALLS[mode]
        + """
for i in range(1, 5):
    call(i)
say("fault at", time.time())
if rank == 2:
    time.sleep(60)
try:
    call(5)
except Exception as error:
    say("told", error)
    raise
""",
        **SHORT,
    )
    ends_promptly(job)
    last, missed = ("call_4", "call_5") if mode == "session" else ("HorovodAllreduce", "HorovodAllreduce")
    for rank in (0, 1):
        told(job, rank, missed, "missing rank", "2", last, "in user code")


def test_t1_job_with_a_call_that_a_rank_never_makes_ends() -> None:
    """Whatever it says: an error on those that wait, and no process left."""
    job = launch_fault(
        3,
        CALLS["session"]
        + "call(1)\nsay('fault at', time.time())\nif rank == 2:\n    time.sleep(60)\n"
        + "try:\n    call(2)\nexcept Exception as error:\n    say('told', error)\n    raise\n",
        **SHORT,
    )
    ends_promptly(job)
    for rank in (0, 1):
        told(job, rank, "2")


def test_t3_rank_that_does_something_long_is_noticed_once_and_no_more() -> None:
    job = launch_script(
        2,
        """
for i in range(3):
    if rank == 0:
        time.sleep(3.6)
    value = hvd.allreduce(tf.fill([3], float(rank + i)), average=False).numpy()
say(value)
""",
        seconds=LIMIT,
        HOROVOD_STALL_CHECK_TIME_SECONDS="2",
    )
    succeeds(job)
    for rank in range(2):
        gives(job, rank, "[5. 5. 5.]")
    notices = job.errors.count("were submitted to be reduced")
    if notices > 3:  # one for each of the three waits
        raise FaultError(f"{notices} notices", job)


def test_t3_evaluation_and_checkpoint_on_rank_0_alone() -> None:
    job = launch_script(
        2,
        GRAPH_MODE
        + """
weight = v1.get_variable("w", initializer=[0.0])
train = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0)).minimize(tf.reduce_sum(weight) * (rank + 1.0))
evaluate = tf.reduce_sum(tf.square(weight))
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    for epoch in range(3):
        session.run(train)
        if rank == 0:
            session.run(evaluate)
            time.sleep(1.5)
    say(session.run(weight))
""",
        seconds=LIMIT,
        HOROVOD_STALL_CHECK_TIME_SECONDS="1",
    )
    succeeds(job)
    for rank in range(2):
        gives(job, rank, "[-4.5]")


FIT = f"""
import {keras_module()} as hvd_keras
model = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(1)])
settings = {{"jit_compile": False}} if hasattr(tf.keras.optimizers.SGD, "apply") else {{}}
model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)), loss="mse", **settings)
class Stops(tf.keras.callbacks.Callback):
    '''Only rank 1 wants to, at epoch 2.'''
    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = agreed(rank == 1 and epoch == 2)
x, y = np.full((8, 3), rank + 1.0, np.float32), np.zeros((8, 1), np.float32)
def fit():
    return len(model.fit(x, y, batch_size=4, epochs=5, verbose=0, callbacks=[Stops()]).history["loss"])
"""


def test_t4_stop_that_all_agree_on_is_at_the_same_epoch() -> None:
    job = launch_script(
        3,
        "def agreed(wanted):\n    return bool(hvd.allreduce(tf.constant(int(wanted)), average=False).numpy() > 0)\n"
        + FIT
        + "say('epochs', fit())\n",
        seconds=LIMIT,
    )
    succeeds(job)
    for rank in range(3):
        gives(job, rank, "epochs 3")


def test_t4_rank_that_stops_alone_is_named_to_the_others() -> None:
    job = launch_fault(
        3,
        "def agreed(wanted):\n    return wanted\n"
        + FIT
        + "try:\n    say('epochs', fit())\nexcept Exception as error:\n    say('told', error)\n    raise\n"
        + "say('fault at', time.time())\n",
    )
    ends_promptly(job)
    gives(job, 1, "epochs 3")
    for rank in (0, 2):
        told(job, rank, "rank 1", "ended")


MODES = {
    "eager": "hvd.allreduce(tf.ones([3]), average=False)",
    "function": "tf.function(lambda: hvd.allreduce(tf.ones([3]), average=False))()",
    "session": """
with tf.Graph().as_default(), v1.Session() as session:
    session.run(hvd.allreduce(tf.ones([3]), average=False))
""",
}
LATE = 12  # seconds after which rank 1 comes at last
SIGNALLED = """
import signal, threading
hvd.allreduce(tf.ones([3]), average=False)
def handler(number, frame):
    say("handled", time.time() - sent)
    signal.signal(number, signal.SIG_DFL)
    raise KeyboardInterrupt
if rank == 0:
    if {handled}:
        signal.signal(signal.{name}, handler)
    def send():
        global sent
        time.sleep(1.5)
        sent = time.time()
        say("fault at", sent)
        os.kill(os.getpid(), signal.{name})
    threading.Thread(target=send, daemon=True).start()
else:
    time.sleep({late})
"""


@pytest.mark.parametrize(("name", "mode"), [("SIGTERM", "session"), ("SIGTERM", "eager"), ("SIGINT", "function")])
def test_t16_handler_runs_while_its_rank_waits(name: str, mode: str) -> None:
    job = launch_fault(2, SIGNALLED.format(handled=True, name=name, late=LATE) + MODES[mode])
    has_ended(job)
    at_most(job, seconds_said(job, 0, "handled"), 1.5)
    ends_promptly(job)


@pytest.mark.parametrize("mode", ["eager", "session"])
def test_t16_termination_without_a_handler_ends_the_job(mode: str) -> None:
    ends_promptly(launch_fault(2, SIGNALLED.format(handled=False, name="SIGTERM", late=LATE) + MODES[mode]))


COMES_LATE = (
    RANK_OF_LAUNCHER
    + """
if rank == 1:
    time.sleep({late})
begin = time.time()
say("fault at", begin)
try:
    hvd.init()
except Exception as error:
    say("told", error)
    say("after", time.time() - begin)
    raise
say(hvd.allreduce(tf.ones([3]), average=False).numpy())
"""
)


@pytest.mark.parametrize("late", [30, 1000], ids=["late", "never"])
def test_t21_start_without_a_rank_ends_at_its_deadline_and_names_it(late: int) -> None:
    script = COMES_LATE.format(late=late)
    job = launch_fault(2, script, prologue=IMPORTS, HOROVOD_TF_INIT_TIMEOUT_SECONDS="5")
    ends_promptly(job)
    told(job, 0, "1 of 2 ranks", "missing", "rank 1")
    at_most(job, seconds_said(job, 0, "after"), 8)


def test_t21_start_waits_for_a_rank_within_its_deadline() -> None:
    job = launch_fault(2, COMES_LATE.format(late=8), prologue=IMPORTS, HOROVOD_TF_INIT_TIMEOUT_SECONDS="60")
    succeeds(job)
    for rank in range(2):
        gives(job, rank, "[2. 2. 2.]")
