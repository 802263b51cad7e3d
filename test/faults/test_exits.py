"""T11, T12, T14, T15: ranks whose program ends, badly or well, while others wait for them or are in the user's code."""

from __future__ import annotations

import pytest

from fault_jobs import (
    PROMPT,
    WAITS,
    FaultError,
    FaultyJob,
    at_most,
    ends_promptly,
    gives,
    has_ended,
    launch_fault,
    needs_mpi4py,
    not_yet,
    once,
    says,
    succeeds,
    told,
)
from launching import IMPORTS, PATIENT, needs_mpirun

pytestmark = needs_mpirun

# How rank 1's program ends; `fault()` says when.
ENDINGS = {
    "exception": "fault(); raise ValueError('boom-17')",
    "in_py_function": """
def bad():
    fault()
    raise ValueError('boom-17')
tf.py_function(bad, [], tf.float32)
""",
    "in_dataset": """
def elements():
    yield 1.0
    fault()
    raise ValueError('boom-17')
for element in tf.data.Dataset.from_generator(elements, output_signature=tf.TensorSpec((), tf.float32)):
    step()
""",
    "in_training_thread": """
import threading
def work():
    fault()
    raise ValueError('boom-17')
thread = threading.Thread(target=work)
thread.start()
thread.join()
""",
    "while_a_thread_waits": """
import threading
threading.Thread(target=step).start()
time.sleep(0.5)
fault()
raise ValueError('boom-17')
""",
    "keyboard_interrupt": "fault(); raise KeyboardInterrupt('boom-17')",
    "sys_exit_status": "fault(); sys.exit(3)",
    "sys_exit_text": "fault(); sys.exit('boom-17')",
    "raise_system_exit": "fault(); raise SystemExit('boom-17')",
    "raise_status": "fault(); raise SystemExit(3)",
    "os_exit": "fault(); os._exit(3)",
    "killed": "import signal; fault(); os.kill(os.getpid(), signal.SIGKILL)",
}
# What the others are told of it, besides the rank.
TEXTS = {
    "exception": ("ValueError", "boom-17"),
    "in_py_function": ("boom-17",),
    "in_dataset": ("boom-17",),
    "in_training_thread": ("boom-17",),
    "while_a_thread_waits": ("ValueError", "boom-17"),
    "keyboard_interrupt": ("KeyboardInterrupt", "boom-17"),
    "sys_exit_status": ("sys.exit(3)",),
    "sys_exit_text": ("boom-17",),
    # Python throws away what it was given before anybody is asked, and shows no traceback.
    "raise_system_exit": ("SystemExit",),
    "raise_status": ("SystemExit",),
    "os_exit": (),
    "killed": (),
}
# The launcher ends the others as soon as such a rank is gone, so they need time to look around.
WITHOUT_A_WORD = {"os_exit", "killed"}
HAVE_TIME = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
OTHERS = {
    "waiting": "wait_for_the_others(step)",
    "asleep": "time.sleep(60)",
    "in_session": """
with tf.Graph().as_default(), v1.Session() as session:
    total = hvd.allreduce(tf.ones([4]), average=False)
    wait_for_the_others(lambda: session.run(total))
""",
}


@once
def job_that_ends(ending: str, others: str) -> FaultyJob:
    """Three ranks, of which rank 1 ends so after a collective."""
    indented = "\n".join("    " + line for line in ENDINGS[ending].strip().splitlines())
    waiting = "\n".join("    " + line for line in OTHERS[others].strip().splitlines())
    last_word = ending in WITHOUT_A_WORD and others == "waiting"
    return launch_fault(
        3,
        WAITS
        + (HAVE_TIME if last_word else "")
        + "def step():\n    return hvd.allreduce(tf.ones([4]), average=False)\n"
        + "def fault():\n    say('fault at', time.time())\n"
        + f"step()\nif rank == 1:\n    time.sleep(1)\n{indented}\nelse:\n{waiting}\n",
        **(PATIENT if last_word else {}),
    )


# Python has thrown away what `raise SystemExit` had by the time that anybody is asked.
unseen = pytest.param(
    "raise_system_exit",
    marks=not_yet(
        "`raise SystemExit` leaves no trace in Python: MPI is finalised, which waits for ranks that are busy"
    ),
)


