"""What the Python tests share: where the tree is, and how to run something in a clean environment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Of a test's environment: what would start a job, or change how the library or the build behaves.
FOREIGN = ("HOROVOD_", "OMPI_", "PMI_", "PMIX_", "SLURM_", "MPI_", "MAKE", "MFLAGS", "VARIANT", "STRICT", "CPATH")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def clean_environment(**variables: str) -> dict[str, str]:
    """This process's environment without anything that belongs to a job or a build, plus `variables`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return {**kept, **variables}


def run_command(
    *command: str, cwd: Path = ROOT, timeout: float = 100, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end and captures what it says."""
    return subprocess.run(
        command,
        cwd=cwd,
        env=clean_environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
