"""Judging jobs in which something goes wrong. A test fails with a `FaultError`, which says in three words how."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from launching import MODULE, OURS, PROLOGUE, Job, launcher

LIMIT: Final = 150  # seconds that a job may take, on a machine that is busy; more is a hang
EXPIRED: Final = 124  # of tools/with_deadline
# Seconds in which a job ends after its fault: the target is 5, the rest is for a machine that is busy. Ranks that
# sleep do so for 60.
PROMPT: Final = 20
CRASHES: Final = re.compile(r"Segmentation fault|signal 11|signal 6|\(core dumped\)|Aborted \(signal|SIGSEGV|SIGABRT")
# A rank that waits for the others in a loop of steps, and says what it is told.
WAITS: Final = """
def wait_for_the_others(step):
    try:
        while True:
            step()
    except Exception as error:
        say("told", type(error).__name__, error)
        raise
"""
ours_only = pytest.mark.skipif(MODULE != OURS, reason="of this library alone")


def not_yet(reason: str) -> pytest.MarkDecorator:
    """A test that our library does not pass yet, and why."""
    return pytest.mark.xfail(MODULE == OURS, reason=reason, strict=True)


class FaultError(AssertionError):
    """What is wrong, in a few words, and the whole job."""

    def __init__(self, what: str, job: Job) -> None:
        super().__init__(f"{what}: {job!r}")


def has_ended(job: Job) -> None:
    """By itself: neither hung nor crashed."""
    if job.status == EXPIRED:
        raise FaultError("hang", job)
    if job.status in {128 + 4, 128 + 6, 128 + 7, 128 + 8, 128 + 11} or CRASHES.search(job.errors):
        raise FaultError("crash", job)


def succeeds(job: Job) -> None:
    has_ended(job)
    if job.status != 0:
        raise FaultError(f"exit {job.status}", job)


def fails(job: Job) -> None:
    has_ended(job)
    if job.status == 0:
        raise FaultError("exit 0", job)


def says(job: Job, rank: int, *parts: str) -> None:
    """This rank has said all of these."""
    if not job.of(rank):
        raise FaultError("says nothing", job)
    if job.lacks(rank, *parts):
        raise FaultError(f"wrong text, without {job.lacks(rank, *parts)}", job)


def gives(job: Job, rank: int, *values: str) -> None:
    """This rank has got these values."""
    if job.lacks(rank, *values):
        raise FaultError(f"wrong value, not {job.lacks(rank, *values)}", job)


def told(job: Job, rank: int, *parts: str) -> None:
    """This rank has got an error, and its text has all of these."""
    lines = "\n".join(line for line in job.of(rank).splitlines() if " told " in line)
    if not lines:
        raise FaultError("no error told", job)
    lacking = [part for part in parts if part not in lines]
    if lacking:
        raise FaultError(f"wrong text, without {lacking}", job)


def seconds_said(job: Job, rank: int, word: str) -> float:
    """The number of seconds that this rank has said after this word."""
    found = re.search(rf"^rank {rank}: .*\b{word} (\d+\.?\d*)", job.output, re.MULTILINE)
    if found is None:
        raise FaultError(f"no {word}", job)
    return float(found.group(1))


def at_most(job: Job, seconds: float, limit: float, word: str = "late") -> None:
    if seconds > limit:
        raise FaultError(f"{word}, {seconds:.1f} s", job)


def survivors(token: str) -> list[str]:
    """Processes that still have this in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if token.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text().replace("\0", " ")[:100])
        except OSError:
            continue
    return found


class FaultyJob(Job):
    """A job whose script says "fault at", with the time, before something goes wrong."""

    ended: float
    left: list[str]

    @property
    def after_fault(self) -> float:
        """Seconds from the fault to the end of all its processes."""
        found = re.search(r": fault at (\d+\.\d+)", self.output)
        if found is None:
            raise FaultError("no fault", self)
        return self.ended - float(found.group(1))


def launch_fault(ranks: int, script: str, prologue: str = PROLOGUE, **variables: str) -> FaultyJob:
    token = f"faults-{uuid.uuid4()}"
    variables = {**variables, "FAULTS_JOB": token}
    job = FaultyJob([sys.executable, "-c", prologue + script], launcher(ranks), LIMIT, variables)
    job.ended = time.time()
    job.left = survivors(token)
    return job


def ends_promptly(job: FaultyJob) -> None:
    """With an error, soon after its fault, and with no process left."""
    fails(job)
    at_most(job, job.after_fault, PROMPT)
    if job.left:
        raise FaultError(f"survivors {job.left}", job)


def once(launch: Callable[..., FaultyJob]) -> Callable[..., FaultyJob]:
    """Jobs that several tests look at run once."""
    return functools.lru_cache(maxsize=None)(launch)


def keras_module() -> str:
    return "horovod_tf.keras" if MODULE == OURS else "horovod.tensorflow.keras"


def has_module(name: str) -> bool:
    """Of the interpreter that runs jobs and tests."""
    return importlib.util.find_spec(name) is not None


needs_mpi4py = pytest.mark.skipif(not has_module("mpi4py"), reason="needs mpi4py")
# For scripts that speak before init().
RANK_OF_LAUNCHER: Final = "rank = int(os.environ.get('OMPI_COMM_WORLD_RANK', os.environ.get('PMI_RANK', '0')))\n"