@pytest.mark.parametrize("ending", ["exception", "while_a_thread_waits", "sys_exit_status", unseen, "os_exit"])
def test_t11_job_ends_with_a_rank_while_others_sleep(ending: str) -> None:
    ends_promptly(job_that_ends(ending, "asleep"))


@pytest.mark.parametrize("ending", ENDINGS)
def test_t11_job_ends_with_a_rank_while_others_wait(ending: str) -> None:
    ends_promptly(job_that_ends(ending, "waiting"))


@pytest.mark.parametrize("ending", ENDINGS)
def test_t12_those_that_wait_are_told_which_rank_and_why(ending: str) -> None:
    job = job_that_ends(ending, "waiting")
    has_ended(job)
    for rank in (0, 2):
        # Of a class that TensorFlow hands on as it is, and that a monitored session does not begin again after.
        told(job, rank, "UnknownError", "rank 1", *TEXTS[ending])


def test_t12_those_in_a_session_are_told_too() -> None:
    job = job_that_ends("exception", "in_session")
    for rank in (0, 2):
        told(job, rank, "rank 1", "ValueError", "boom-17")


GOOD_ENDINGS = {
    "at_once": "",
    "sys_exit_0": "sys.exit(0)",
    "shutdown_twice": "hvd.shutdown()\nhvd.shutdown()",
    "shutdown_registered_with_atexit": "import atexit\natexit.register(hvd.shutdown)",
}
PENDING = {
    "asynchronous_function": """
tf.config.experimental.set_synchronous_execution(False)
result = tf.function(lambda: hvd.allreduce(tf.ones([1 << 20]), average=False))()
""",
    "thread": """
import threading
total = tf.function(lambda: hvd.allreduce(tf.ones([1 << 20]), average=False))
threading.Thread(target=total, daemon=True).start()
""",
    "open_session": """
graph = tf.Graph()
with graph.as_default():
    total = hvd.allreduce(tf.ones([1 << 20]), average=False)
session = v1.Session(graph=graph)
session.run(total)
""",
}
INIT_AGAIN = """
for i in range(3):
    hvd.init()
    rank = hvd.rank()
    say(i, hvd.allreduce(tf.ones([3]), average=False).numpy())
    hvd.shutdown()
"""


@pytest.mark.parametrize(
    ("ending", "pending"),
    [
        ("at_once", "asynchronous_function"),
        ("sys_exit_0", "asynchronous_function"),
        ("shutdown_twice", "asynchronous_function"),
        ("at_once", "thread"),
        ("shutdown_registered_with_atexit", "open_session"),
    ],
)
def test_t14_good_end_is_good_whatever_is_pending(ending: str, pending: str) -> None:
    job = launch_fault(2, PENDING[pending] + "say('fault at', time.time())\n" + GOOD_ENDINGS[ending])
    succeeds(job)
    at_most(job, job.after_fault, PROMPT)
    if job.left:
        raise FaultError("survivors", job)


def test_t14_end_before_the_others_is_no_error_of_theirs() -> None:
    """Rank 0 still evaluates when the others have ended."""
    job = launch_fault(
        3,
        """
hvd.allreduce(tf.ones([3]), average=False)
if rank == 0:
    time.sleep(5)
    say("evaluated")
""",
    )
    succeeds(job)
    says(job, 0, "evaluated")


@needs_mpi4py
def test_t15_init_again_after_shutdown_where_mpi_is_mpi4pys() -> None:
    job = launch_fault(2, INIT_AGAIN, prologue=IMPORTS + "from mpi4py import MPI\n")
    succeeds(job)
    for rank in range(2):
        gives(job, rank, "0 [2. 2. 2.]", "1 [2. 2. 2.]", "2 [2. 2. 2.]")


def test_t15_init_again_after_shutdown() -> None:
    job = launch_fault(2, INIT_AGAIN, prologue=IMPORTS)
    succeeds(job)
    for rank in range(2):
        gives(job, rank, "0 [2. 2. 2.]", "1 [2. 2. 2.]", "2 [2. 2. 2.]")
