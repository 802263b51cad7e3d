"""Ranks that do not come, stop, or hang: the others are told what each of them does, and are not left waiting."""

from __future__ import annotations

import re

import pytest

from launching import GRAPH_MODE, launch_script, needs_mpirun

pytestmark = needs_mpirun

# Reduces until it fails, and says what it was told, and after how long.
UNTIL_IT_FAILS = """
def reduce_until_it_fails(elements=4):
    begin = time.monotonic()
    total = hvd.allreduce(tf.Variable(tf.ones([elements])), average=False)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        try:
            while True:
                session.run(total.op)
                begin = time.monotonic()
        except Exception as error:
            say("after %.1f s:" % (time.monotonic() - begin), error)
"""
LIMIT = "3"


def told_after(text: str) -> float:
    """Seconds."""
    found = re.search(r"after (\d+\.\d) s: ", text)
    assert found, text
    return float(found[1])


def test_ranks_that_wait_learn_what_the_missing_one_does() -> None:
    job = launch_script(
        3,
        """
for step in range(5):
    if rank == 2 and step == 4:
        time.sleep(12)
    begin = time.monotonic()
    try:
        hvd.allreduce(tf.ones([2]) * step)
    except Exception as error:
        say("step", step + 1, "after %.1f s:" % (time.monotonic() - begin), error)
# Where one exits the launcher ends the others.
time.sleep(1 if rank == 2 else 20)
""",
        HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=LIMIT,
    )
    for rank in (0, 1):
        text = job.of(rank)
        assert f"rank {rank}: step 5 after" in text, job
        assert 2 <= told_after(text) < 8, job
        assert not job.lacks(
            rank,
            "[ready ranks: 0-1] [missing ranks: 2]",
            "The ranks have executed 4 collectives; this is number 5.",
            "Rank 2 is in user code for",
            "its collective 4.",
        ), job
    # Whoever comes too late is told the same.
    assert not job.lacks(2, "step 5", "Rank 2 is in user code for"), job


@pytest.mark.parametrize("elements", [4, 1 << 24], ids=["small", "large"])
@pytest.mark.parametrize("victim", [0, 2])
@pytest.mark.parametrize("shared_memory", [True, False], ids=["shm", "mpi"])
def test_a_stopped_process_ends_the_job_in_time(victim: int, elements: int, shared_memory: bool) -> None:
    job = launch_script(
        3,
        GRAPH_MODE
        + UNTIL_IT_FAILS
        + f"""
import signal, threading
if rank == {victim}:
    # Another process goes on when all threads of this one are stopped.
    if os.fork() == 0:
        time.sleep(1)
        os.kill(os.getppid(), signal.SIGSTOP)
        time.sleep(12)
        os.kill(os.getppid(), signal.SIGKILL)
        os._exit(0)
reduce_until_it_fails({elements})
os._exit(3)
""",
        HOROVOD_TF_SHM_DISABLE="0" if shared_memory else "1",
        HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=LIMIT,
    )
    assert job.status != 0
    for rank in {0, 1, 2} - {victim}:
        text = job.of(rank)
        assert 2 <= told_after(text) < 11, job
        assert re.search(rf"[Rr]ank {victim} has not answered for|still to come: rank {victim}|has not ended for", text)


def test_a_process_that_is_stopped_for_a_while_goes_on() -> None:
    job = launch_script(
        2,
        GRAPH_MODE
        + """
import signal
if rank == 1 and os.fork() == 0:
    for _ in range(2):
        time.sleep(0.7)
        os.kill(os.getppid(), signal.SIGSTOP)
        time.sleep(2)
        os.kill(os.getppid(), signal.SIGCONT)
    os._exit(0)
total = hvd.allreduce(v1.placeholder(tf.float32, [1 << 20], name="x"), average=False)
with v1.Session() as session:
    for step in range(1, 71):
        first = session.run(total[0], {"x:0": np.full([1 << 20], step, np.float32)})
        assert first == 2 * step, (first, step)
        time.sleep(0.05)
say("right")
""",
        HOROVOD_STALL_CHECK_TIME_SECONDS="1",
        HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="20",
    )
    assert job.status == 0, job
    for rank in range(2):
        assert job.of(rank) == f"rank {rank}: right", job
