"""The start of a job: that it ends in time whatever is wrong, and says in one line what that is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from launching import PROLOGUE, SAY, Job, cores, launch, launcher_is_open_mpi, launcher_version, needs_mpirun

pytestmark = needs_mpirun

# Without TensorFlow, whose import takes seconds that differ from rank to rank.
START = (
    SAY
    + """
import sys, time
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])
from horovod_tf.common import basics

def init():
    begin = time.monotonic()
    try:
        basics.init()
    except Exception as error:
        say("failed after %.1f s:" % (time.monotonic() - begin), type(error).__name__, error)
        sys.exit(3)
    say("started", basics.size())
"""
)


def start(ranks: int, script: str, seconds: float = 90, **variables: str) -> Job:
    return launch(ranks, sys.executable, "-c", START + script, seconds=seconds, **variables)


def waited(job: Job, rank: int) -> float:
    """How long this rank's init() took to fail."""
    return float(job.of(rank).split("failed after ")[1].split()[0])


LATE = """
if rank == 1:
    time.sleep(%s)
init()
"""


def test_rank_that_comes_too_late_is_named_in_time() -> None:
    job = start(2, LATE % 60, HOROVOD_TF_INIT_TIMEOUT_SECONDS="5")
    assert job.status != 0, job
    assert not job.lacks(0, "RuntimeError", "1 of 2 ranks arrived: missing rank 1", "rank 0", "MPI"), job
    assert not job.lacks(0, "waits in MPI_Init_thread", "HOROVOD_TF_INIT_TIMEOUT_SECONDS"), job
    assert 5 <= waited(job, 0) < 15, job
    # Nobody hangs: rank 0 ends although a thread of it is in MPI, and then the launcher ends rank 1.
    assert job.seconds < 40, job


def test_rank_that_comes_late_but_in_time_is_waited_for() -> None:
    job = start(2, LATE % 4, HOROVOD_TF_INIT_TIMEOUT_SECONDS="60")
    assert job.status == 0, job
    for rank in range(2):
        assert not job.lacks(rank, "started 2"), job


def test_rank_that_ends_before_init_is_named() -> None:
    """Without an error and before the others begin, so that the launcher lets them go on."""
    script = """
if rank == 1:
    say(os.getpid())
    sys.exit(0)
said = open(os.environ["JOB_SAYS"])
words = []
while not words or os.path.exists("/proc/" + words[2]):  # until the launcher has heard of it
    time.sleep(0.05)
    words = words or said.readline().split()
init()
"""
    job = start(3, script, HOROVOD_TF_INIT_TIMEOUT_SECONDS="5")
    assert job.status != 0, job
    # The launcher may end one of them when it hears of the other.
    told = [rank for rank in (0, 2) if job.of(rank)]
    assert told, job
    for rank in told:
        assert not job.lacks(rank, "2 of 3 ranks arrived: missing rank 1"), job
    assert job.seconds < 40, job


def test_rank_that_ends_during_init_is_named() -> None:
    """While it waits for another one, which never comes."""
    script = """
import threading
if rank == 2:
    time.sleep(60)
if rank == 1:
    threading.Timer(2, os._exit, [0]).start()
init()
"""
    job = start(3, script, HOROVOD_TF_INIT_TIMEOUT_SECONDS="6")
    # The launcher may have ended the others by itself when that rank ended; the status of MPICH's is 0 then, at times.
    assert job.status != 0 or not (job.of(0) or launcher_is_open_mpi()), job
    if job.of(0):
        assert not job.lacks(0, "missing rank 2", "Arrived, and ended or gave up since: rank 1"), job
    assert job.seconds < 40, job


def test_second_init_that_a_rank_does_not_come_to_ends_in_time_too() -> None:
    """MPI runs by then: other calls of it wait."""
    script = """
init()
basics.shutdown()
if rank == 1:
    time.sleep(60)
init()
"""
    job = start(2, script, HOROVOD_TF_INIT_TIMEOUT_SECONDS="5")
    assert job.status != 0, job
    assert not job.lacks(0, "started 2", "missing rank 1", "waits in MPI_Comm_idup"), job
    assert 5 <= waited(job, 0) < 15, job
    assert job.seconds < 40, job


def test_init_after_one_that_is_stuck_says_so_at_once() -> None:
    script = """
if rank == 1:
    time.sleep(60)
for _ in range(2):
    begin = time.monotonic()
    try:
        basics.init()
    except Exception as error:
        say("%.1f" % (time.monotonic() - begin), error)
sys.exit(3)
"""
    job = start(2, script, HOROVOD_TF_INIT_TIMEOUT_SECONDS="4")
    assert not job.lacks(0, "missing rank 1", "an earlier hvd.init() of this process is still in MPI_Init_thread"), job
    assert float(job.of(0).splitlines()[-1].split()[2]) < 3, job


