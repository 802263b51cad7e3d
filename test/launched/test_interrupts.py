"""Signals that Python handles, while its main thread waits for another rank, or seems to."""

from __future__ import annotations

import sys

import pytest

from fault_jobs import RANK_OF_LAUNCHER
from launching import GRAPH_MODE, IMPORTS, launch, launch_script, needs_mpirun

pytestmark = needs_mpirun

SEND = """
import signal, threading
def send_later(seconds, number):
    def send():
        global sent
        time.sleep(seconds)
        sent = time.time()
        os.kill(os.getpid(), number)
    threading.Thread(target=send, daemon=True).start()
"""
SESSION_WAITS = """
step = hvd.allreduce(tf.ones([2]))
with v1.train.MonitoredTrainingSession() as session:
    session.run(step)
    if rank == 1:
        time.sleep(20)
    else:
        send_later(1, signal.SIGINT)
    session.run(step)
"""
FIT_WAITS = """
model = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1)])
settings = {"jit_compile": False} if hasattr(tf.keras.optimizers.SGD, "apply") else {}
import horovod_tf.keras
model.compile(horovod_tf.keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)), loss="mse", **settings)
x = np.ones((8, 2), np.float32)
model.fit(x, x[:, :1], verbose=0)
if rank == 1:
    time.sleep(20)
else:
    send_later(1, signal.SIGINT)
model.fit(x, x[:, :1], verbose=0)
"""


@pytest.mark.parametrize("mode", ["session", "fit"])
def test_control_c_ends_a_job_that_waits(mode: str) -> None:
    waits = {"session": GRAPH_MODE + SEND + SESSION_WAITS, "fit": SEND + FIT_WAITS}[mode]
    tried = "try:\n" + "".join(f"    {line}\n" for line in waits.splitlines())
    job = launch_script(2, tried + "finally:\n    say(time.time() - sent)\n")
    assert "KeyboardInterrupt" in job.errors, job
    assert job.status != 0, job
    assert float(job.of(0).rpartition(" ")[2]) < 1.5, job
    assert job.seconds < 20, job


def test_control_c_ends_an_init_that_waits() -> None:
    job = launch(
        2,
        sys.executable,
        "-c",
        IMPORTS
        + RANK_OF_LAUNCHER
        + SEND
        + """
if rank == 1:
    time.sleep(20)
else:
    send_later(2, signal.SIGINT)
try:
    hvd.init()
except KeyboardInterrupt:
    say("interrupted after", time.time() - sent)
    raise
""",
    )
    assert job.status != 0, job
    assert "interrupted after" in job.of(0), job
    assert float(job.of(0).rpartition(" ")[2]) < 1.5, job
    assert job.seconds < 20, job


def test_a_handler_that_lets_training_go_on_does_so_where_ranks_keep_pace() -> None:
    job = launch_script(
        2,
        GRAPH_MODE
        + SEND
        + """
ends = []
signal.signal(signal.SIGTERM, lambda number, frame: ends.append(time.time() - sent))
step = hvd.allreduce(tf.ones([2]))
with v1.train.MonitoredTrainingSession() as session:
    if rank == 0:
        send_later(1, signal.SIGTERM)
    for i in range(12):
        time.sleep(0.3 * rank)  # rank 0 waits most of the time, but not for one and the same step
        session.run(step)
say("to its end", bool(ends), *ends)
""",
    )
    assert job.status == 0, job
    assert not job.lacks(0, "to its end True"), job
    assert not job.lacks(1, "to its end False"), job
    assert float(job.of(0).rpartition(" ")[2]) < 1, job


def test_a_signal_that_is_no_end_breaks_nothing_off() -> None:
    job = launch_script(
        2,
        SEND
        + """
signal.signal(signal.SIGALRM, lambda number, frame: say("alarm"))
if rank == 1:
    time.sleep(3)
else:
    send_later(1, signal.SIGALRM)
say(hvd.allreduce(tf.ones([2]), average=False).numpy())
""",
    )
    assert job.status == 0, job
    assert not job.lacks(0, "alarm", "[2. 2.]"), job


def test_a_signal_to_a_forked_child_is_none_to_its_parent() -> None:
    job = launch_script(
        2,
        SEND
        + """
signal.signal(signal.SIGTERM, lambda number, frame: os._exit(3))
child = os.fork() if rank == 0 else None
if child == 0:
    time.sleep(60)
if rank == 1:
    time.sleep(4)
else:
    threading.Timer(1, os.kill, [child, signal.SIGTERM]).start()
say(hvd.allreduce(tf.ones([2]), average=False).numpy())
if rank == 0:
    say("child", os.waitpid(child, 0)[1] >> 8)
""",
    )
    assert job.status == 0, job
    assert not job.lacks(0, "[2. 2.]", "child 3"), job
