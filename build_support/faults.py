"""Runs the tests of faults, and prints a Markdown table of what passes. `make test-faults` calls it.

    python -m build_support.faults [--peer PYTHON] [--not-ours] [--document FILE] [-- PYTEST_ARGUMENT...]

Faults have numbers (T1, T2, ...), and `test_t1_...` in test/faults are the cases of T1. With --peer, the same cases run
with that environment's `horovod.tensorflow` in the place of our library. The last result of every case with every
TensorFlow is kept in build/faults, and the table shows all.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from build_support.documents import write_into
from build_support.flags import tensorflow_version

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build/faults"
OURS = "horovod_tf.tensorflow"
PEER = "horovod.tensorflow"
PEER_COLUMN = "Horovod 0.28.1"
PASSED = "passed"
# What one test may take: a hang is ended by tools/with_deadline long before, which then prints stacks.
SECONDS_OF_A_TEST = 600
FAULTS = {
    "T1": "a rank never makes a call",
    "T2": "TensorFlow numbers names differently",
    "T3": "one rank does something long",
    "T4": "one rank wants to stop",
    "T5": "uneven numbers of batches",
    "T6": "the same with sparse gradients",
    "T7": "a rank without data",
    "T8": "one rank takes another branch, or leaves a step out",
    "T9": "shapes, types, operations, roots differ",
    "T10": "unused, equal and reordered collectives in a function",
    "T11": "one rank's program ends badly",
    "T12": "what the others are told then",
    "T13": "fork after init()",
    "T14": "good ends with something pending",
    "T15": "init() after shutdown()",
    "T16": "signals while a rank waits",
    "T17": "launcher and library do not fit, versions differ",
    "T20": "orders of imports",
    "T21": "a rank starts late or never",
    "T22": "a container without ptrace",
    "T23": "more ranks than cores, as root",
    "T24": "thread levels of MPI, MPI of mpi4py, finalised MPI",
    "T25": "replicas that drift apart",
    "T26": "slots and layers that are built late",
    "T30": "accumulated gradients",
    "T32": "integers, and the default operation",
    "T33": "halves that would overflow",
    "T34": "the same bits in every run",
    "T38": "threads and loops",
    "T39": "an idle library",
    "T45": "memory over 3000 steps",
    "T46": "tensors larger than one piece",
    "T47": "the timeline of a job that ends badly",
    "T50": "ranks without rows",
}
# Shown by other tests, of our library alone.
ELSEWHERE = {
    "T18": ("another TensorFlow, no compiler", "test/test_tensorflow_library.py", "test/single/test_build.py"),
    "T29": ("gradients of collectives", "test/test_tensorflow.py", "test/mp/test_gradients.py"),
    "T31": ("clipping of averages", "test/mp/test_keras.py", "test/mp/test_optimizer.py"),
    "T37": ("types and sizes", "test/test_tensorflow.py", "test/mp/test_gradients.py"),
    "T40": ("latency and bandwidth against MPI", "benchmarks/table.py"),
}


class Case(NamedTuple):
    """One test's result: PASSED, or in a few words what is wrong."""

    fault: str
    name: str
    outcome: str


def outcome_of(test: ElementTree.Element) -> str:
    """PASSED, "skipped", or the words that a `FaultError` begins with."""
    failure = test.find("failure")
    if failure is None:
        failure = test.find("error")
    skipped = test.find("skipped")
    if failure is None and skipped is None:
        return PASSED
    if failure is None and skipped is not None:
        return "not yet" if skipped.get("type") == "pytest.xfail" else "skipped"
    assert failure is not None
    text = (failure.get("message") or "").replace("\n", " ")
    found = re.match(r"(?:fault_jobs\.)?FaultError: ([^:,(]*)", text)
    return found.group(1).strip() if found else "fails otherwise"


def read_cases(report: Path) -> list[Case]:
    """All results of one run, from pytest's XML; none if it was broken off."""
    cases: list[Case] = []
    if not report.exists():
        return cases
    for test in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it for us
        name = test.get("name") or ""
        found = re.match(r"test_(t\d+)_", name)
        if found:
            cases.append(Case(found.group(1).upper(), name, outcome_of(test)))
    return cases


