"""Jobs of some of the started processes, and what ends process sets."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from launching import IMPORTS, PATIENT, Job, launch, launch_script, launcher_is_open_mpi, needs_mpirun

pytestmark = needs_mpirun
needs_mpi4py = pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py")

# `rank` is the process's number among those that were started, as its launcher says it.
WORLD = """
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "-1")))
def say_job():
    gathered = hvd.allgather(tf.constant([rank])).numpy().tolist()
    say(hvd.rank(), "of", hvd.size(), hvd.local_rank(), "of", hvd.local_size(), gathered)
"""


def run(ranks: int, script: str, seconds: float = 90, **variables: str) -> Job:
    return launch(ranks, sys.executable, "-c", IMPORTS + WORLD + script, seconds=seconds, **variables)


SOME = """
try:
    hvd.init(comm=[2, 0])
    say_job()
    one = hvd.add_process_set([1])
    if one.included():
        say("alone", hvd.allreduce(tf.ones([1]), op=hvd.Sum, process_set=one).numpy())
    hvd.init()
    hvd.init([2, 0])
    try:
        hvd.init([0, 2])
    except ValueError as error:
        say(error)
    hvd.barrier()
except ValueError as error:
    say("ValueError", error)
"""


@pytest.mark.parametrize("variables", [{}, {"HOROVOD_TF_SHM_DISABLE": "1"}], ids=["shared memory", "MPI"])
def test_job_of_some_ranks_in_their_order(variables: dict[str, str]) -> None:
    job = run(3, SOME, 90, **variables)
    assert job.status == 0, job
    assert "rank 2: 0 of 2 0 of 2 [2, 0]" in job.of(2), job
    assert "rank 0: 1 of 2 1 of 2 [2, 0]" in job.of(0), job
    assert "alone [1.]" in job.of(0), job
    for rank in (0, 2):
        assert "has been called before, for other ranks" in job.of(rank), job
    assert "ValueError this process, rank 1 of the 3 that were started, is not among the ranks [2, 0]" in job.of(1), job


def test_ranks_outside_need_not_call_it() -> None:
    # MPI's own start needs all of them.
    script = "if rank == 1:\n    from mpi4py import MPI\nelse:\n    hvd.init(comm=[0, 2])\n    say_job()\n"
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("needs mpi4py")
    job = run(3, script)
    assert job.status == 0, job
    assert "0 of 2" in job.of(0), job
    assert "1 of 2" in job.of(2), job


def test_job_of_one_of_several() -> None:
    job = run(2, "try:\n    hvd.init([1])\n    say_job()\nexcept ValueError as error:\n    say(error)\n")
    assert job.status == 0, job
    assert "rank 1: 0 of 1 0 of 1 [1]" in job.of(1), job
    assert "is not among the ranks [1]" in job.of(0), job


@pytest.mark.parametrize(
    ("comm", "text"),
    [
        ("[0, 2]", "there is no rank 2: 2 processes were started"),
        ("[0, 1, 0]", "0 is twice"),
        ("[]", "empty list of ranks"),
        ("[0.5]", "is not a list of ranks"),
        ("object()", "neither a list of ranks nor a communicator of mpi4py"),
    ],
    ids=["unknown", "twice", "empty", "no rank", "nothing"],
)
def test_what_is_no_job(comm: str, text: str) -> None:
    script = f"""
try:
    hvd.init(comm={comm})
except ValueError as error:
    say(error)
hvd.init()
say_job()
"""
    job = run(2, script)
    assert job.status == 0, job
    for rank in range(2):
        assert text in job.of(rank), job
        assert f"{rank} of 2" in job.of(rank), job


@needs_mpi4py
@pytest.mark.parametrize("variables", [{}, {"HOROVOD_TF_SHM_DISABLE": "1"}], ids=["shared memory", "MPI"])
def test_jobs_of_communicators_one_after_the_other(variables: dict[str, str]) -> None:
    script = """
