"""Jobs of several ranks that a test starts by itself, each under a hard limit that prints stacks."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import pytest

from support import ROOT, clean_environment

MPIRUN: Final = Path(sys.executable).with_name("mpirun")
needs_mpirun = pytest.mark.skipif(not MPIRUN.exists(), reason="needs mpirun beside the interpreter")

OURS: Final = "horovod_tf.tensorflow"
# What the scripts of jobs call hvd: ours, or another module with the same names, to compare with.
MODULE: Final = os.environ.get("MODULE_UNDER_TEST", OURS)
# What a rank says goes to the job's file, in one write: in a launcher's output its line may meet another rank's.
SAY: Final = """
import os

def say(*what):
    line = "rank %d: %s\\n" % (rank, " ".join(str(one).replace("\\n", " ") for one in what))
    file = os.open(os.environ["JOB_SAYS"], os.O_WRONLY | os.O_APPEND)
    os.write(file, line.encode())
    os.close(file)
"""
IMPORTS: Final = (
    SAY
    + f"""
import sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.modules["sklearn"] = None  # or Keras imports it too, half a second of each rank
import numpy as np
import tensorflow as tf
import {MODULE} as hvd
v1 = tf.compat.v1
"""
)
PROLOGUE: Final = (
    IMPORTS
    + """
hvd.init()
rank, size = hvd.rank(), hvd.size()
"""
)
GRAPH_MODE: Final = "v1.disable_eager_execution()\n"


def launcher_version() -> str:
    """What MPIRUN says of itself."""
    return subprocess.run([str(MPIRUN), "--version"], capture_output=True, text=True, check=False).stdout


def launcher_is_open_mpi() -> bool:
    """Which family MPIRUN belongs to."""
    version = launcher_version()
    return "Open MPI" in version or "OpenRTE" in version


class Job:
    """A command on several ranks, run to its end: what each rank said, and how long it took.

    `say` of SAY marks each line with its rank. `output` has what they printed, then what they said.
    """

    def __init__(self, command: list[str], launcher: list[str], seconds: float, variables: dict[str, str]) -> None:
        """Runs it; `launcher` is empty for a job without one."""
        environment = clean_environment(PYTHONPATH=str(ROOT), **variables)
        environment["OMPI_ALLOW_RUN_AS_ROOT"] = environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
        begin = time.monotonic()
        with tempfile.NamedTemporaryFile("r", prefix="job-says-") as said:
            done = subprocess.run(
                [str(ROOT / "tools/with_deadline"), str(seconds), *launcher, *command],
                cwd=ROOT,
                env={**environment, "JOB_SAYS": said.name},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            self.seconds = time.monotonic() - begin
            self.output = done.stdout + said.read()
        self.status = done.returncode
        self.errors = done.stderr

    def of(self, rank: int) -> str:
        """What this rank said."""
        return "\n".join(line for line in self.output.splitlines() if line.startswith(f"rank {rank}: "))

    def lacks(self, rank: int, *parts: str) -> list[str]:
        """What this rank has not said of these."""
        said = self.of(rank)
        return [part for part in parts if part not in said]

    def __repr__(self) -> str:
        return f"status {self.status} after {self.seconds:.1f} s\n{self.output[-8000:]}\n{self.errors[-8000:]}"


# When a rank has died its launcher ends the others too. Those that do not heed SIGTERM have time for a last word: from
# Open MPI 4 if it is asked for, from Open MPI 5 by itself, and from MPICH none.
PATIENT: Final = {"OMPI_MCA_odls_base_sigkill_timeout": "4"}


def launcher(ranks: int) -> list[str]:
    """What starts so many ranks, however many cores there are."""
    ours = ["--oversubscribe", "--bind-to", "none"] if launcher_is_open_mpi() else []
    return [str(MPIRUN), "-np", str(ranks), *ours]


def launch(ranks: int, *command: str, seconds: float = 90, **variables: str) -> Job:
    """`command` on so many ranks of this host, however many cores it has, with `variables` in their environment."""
    return Job(list(command), launcher(ranks), seconds, variables)


def launch_script(ranks: int, script: str, seconds: float = 90, **variables: str) -> Job:
    """PROLOGUE and `script` on so many ranks."""
    return launch(ranks, sys.executable, "-c", PROLOGUE + script, seconds=seconds, **variables)


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))
