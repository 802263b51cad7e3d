"""T17, T20, T22, T23, T24: how a job is started, what else uses MPI, and in which order things are imported."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from fault_jobs import (
    LIMIT,
    RANK_OF_LAUNCHER,
    FaultError,
    FaultyJob,
    fails,
    gives,
    has_ended,
    launch_fault,
    needs_mpi4py,
    ours_only,
    succeeds,
    told,
)
from horovod_tf._version import __version__
from launching import IMPORTS, MODULE, PROLOGUE, launch, launch_script, needs_mpirun
from support import ROOT

pytestmark = needs_mpirun

TELLS = """
try:
    hvd.init()
except Exception as error:
    rank = {rank}
    say("told", error)
    raise
rank = hvd.rank()
say("size", hvd.size())
"""


def alone(**variables: str) -> FaultyJob:
    """One process without a launcher, with these variables in its environment."""
    return FaultyJob([sys.executable, "-c", IMPORTS + TELLS.format(rank=0)], [], LIMIT, variables)


@pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
def test_t17_process_that_is_said_to_be_one_of_two_and_is_alone_is_an_error(variable: str) -> None:
    job = alone(**{variable: "2"})
    fails(job)
    told(job, 0, variable, "2")


def test_t17_plain_python_is_a_job_of_one_with_one_notice() -> None:
    job = alone()
    succeeds(job)
    gives(job, 0, "size 1")
    notices = [line for line in job.errors.splitlines() if "one process" in line or "size 1" in line]
    if len(notices) != 1:
        raise FaultError(f"{len(notices)} notices", job)


def other_version(folder: Path) -> Path:
    """A copy of the package that says it is of version 99999."""
    copy = folder / "horovod_tf"
    shutil.copytree(ROOT / "horovod_tf", copy, ignore=shutil.ignore_patterns("*.cc", "*.h", "__pycache__"))
    for path, end in ((copy / "_version.py", b'"'), (copy / "common/libhorovod_common.so", b"\0")):
        content = path.read_bytes()
        assert __version__.encode() + end in content
        path.write_bytes(content.replace(__version__.encode() + end, b"9" * len(__version__) + end))
    return folder


@ours_only
def test_t17_ranks_of_two_versions_are_an_error_that_names_both(tmp_path: Path) -> None:
    prologue = (
        "import os, sys\n"
        + RANK_OF_LAUNCHER
        + f"if rank == 1:\n    sys.path.insert(0, {str(other_version(tmp_path))!r})\n"
    )
    job = launch_fault(2, IMPORTS + TELLS.format(rank="rank"), prologue=prologue)
    fails(job)
    for rank in range(2):
        told(job, rank, "do not agree", "99999", __version__, "rank 1")


ORDERS = {
    "tensorflow_first": "import tensorflow\n" + PROLOGUE,
    "library_first": f"import {MODULE} as hvd\n" + PROLOGUE,
    "init_in_a_thread": (
        f"import threading\nimport {MODULE} as hvd\nthread = threading.Thread(target=hvd.init)\n"
        "thread.start()\nthread.join()\n" + PROLOGUE
    ),
}
WITH_MPI4PY = {
    "mpi4py_first": "from mpi4py import MPI\n" + PROLOGUE,
    "mpi4py_between": "import tensorflow\nfrom mpi4py import MPI\n" + PROLOGUE,
}
WORKS = "say(hvd.allreduce(tf.ones([3]), average=False).numpy())\n"


@pytest.mark.parametrize("order", ORDERS)
def test_t20_order_of_imports(order: str) -> None:
    job = launch_fault(2, WORKS, prologue=ORDERS[order])
    succeeds(job)
    for rank in range(2):
        gives(job, rank, "[2. 2. 2.]")


@needs_mpi4py
@pytest.mark.parametrize("order", WITH_MPI4PY)
def test_t20_order_of_imports_with_mpi4py(order: str) -> None:
    job = launch_fault(2, WORKS, prologue=WITH_MPI4PY[order])
    if job.status != 0 and launch(2, sys.executable, "-c", "from mpi4py import MPI\nimport tensorflow").status != 0:
        for rank in range(2):
            gives(job, rank, "[2. 2. 2.]")
        pytest.xfail("this MPI ends in a crash after TensorFlow has been loaded, without any library too")
    succeeds(job)
    for rank in range(2):
        gives(job, rank, "[2. 2. 2.]")


# As in a container without permission for ptrace, even where we are root.
WITHOUT_PTRACE = """
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
header = struct.pack("Ii", 0x20080522, 0)
data = ctypes.create_string_buffer(24)
assert libc.capget(header, data) == 0
words = list(struct.unpack("6I", data.raw))
words[0] &= ~(1 << 19)
words[1] &= ~(1 << 19)
assert libc.capset(header, struct.pack("6I", *words)) == 0
assert libc.prctl(4, 0) == 0  # PR_SET_DUMPABLE
"""


@pytest.mark.parametrize("path", ["chosen", "by_mpi"])
def test_t22_container_without_ptrace_has_right_results_and_no_noise(path: str) -> None:
    job = launch_fault(
        2,
        """
data = tf.ones([1 << 18]) * (rank + 1.0)
for i in range(100):
    total = hvd.allreduce(data, average=False)
say(float(tf.reduce_min(total)), float(tf.reduce_max(total)))
""",
        prologue=WITHOUT_PTRACE + PROLOGUE,
        **({"HOROVOD_TF_SHM_DISABLE": "1"} if path == "by_mpi" else {}),
    )
    succeeds(job)
    for rank in range(2):
        gives(job, rank, "3.0 3.0")
    if "Read -1" in job.errors:
        raise FaultError(f"{job.errors.count('Read -1')} lines of noise", job)


@pytest.mark.skipif(os.getuid() != 0, reason="is about root")
def test_t23_more_ranks_than_cores_as_root() -> None:
    job = launch_script(4, WORKS, seconds=LIMIT)
    succeeds(job)
    for rank in range(4):
        gives(job, rank, "[4. 4. 4.]")


def mpi4py_at(level: str) -> str:
    return f"import mpi4py\nmpi4py.rc.thread_level = {level!r}\nfrom mpi4py import MPI\n"


@needs_mpi4py
def test_t24_mpi_for_one_thread_is_an_error_that_says_so() -> None:
    job = launch_fault(2, TELLS.format(rank="MPI.COMM_WORLD.rank"), prologue=IMPORTS + mpi4py_at("single"))
    fails(job)
    for rank in range(2):
        told(job, rank, "MPI_THREAD_SINGLE", "MPI_THREAD_SERIALIZED")


@needs_mpi4py
@pytest.mark.parametrize("level", ["serialized", "multiple"])
def test_t24_mpi_of_mpi4py_is_alive_after_shutdown(level: str) -> None:
    job = launch_fault(
        2,
        "hvd.init()\nrank = hvd.rank()\n"
        + WORKS
        + "hvd.shutdown()\nsay('then', MPI.Is_finalized(), MPI.COMM_WORLD.allreduce(rank + 1))\n",
        prologue=IMPORTS + mpi4py_at(level),
    )
    succeeds(job)
    for rank in range(2):
        gives(job, rank, "[2. 2. 2.]", "then False 3")


@needs_mpi4py
def test_t24_mpi_that_has_been_finalised_is_an_error_that_says_so() -> None:
    job = launch_fault(
        2,
        TELLS.format(rank="world_rank"),
        prologue=IMPORTS + "from mpi4py import MPI\nworld_rank = MPI.COMM_WORLD.rank\nMPI.Finalize()\n",
    )
    has_ended(job)
    for rank in range(2):
        told(job, rank, "finali")
