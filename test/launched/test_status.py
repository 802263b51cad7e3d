"""What a rank says of itself when it is asked: by a signal, and by a call."""

from __future__ import annotations

import sys

from launching import GRAPH_MODE, IMPORTS, launch, launch_script, needs_mpirun

pytestmark = needs_mpirun


def test_a_signal_prints_what_a_waiting_rank_waits_for() -> None:
    job = launch_script(
        3,
        GRAPH_MODE
        + """
import signal, threading
if rank == 2:
    time.sleep(4)
elif rank == 1:
    # Python's main thread is inside the operation and runs no handler of Python's.
    threading.Timer(2, os.kill, [os.getpid(), signal.SIGUSR1]).start()
with v1.Session() as session:
    session.run(hvd.allreduce(tf.ones([2])))
say("done", hvd.status())
time.sleep(1)  # who leaves ends the job for all
""",
    )
    assert job.status == 0, job
    for part in (
        "[horovod_tf] rank 1 of 3 on ",
        "waiting on this rank:",
        "who is missing, as rank 0 sees it:",
        "[missing ranks: 2]",
        "HOROVOD_STALL_CHECK_TIME_SECONDS=60",
    ):
        assert part in job.errors, job
    assert job.errors.count("[horovod_tf] rank") == 1, job
    for rank in range(3):
        assert not job.lacks(rank, f"done rank {rank} of 3 on ", "is in user code for", "its collective 1"), job


def test_a_program_that_handles_the_signal_itself_keeps_it() -> None:
    job = launch_script(
        2,
        """
import signal
def handle(number, frame):
    say("my signal", number)
signal.signal(signal.SIGUSR1, handle)
hvd.allreduce(tf.ones([2]))
hvd.shutdown(); hvd.init()
os.kill(os.getpid(), signal.SIGUSR1)
hvd.allreduce(tf.ones([2]))
""",
    )
    assert job.status == 0, job
    for rank in range(2):
        assert f"rank {rank}: my signal 10" in job.output, job
    assert "waiting" not in job.errors


def test_the_signal_does_no_harm_while_init_waits_and_after_shutdown() -> None:
    job = launch(
        2,
        sys.executable,
        "-c",
        IMPORTS
        + """
import signal, threading
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])
if rank == 1:
    time.sleep(4)
else:
    threading.Timer(2, os.kill, [os.getpid(), signal.SIGUSR1]).start()
hvd.init()
hvd.shutdown()
os.kill(os.getpid(), signal.SIGUSR1)
say("lives", hvd.status())
""",
    )
    assert job.status == 0, job
    assert "[horovod_tf] hvd.init() has not come to its end" in job.errors, job
    for rank in range(2):
        assert not job.lacks(rank, "lives Horovod has not been initialized"), job