from mpi4py import MPI
world = MPI.COMM_WORLD
# The last first.
for comm in (world.Split(rank % 2, -rank), world, world.Split(rank // 2, rank), None, None):
    hvd.init(comm)
    say_job()
    hvd.barrier()
    one = hvd.add_process_set([0])
    hvd.barrier()
    hvd.shutdown()
    world.barrier()
"""
    job = run(4, script, 90, **variables)
    assert job.status == 0, job
    found = {rank: [line.split("[")[1] for line in job.of(rank).splitlines()] for rank in range(4)}
    for rank in range(4):
        odd = "3, 1]" if rank % 2 else "2, 0]"
        half = "2, 3]" if rank >= 2 else "0, 1]"
        assert found[rank] == [odd, "0, 1, 2, 3]", half, "0, 1, 2, 3]", "0, 1, 2, 3]"], job


@needs_mpi4py
def test_set_of_a_communicator() -> None:
    script = """
from mpi4py import MPI
hvd.init()
comm = MPI.COMM_WORLD.Split(rank % 2, -rank)
one = hvd.ProcessSet(comm)
sets = [hvd.add_process_set([0, 2]), hvd.add_process_set([1])]
say(one.ranks, sets[rank % 2].ranks == one.ranks)
"""
    job = run(3, script)
    assert job.status == 0, job
    assert "[0, 2] True" in job.of(2), job
    assert "[1] True" in job.of(1), job


def test_ranks_that_do_not_start_with_the_same_sets_all_hear_of_it() -> None:
    script = """
try:
    hvd.init(process_sets=[hvd.ProcessSet([0])] if rank == 0 else None)
except ValueError as error:
    say(error)
hvd.init()
say_job()
"""
    job = run(2, script)
    for rank in range(2):
        assert "do not agree on process_sets of hvd.init()" in job.of(rank), job
        assert "[[0]]" in job.of(rank), job
        assert f"{rank} of 2" in job.of(rank), job


DEAD = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
inside = hvd.add_process_set([0, 1])
outside = hvd.add_process_set([2])
hvd.barrier()
begin = time.monotonic()
try:
    while True:
        # Neither waits for the other set.
        hvd.allreduce(tf.ones([4]), process_set=outside if rank == 2 else inside)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == 2:
            hvd.allreduce(tf.ones([4]))
except Exception as error:
    say("%.1f" % (time.monotonic() - begin), type(error).__name__, error)
os._exit(3)
"""


def test_dead_member_ends_the_set_and_the_job() -> None:
    job = launch_script(3, DEAD, seconds=120, **PATIENT)
    assert job.status != 0
    if not launcher_is_open_mpi():
        return  # killed by the launcher before they could say a word
    for rank in (0, 2):
        text = job.of(rank)
        assert "rank 1 ended" in text, job
        assert float(text.split(": ", 1)[1].split()[0]) < 5.5, text


def test_end_of_one_rank_is_told_in_its_sets() -> None:
    script = """
both = hvd.add_process_set([0, 1])
hvd.barrier()
if rank == 1:
    raise RuntimeError("out of luck")
try:
    # A rank that has nothing to wait for would end before the other's error is known.
    hvd.allreduce(tf.ones([4]), process_set=both if rank == 0 else hvd.global_process_set)
except Exception as error:
    say(error)
"""
    job = launch_script(3, script, seconds=90, **PATIENT)
    assert job.status != 0
    if launcher_is_open_mpi():
        for waiting in (0, 2):
            assert "out of luck" in job.of(waiting), job


def test_signal_ends_a_wait_in_a_set() -> None:
    script = """
import signal, threading
both = hvd.add_process_set([0, 1])
if rank == 0:
    threading.Timer(1.0, os.kill, [os.getpid(), signal.SIGINT]).start()
    try:
        hvd.allreduce(tf.ones([4]), process_set=both)
    except BaseException as error:  # eager TensorFlow wraps it up
        say(repr(error))
hvd.barrier()
"""
    job = launch_script(3, script)
    assert job.status == 0, job
    assert "KeyboardInterrupt" in job.of(0), job


def test_stalled_set_is_warned_of_by_its_name() -> None:
    script = """
both = hvd.add_process_set([1, 2])
if rank == 2:
    time.sleep(3)
if rank > 0:
    say(hvd.allreduce(tf.ones([1]), op=hvd.Sum, process_set=both, name="slow").numpy())
hvd.barrier()
"""
    job = launch_script(3, script, HOROVOD_STALL_CHECK_TIME_SECONDS="1")
    assert job.status == 0, job
    assert "rank 1, process set 1 [1, 2], whose ranks are counted from 0 here] warning" in job.errors, job
    assert "[missing ranks: 1]" in job.errors, job
