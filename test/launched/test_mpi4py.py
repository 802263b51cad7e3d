"""mpi4py beside the library, in every order of the two, and at the same time."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from launching import GRAPH_MODE, IMPORTS, SAY, Job, launch, needs_mpirun

pytestmark = [
    needs_mpirun,
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py"),
]

ORDERS = {
    "after init, without its own start": (
        "import mpi4py\nmpi4py.rc.initialize = False\nhvd.init()\nfrom mpi4py import MPI\n"
    ),
    "after init": "hvd.init()\nfrom mpi4py import MPI\n",
    "before init": "from mpi4py import MPI\nhvd.init()\n",
    "before init, without its own start": (
        "import mpi4py\nmpi4py.rc.initialize = False\nfrom mpi4py import MPI\nhvd.init()\n"
    ),
}
START = IMPORTS + GRAPH_MODE + "import threading\n"
SAME = """
world = MPI.COMM_WORLD
assert (world.rank, world.size) == (hvd.rank(), hvd.size())
names = world.allgather({"rank": hvd.rank()})
with v1.Session() as session:
    total = session.run(hvd.allreduce(tf.ones([2]), average=False))
rank = hvd.rank()
say([each["rank"] for each in names], total)
"""


def run(ranks: int, program: str) -> Job:
    return launch(ranks, sys.executable, "-c", START + program)


@pytest.mark.parametrize("order", ORDERS)
def test_ranks_and_sizes_are_equal_and_both_end_well(order: str) -> None:
    job = run(2, ORDERS[order] + SAME)
    assert job.status == 0, job
    for rank in range(2):
        assert job.of(rank) == f"rank {rank}: [0, 1] [2. 2.]", job
    for word in ("MPI_Finalize", "MPI_ABORT", "Traceback", "horovod_tf"):
        assert word not in job.errors, job


def test_objects_are_gathered_by_the_main_thread_while_another_trains() -> None:
    job = run(
        2,
        ORDERS["after init"]
        + """
assert hvd.mpi_threads_supported()
weight = v1.get_variable("w", initializer=[0.0] * 100)
train = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0)).minimize(
    tf.reduce_sum(weight) * (hvd.rank() + 1.0))
steps = 0
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    def work():
        global steps
        for _ in range(200):
            session.run(train)
            steps += 1
    thread = threading.Thread(target=work)
    thread.start()
    gathered = 0
    while True:
        # All ranks leave the loop together.
        every = MPI.COMM_WORLD.allgather({"rank": hvd.rank(), "steps": steps, "alive": thread.is_alive()})
        assert [each["rank"] for each in every] == [0, 1]
        gathered += 1
        if not any(each["alive"] for each in every):
            break
    thread.join()
    final = session.run(weight)[0]
rank = hvd.rank()
say(steps, "steps", final, gathered > 2)
""",
    )
    assert job.status == 0, job
    for rank in range(2):
        assert job.of(rank) == f"rank {rank}: 200 steps -300.0 True", job


def thread_level(level: str) -> str:
    return f"import mpi4py\nmpi4py.rc.thread_level = {level!r}\n" + "from mpi4py import MPI\n"


WITHOUT_TENSORFLOW = (
    SAY
    + """
import sys
from horovod_tf.common import basics as hvd
rank = MPI.COMM_WORLD.Get_rank()
"""
)


def test_serialized_is_enough() -> None:
    """If the program leaves MPI alone while collectives run."""
    script = """
hvd.init()
threads = hvd.mpi_threads_supported()
hvd.shutdown()
assert MPI.COMM_WORLD.allreduce(rank) == 1
say("threads", threads)
"""
    job = launch(2, sys.executable, "-c", thread_level("serialized") + WITHOUT_TENSORFLOW + script)
    assert job.status == 0, job
    for rank in range(2):
        assert not job.lacks(rank, "threads False"), job


def test_less_than_serialized_is_an_error_that_says_what_to_do() -> None:
    script = """
try:
    hvd.init()
except Exception as error:
    say(type(error).__name__, error)
"""
    job = launch(2, sys.executable, "-c", thread_level("single") + WITHOUT_TENSORFLOW + script)
    for rank in range(2):
        assert not job.lacks(rank, "MPI_THREAD_SINGLE", "MPI_THREAD_SERIALIZED", "mpi4py"), job


BEFORE_TENSORFLOW = "from mpi4py import MPI\n" + START + "hvd.init()\n" + SAME


def test_mpi4py_before_tensorflow_ends_as_it_does_without_us() -> None:
    """Open MPI 4.1 finalizes with the hwloc inside TensorFlow 2.21 instead of its own and crashes, with us or not."""
    job = launch(2, sys.executable, "-c", BEFORE_TENSORFLOW)
    for rank in range(2):
        assert not job.lacks(rank, "[2. 2.]"), job
    if job.status != 0:
        without_us = launch(2, sys.executable, "-c", "from mpi4py import MPI\nimport tensorflow")
        assert without_us.status == job.status, (job, without_us)
