"""Measures the targets P1 to P8 and prints a table of ratios. `make bench` calls it.

    python benchmarks/table.py [--quick] [--targets P1,P2] [--peer-python PATH [--peer-module M] [--peer-mpirun PATH]]

Starts the jobs of docs/performance.md, ours and the peer's in turn, takes the medians of the rounds, and divides. All
lines of JSON are in OUTPUT/*.jsonl, the table in OUTPUT/table.md, a picture in OUTPUT/collectives.png, and what jobs
said in OUTPUT/logs. The exit status is 1 if a job has failed or a result was wrong; a target that is not met is not a
failure. Needs the standard library only; the interpreters that it starts need TensorFlow, mpi4py and the module.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmark_jobs import BENCHMARKS, ROOT, Job, Outcome, Runner, Side, launcher_flags, under_mpirun, write_lines
from cases import Case, resnet50_shapes
from drawing import draw
from machine import machine, versions, versions_text, warning
from targets import Results, describe, rows_of, table, wrong_lines

ALL = [f"P{i}" for i in range(1, 9)]
MARK, END_MARK = "<!-- results -->\n", "<!-- end of results -->\n"
HALVES = "1x16MiB,1x8MiB:float16,1x8MiB:bfloat16"
SWEEP = "4,256,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB,64MiB"
QUICK_SWEEP = "4,4KiB,256KiB,4MiB"
NOTES = """\
Times are of one step, `session.run` to `session.run`: the slowest rank, the median of five repetitions, and of the
rounds. "shared memory" is the native benchmark `shm_backend` with ResNet-50's bytes in one tensor: a sum through shared
memory in a pipeline, without TensorFlow. "raw MPI" is MPI_Allreduce of one buffer of as many bytes.
"""


class Plan:
    """Which jobs there are, in the order in which they run."""

    def __init__(self, arguments: argparse.Namespace, sides: Sequence[Side]) -> None:
        """Of the options; the first of the sides is ours."""
        self.options = arguments
        self.sides = sides
        self.first, *self.more = arguments.ranks
        self.wanted = set(arguments.targets)
        self.seconds = ("--seconds", "0.1" if arguments.quick else "0.5")

    def jobs(self) -> list[Job]:
        """Of each benchmark all rounds together, so that what is compared ran in the same minutes."""
        return [
            *self.collectives(),
            *self.more_ranks(),
            *self.native(),
            *self.distribute(),
            *self.training(),
            *self.idle(),
            *self.sweep(),
        ]

    def in_turn(self, name: str, ranks: int, script: str, *arguments: str, ours: Sequence[str] = ()) -> list[Job]:
        """A B A B: a script with each side's module, in every round; with `ours` more options for us."""
        jobs = []
        for number in range(1, self.options.rounds + 1):
            for index, side in enumerate(self.sides):
                options = (side.module, *arguments, *(ours if index == 0 else ()))
                jobs.append(self.job(name, side, number, ranks, script, *options))
        return jobs

    def job(self, name: str, side: Side, number: int, ranks: int, script: str, *arguments: str) -> Job:
        """One job of a side."""
        command = under_mpirun(side, ranks, script, *arguments)
        return Job(name, side.name, number, command, self.options.job_limit, side.path)

    def cases(self) -> str:
        """What P1, P2, P3 and P7 need."""
        needed = {"P1": "1x4", "P2": "resnet50", "P3": "1000x1KiB", "P7": HALVES}
        return ",".join(case for target, case in needed.items() if target in self.wanted)

    def collectives(self) -> list[Job]:
        """P1, P2, P3 and P7."""
        if not self.cases():
            return []
        options = ("--cases", self.cases(), *self.seconds)
        return self.in_turn("collectives", self.first, "collectives.py", *options, ours=["--raw-mpi"])

    def more_ranks(self) -> list[Job]:
        """P4."""
        if "P4" not in self.wanted:
            return []
        options = ("--cases", "resnet50", *self.seconds)
        jobs = [
            self.in_turn("more_ranks", ranks, "collectives.py", *options, ours=["--raw-mpi"]) for ranks in self.more
        ]
        return [
            # Names of logs must differ, if there are several further numbers of ranks.
            job._replace(round=job.round + 100 * index)
            for index, some in enumerate(jobs)
            for job in some
        ]

    def native(self) -> list[Job]:
        """The limit of P2."""
        if "P2" not in self.wanted:
            return []
        size = Case("resnet50", "float32", resnet50_shapes()).bytes
        program = str(self.options.native / "shm_backend")
        command = (program, "--ranks", str(self.first), "--bytes", str(size), *self.seconds)
        return [Job("native", "native", number, command, 60) for number in range(1, self.options.rounds + 1)]

    def distribute(self) -> list[Job]:
        """tf.distribute beside P1, P2 and P3; with our interpreter."""
        cases = ",".join(case for case in self.cases().split(",") if case in ("1x4", "resnet50", "1000x1KiB"))
        if not cases:
            return []
        limit = self.options.job_limit
        options = ("--ranks", str(self.first), "--cases", cases, "--limit", str(limit - 5), *self.seconds)
        command = (self.sides[0].python, str(BENCHMARKS / "tf_distribute.py"), *options)
        return [Job("tf_distribute", "tf.distribute", 1, command, limit)]

    def training(self) -> list[Job]:
        """P5: without communication, ours and the peer's in turn."""
        if "P5" not in self.wanted:
            return []
        uncoupled = self.sides[0]._replace(name="none", module="none")
        seconds = ("--seconds", "0.3" if self.options.quick else "1.5")
        jobs = []
        for number in range(1, self.options.rounds + 1):
            for side in (uncoupled, *self.sides):
                jobs.append(self.job("training", side, number, self.first, "training.py", side.module, *seconds))
        return jobs

    def idle(self) -> list[Job]:
        """P6 and P8."""
        if not self.wanted & {"P6", "P8"}:
            return []
        memory = () if "P8" in self.wanted else ("--memory-cases", "")
        return self.in_turn("idle", self.first, "idle.py", *memory)

    def sweep(self) -> list[Job]:
        """For the picture, once."""
        if not self.wanted & {"P1", "P2", "P3"}:
            return []
        options = ("--sizes", QUICK_SWEEP if self.options.quick else SWEEP, *self.seconds)
        jobs = []
        for side in self.sides:
            raw = ("--raw-mpi",) if side is self.sides[0] else ()
            jobs.append(self.job("sweep", side, 1, self.first, "collectives.py", side.module, *options, *raw))
        return jobs