def in_words(cases: list[Case]) -> str:
    """What a row says: how many pass, and of the others how often what is wrong."""
    counts = Counter(case.outcome for case in cases if case.outcome != "skipped")
    passed = counts.pop(PASSED, 0)
    if not counts:
        return f"{passed} passed" if passed else "-"
    wrong = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    return f"{passed} passed; **{wrong}**"


def number(fault: str) -> int:
    """To sort by."""
    return int(fault[1:])


def table(ours: dict[str, list[Case]], peer: list[Case] | None) -> str:
    """All faults in Markdown, with one column for each TensorFlow that our library has been tried with."""
    columns = {**ours, **({} if peer is None else {PEER_COLUMN: peer})}
    rows = [["", "fault", "cases", *columns]]
    rows.append(["---"] * len(rows[0]))
    for fault in sorted([*FAULTS, *ELSEWHERE], key=number):
        if fault in FAULTS:
            results = [[case for case in cases if case.fault == fault] for cases in columns.values()]
            count = max(len(of_fault) for of_fault in results[: len(ours)])
            rows.append([fault, FAULTS[fault], str(count), *map(in_words, results)])
        else:
            what, *where = ELSEWHERE[fault]
            text = ", ".join(f"`{one}`" for one in where)
            rows.append([fault, what, "-", *([text] * len(ours)), *([] if peer is None else ["-"])])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def run(side: str, python: str, module: str, arguments: list[str]) -> tuple[int, str]:
    """One run of the tests: pytest's status and last line. Results are kept."""
    report, log = FOLDER / f"{side}.xml", FOLDER / f"{side}.log"
    report.unlink(missing_ok=True)
    options = [
        "-o",
        f"faulthandler_timeout={SECONDS_OF_A_TEST}",
        f"--junitxml={report}",
        "--color=no",
        "-v",
        "--tb=short",
    ]
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", *options, *(arguments or ["test/faults"])]
    environment = {**os.environ, "MODULE_UNDER_TEST": module}
    last = ""
    with (
        log.open("w") as file,
        subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            print(line, end="", flush=True)
            last = line.strip() or last
    results = kept(side)
    results.update({case.name: case for case in read_cases(report)})
    (FOLDER / f"{side}.json").write_text(json.dumps(list(results.values()), indent=1))
    return process.returncode, last


def kept(side: str) -> dict[str, Case]:
    """The last result of every case, by its name."""
    path = FOLDER / f"{side}.json"
    return {case[1]: Case(*case) for case in json.loads(path.read_text())} if path.exists() else {}


def kept_of_ours() -> dict[str, list[Case]]:
    """What is kept of our library, by the column that it goes into."""
    sides = sorted(path.stem for path in FOLDER.glob("TensorFlow *.json"))
    return {side: list(kept(side).values()) for side in sides}


def main() -> int:
    """The exit status: pytest's for our library."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="python of an environment with horovod, to compare with")
    parser.add_argument("--not-ours", action="store_true", help="run the peer alone")
    parser.add_argument("--document", type=Path, help="file to put the table into, between its two marks")
    parser.add_argument("arguments", nargs="*", help="arguments for pytest, instead of test/faults")
    arguments = parser.parse_args()

    FOLDER.mkdir(parents=True, exist_ok=True)
    status, summaries = 0, []
    if arguments.peer:
        _, last = run("peer", arguments.peer, PEER, arguments.arguments)
        summaries.append(f"{PEER}: {last}")
    if not arguments.not_ours:
        status, last = run(f"TensorFlow {tensorflow_version()}", sys.executable, OURS, arguments.arguments)
        summaries.append(last)
    text = table(kept_of_ours(), list(kept("peer").values()) or None)
    if arguments.document:
        write_into(arguments.document, "faults", text)
    print(f"\n{text}", *summaries, sep="\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
