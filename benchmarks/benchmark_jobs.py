"""Jobs that benchmarks/table.py runs: each to its end or to its limit, its lines of JSON kept and its failure known."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS = ROOT / "benchmarks"
WITH_DEADLINE = ROOT / "tools/with_deadline"
# After its limit a job is given stacks and an orderly end, which take time too.
END_SECONDS = 90
TAIL_LINES = 12


class Side(NamedTuple):
    """Whose collectives, and what runs them."""

    name: str
    python: str
    module: str
    mpirun: str
    flags: tuple[str, ...]
    path: str  # for PYTHONPATH; empty: as it is


class Job(NamedTuple):
    """A command that prints lines of JSON."""

    name: str  # the benchmark's, which its lines are kept under
    side: str
    round: int
    command: tuple[str, ...]
    limit: float  # seconds
    path: str = ""

    @property
    def title(self) -> str:
        """For people and file names."""
        return f"{self.name}-{self.side}-{self.round}"


class Outcome(NamedTuple):
    """What became of a job."""

    job: Job
    status: int
    lines: list[dict[str, Any]]
    tail: str  # of what it said on stderr

    @property
    def failed(self) -> bool:
        """Also when it succeeded and measured nothing."""
        return self.status != 0 or not self.lines


def launcher_flags(mpirun: str) -> tuple[str, ...]:
    """Open MPI wants to be told to start more ranks than there are cores; its binding would put ranks on one core."""
    try:
        answer = subprocess.run([mpirun, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return ("--oversubscribe", "--bind-to", "none") if "Open MPI" in answer or "OpenRTE" in answer else ()


def under_mpirun(side: Side, ranks: int, script: str, *arguments: str) -> tuple[str, ...]:
    """The command of a script of this folder on so many ranks."""
    launcher = (side.mpirun, "-np", str(ranks), *side.flags)
    return (*launcher, side.python, str(BENCHMARKS / script), *arguments)


def parse_lines(text: str) -> list[dict[str, Any]]:
    """The lines that are JSON objects; a job that was ended may have left half of one."""
    found = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


def tag(lines: Sequence[dict[str, Any]], job: Job) -> list[dict[str, Any]]:
    """The lines with the job that they are of. What a job measures of MPI itself is nobody's side."""
    return [
        {**line, "job": job.name, "side": "mpi" if line.get("module") == "mpi" else job.side, "round": job.round}
        for line in lines
    ]


class Runner:
    """Runs jobs one after the other until the time for all is over."""

    def __init__(self, folder: Path, limit: float) -> None:
        """Keeps what the jobs print in `folder`/logs; `limit` is in seconds."""
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.until = time.monotonic() + limit

    def run(self, job: Job) -> Outcome:
        """Runs a job. One that cannot begin any more, or takes too long, has failed."""
        left = self.until - time.monotonic()
        if left <= 0:
            return Outcome(job, 124, [], "not started: the time for all jobs is over (--limit)")
        output, errors = (self.logs / f"{job.title}.{kind}" for kind in ("out", "err"))
        status = self._wait(job, min(job.limit, left), output, errors)
        lines = tag(parse_lines(output.read_text(errors="replace")), job)
        tail = errors.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return Outcome(job, status, lines, "\n".join(tail) or "it said nothing on stderr")

    def _wait(self, job: Job, limit: float, output: Path, errors: Path) -> int:
        """The exit status. Into files: a process that outlives its job would keep a pipe open, and us waiting."""
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if job.path:
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, [job.path, os.environ.get("PYTHONPATH")]))
        command = [str(WITH_DEADLINE), f"{limit:.1f}", *job.command]
        with output.open("wb") as out, errors.open("wb") as err:
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
            try:
                return process.wait(limit + END_SECONDS)
            except subprocess.TimeoutExpired:
                process.terminate()  # which it hands on to the job
                try:
                    return process.wait(10) or 124
                except subprocess.TimeoutExpired:
                    process.kill()
                    return process.wait() or 124


def write_lines(folder: Path, outcomes: Sequence[Outcome]) -> None:
    """All lines into a file for each benchmark."""
    files: dict[str, list[dict[str, Any]]] = {}
    for outcome in outcomes:
        files.setdefault(outcome.job.name, []).extend(outcome.lines)
    for name, lines in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