@pytest.mark.skipif(not launcher_is_open_mpi(), reason="the variable is Open MPI's")
def test_launchers_variable_without_its_launcher_is_an_error_of_ours() -> None:
    """And not an abort by MPI, nor two worlds of one."""
    script = 'import os\nos.environ["OMPI_COMM_WORLD_RANK"] = "0"\n' + START + "init()\n"
    job = Job([sys.executable, "-c", script], [], 60, {"OMPI_COMM_WORLD_SIZE": "2"})
    assert job.status == 3, job
    assert not job.lacks(0, "OMPI_COMM_WORLD_SIZE says that this is one of 2 processes", "PMIX_NAMESPACE"), job


# Rank 1 says that it has another version than it has.
OTHER_VERSION = """
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
if rank == 1:
    agree_on = basics.agree_on
    basics.agree_on = lambda name, value: agree_on(name, "9.9.9")
import tensorflow as tf
import horovod_tf.tensorflow as hvd
say(tf.__version__)
init()
"""


def test_another_version_of_tensorflow_on_one_rank_is_an_error_with_both() -> None:
    job = start(2, OTHER_VERSION)
    assert job.status != 0, job
    version = job.of(0).splitlines()[0].split(": ")[1]
    assert not job.lacks(0, "ValueError", "TensorFlow's version", f"'{version}'", "'9.9.9'", "rank 1"), job


def test_more_ranks_than_processors_get_one_warning() -> None:
    ranks = cores() + 1
    job = start(ranks, "init()\n")
    assert job.status == 0, job
    assert job.errors.count(f"the {ranks} ranks of host ") == 1, job
    assert job.errors.count("warning") == 1, job


def test_as_many_ranks_as_processors_get_none() -> None:
    job = start(cores(), "init()\n")
    assert job.status == 0, job
    assert "warning" not in job.errors, job


@pytest.mark.skipif(cores() < 2, reason="needs two processors")
def test_ranks_on_one_processor_are_told_how_to_leave_it() -> None:
    bind = f"os.sched_setaffinity(0, [{min(os.sched_getaffinity(0))}])\n"
    job = start(2, bind + "init()\n")
    assert job.status == 0, job
    assert job.errors.count("ranks of host ") == 1, job
    assert "share 1 processor, to which they are bound" in job.errors, job
    assert "--bind-to none" in job.errors, job


@pytest.mark.skipif(cores() < 2, reason="needs two processors")
def test_lone_rank_that_its_launcher_binds_to_one_core_is_told_how_to_leave_it() -> None:
    bind = f"os.sched_setaffinity(0, [{min(os.sched_getaffinity(0))}])\n"
    job = start(1, bind + "init()\n")
    assert job.status == 0, job
    assert "rank 0 is bound to 1 processor of the " in job.errors, job
    assert "--bind-to none" in job.errors, job


# A filter of system calls as containers have: process_vm_readv and process_vm_writev say EPERM. x86-64 only.
FORBID = """
import ctypes, os, struct, sys
READ, WRITE, ALLOW, REFUSE = 310, 311, 0x7fff0000, 0x00050000 | 1
code = [(0x20, 0, 0, 0), (0x15, 1, 0, READ), (0x15, 0, 1, WRITE), (0x06, 0, 0, REFUSE), (0x06, 0, 0, ALLOW)]
program = b"".join(struct.pack("HBBI", *each) for each in code)
kept = ctypes.create_string_buffer(program, len(program))
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, os.strerror(ctypes.get_errno())
by = Filter(len(code), ctypes.addressof(kept))
assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(by), 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
"""
LARGE = """
ones = tf.ones([1 << 18]) * (rank + 1.0)
for i in range(100):
    total = hvd.allreduce(ones, average=False).numpy()
    assert total[0] == total[-1] == 3.0 and (total == 3.0).all(), total
say("right")
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the filter knows the numbers of x86-64")
def test_large_tensors_by_mpi_where_a_container_forbids_reading_processes(tmp_path: Path) -> None:
    wrapper = tmp_path / "forbid.py"
    wrapper.write_text(FORBID)
    command = [sys.executable, str(wrapper), sys.executable, "-c", PROLOGUE + LARGE]
    job = launch(2, *command, HOROVOD_TF_SHM_DISABLE="1", HOROVOD_LOG_LEVEL="info")
    assert job.status == 0, job
    for rank in range(2):
        assert not job.lacks(rank, "right"), job
    assert "Read -1" not in job.errors, job
    assert "tensors travel by MPI" in job.errors, job
    finds_out_by_itself = "(Open MPI) 5" in launcher_version()
    assert ("forbids process_vm_readv" in job.errors) != finds_out_by_itself, job