def run_all(jobs: Iterable[Job], runner: Runner) -> list[Outcome]:
    """Runs the jobs and says how they go."""
    outcomes = []
    for job in jobs:
        print(f"== {job.title}", end=" ", flush=True)
        begin = time.monotonic()
        outcome = runner.run(job)
        outcomes.append(outcome)
        result = "FAILED" if outcome.failed else f"{len(outcome.lines)} measurements"
        print(f"{result} in {time.monotonic() - begin:.0f} s", flush=True)
    return outcomes


def with_added_memory(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lines about memory get the sum of its kinds."""
    kinds = ("anonymous_mib", "shared_mib")
    return [
        {**line, "added_mib": sum(max(line[kind], 0.0) for kind in kinds)} if kinds[0] in line else line
        for line in lines
    ]


def failures_text(outcomes: Sequence[Outcome]) -> str:
    """Failed jobs with the end of what they said; wrong results; what a module does not have. Empty if all is well."""
    parts = []
    for outcome in outcomes:
        if outcome.failed:
            said = "".join(f"    {line}\n" for line in outcome.tail.splitlines())
            parts.append(f"**FAILED**: {outcome.job.title}, status {outcome.status}:\n\n{said}\n")
    lines = [line for outcome in outcomes for line in outcome.lines]
    parts += [f"**WRONG**: {describe(line)}: {line['wrong']} elements\n\n" for line in wrong_lines(lines)]
    parts += [f"Not measured: {describe(line)}: {line['error']}\n\n" for line in lines if "error" in line]
    return "".join(parts)


def report(outcomes: Sequence[Outcome], wanted: Sequence[str], ranks: Sequence[int], rounds: int) -> str:
    """Everything that is to be said, in Markdown."""
    lines = with_added_memory([line for outcome in outcomes for line in outcome.lines])
    failed = {(outcome.job.name, outcome.job.side) for outcome in outcomes if outcome.failed}
    ours, peer = versions(lines, "ours"), versions(lines, "peer")
    threads = next((line["threads"] for line in lines if "threads" in line), ["?", "?"])
    head = [
        f"- machine: {machine()}",
        f"- date: {datetime.date.today().isoformat()}; rounds: {rounds}",
        f"- threads of each process: {threads[0]} inside an operation, {threads[1]} between operations",
        f"- ours: {versions_text(ours)}",
        f"- peer: {versions_text(peer)}",
    ]
    unfair = warning(ours, peer)
    if unfair:
        head.append(f"- **warning**: {unfair}")
    rows = rows_of(Results(lines, failed), wanted, ranks)
    parts = ["\n".join(head), table(rows).rstrip("\n"), NOTES.rstrip("\n"), failures_text(outcomes).rstrip("\n")]
    return "\n\n".join(part for part in parts if part) + "\n"


def around_results(document: Path) -> tuple[str, str]:
    """What stands before and after the place for the results, its two marks included.

    Raises:
        ValueError: it has none.
    """
    before, begin, rest = document.read_text().partition(MARK)
    _, end, after = rest.partition(END_MARK)
    if not (begin and end):
        raise ValueError(f"{document} has no place for the results")
    return before + begin, end + after


def write_into(document: Path, text: str) -> None:
    """Puts the results between the document's two marks; ValueError if it has none."""
    before, after = around_results(document)
    document.write_text(f"{before}{text}{after}")


def beside(python: str, given: str | None) -> str:
    """The launcher: the one that is given, or that of the interpreter's environment, or the first on the path."""
    own = Path(python).with_name("mpirun")
    return given or (str(own) if own.exists() else shutil.which("mpirun") or "mpirun")


def sides_of(arguments: argparse.Namespace) -> list[Side]:
    """Ours, and the peer if there is one."""
    mpirun = beside(arguments.python, arguments.mpirun)
    sides = [Side("ours", arguments.python, arguments.module, mpirun, launcher_flags(mpirun), str(ROOT))]
    if arguments.peer_python:
        mpirun = beside(arguments.peer_python, arguments.peer_mpirun)
        flags = launcher_flags(mpirun)
        sides.append(Side("peer", arguments.peer_python, arguments.peer_module, mpirun, flags, ""))
    return sides


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; what depends on others is filled in."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter for ours (default: this one)")
    parser.add_argument("--module", default="horovod_tf.tensorflow", help="default: %(default)s")
    parser.add_argument("--mpirun", help="default: beside the interpreter, or the first on the path")
    parser.add_argument("--peer-python", help="interpreter of another environment; without it there is no peer")
    parser.add_argument("--peer-module", default="horovod.tensorflow", help="default: %(default)s")
    parser.add_argument("--peer-mpirun", help="default: beside the peer's interpreter")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="the first for all but P4 (default: 2 4)")
    parser.add_argument("--targets", default=",".join(ALL), help="default: %(default)s")
    parser.add_argument("--rounds", type=int, help="default: 3 with a peer, else 1")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="short measurements, fewer sizes, and one round if --rounds does not say more",
    )
    parser.add_argument("--limit", type=float, help="seconds for all jobs (default: 1800 with a peer, 285 without)")
    parser.add_argument("--job-limit", type=float, default=150.0, help="seconds for one job (default: %(default)s)")
    parser.add_argument("--native", type=Path, default=ROOT / "build/release", help="where shm_backend is")
    parser.add_argument("--output", type=Path, default=ROOT / "build/bench", help="default: %(default)s")
    parser.add_argument("--document", type=Path, help="file to put the results into, between its two marks")
    arguments = parser.parse_args(words)
    arguments.targets = [name for name in arguments.targets.split(",") if name]
    if not set(arguments.targets) <= set(ALL):
        parser.error(f"targets are {', '.join(ALL)}")
    if min(arguments.ranks) < 1 or (arguments.rounds is not None and arguments.rounds < 1):
        parser.error("ranks and rounds are 1 or more")
    peer = arguments.peer_python is not None
    if arguments.rounds is None:
        arguments.rounds = 3 if peer and not arguments.quick else 1
    if arguments.document:
        try:  # now, and not after half an hour
            around_results(arguments.document)
        except (OSError, ValueError) as error:
            parser.error(str(error))
    arguments.limit = arguments.limit or (1800.0 if peer else 285.0)
    return arguments


def main() -> int:
    """The exit status."""
    arguments = parse_arguments()
    arguments.output.mkdir(parents=True, exist_ok=True)
    jobs = Plan(arguments, sides_of(arguments)).jobs()
    outcomes = run_all(jobs, Runner(arguments.output, arguments.limit))
    write_lines(arguments.output, outcomes)
    text = report(outcomes, arguments.targets, arguments.ranks, arguments.rounds)
    (arguments.output / "table.md").write_text(text)
    print(f"\n{text}")
    lines = [line for outcome in outcomes for line in outcome.lines]
    print(draw(lines, arguments.output / "collectives.png"))
    print(f"Lines of JSON, logs and table: {os.path.relpath(arguments.output)}")
    if arguments.document:
        write_into(arguments.document, text)
    return 1 if any(outcome.failed for outcome in outcomes) or wrong_lines(lines) else 0


if __name__ == "__main__":
    sys.exit(main())
