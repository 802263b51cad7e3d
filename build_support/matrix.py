"""Runs the TensorFlow tests with every TensorFlow and MPI, and prints a Markdown table. `make test-matrix` calls it.

    python3 -m build_support.matrix [--cells 2.15.1/mpich-5.0.2,...] [--ranks '1 2 3 4'] [--document FILE]

Each pair is a cell with a folder of its own, FOLDER/CELL: `venv`, `tree` (a copy of the working tree, as the built
libraries lie inside it), and a log for each run. Nothing is shared between cells. A second run copies, builds and
installs only what has changed. The last result of every cell is kept in FOLDER/results.json, and the table shows all.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from build_support.documents import write_into

ROOT = Path(__file__).resolve().parent.parent
OLDEST = "oldest"


class TensorFlow(NamedTuple):
    """A release: what to install for it, and for which minor versions of Python 3 it exists: from 9 to the newest."""

    requirements: list[str]
    newest_python: int


TENSORFLOWS = {
    "2.15.1": TensorFlow(["tensorflow-cpu==2.15.1", "numpy==1.26.4"], 11),
    "2.18.1": TensorFlow(["tensorflow-cpu==2.18.1"], 12),
    "2.20.0": TensorFlow(["tensorflow-cpu==2.20.0"], 13),
    "2.21.0": TensorFlow(["tensorflow-cpu==2.21.0"], 13),
}
MPIS = {"openmpi-4.1.8": "Open MPI 4.1.8", "openmpi-5.0.11": "Open MPI 5.0.11", "mpich-5.0.2": "MPICH 5.0.2"}
CELLS = [f"{tensorflow}/{mpi}" for tensorflow in ("2.15.1", "2.21.0") for mpi in MPIS]


class NoPythonError(RuntimeError):
    """No interpreter here is one that the TensorFlow has a release for."""


def minor_version(python: str) -> int | None:
    """Of Python 3; None if it cannot be run."""
    try:
        answer = subprocess.run(
            [python, "-c", "import sys; print(sys.version_info[1])"], capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return int(answer.stdout)


def find_python(tensorflow: str) -> str:
    """This interpreter if the TensorFlow has a release for it, or one in the PATH.

    Raises:
        NoPythonError: there is none.
    """
    newest = TENSORFLOWS[tensorflow].newest_python
    for python in [sys.executable, *(f"python3.{minor}" for minor in range(newest, 8, -1))]:
        if 9 <= (minor_version(python) or 0) <= newest:
            return shutil.which(python) or python
    raise NoPythonError(f"TensorFlow {tensorflow} needs Python 3.9 to 3.{newest}, which is not here")


def without_oldest(cell: str) -> str:
    """With the oldest TensorFlow that there is a Python for, where the cell asks for the oldest."""
    if not cell.startswith(f"{OLDEST}/"):
        return cell
    for tensorflow in TENSORFLOWS:
        try:
            find_python(tensorflow)
        except NoPythonError as error:
            print(error)
        else:
            return f"{tensorflow}/{cell.partition('/')[2]}"
    raise NoPythonError("no TensorFlow has a release for the Python that is here")


def tree_files() -> list[Path]:
    """What git knows or would add: no build output."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file()]


def copy_tree(tree: Path) -> None:
    """Makes `tree` what the working tree is, build output left alone. Files that are equal keep their time."""
    files = tree_files()
    listing = tree.with_suffix(".files")
    if listing.exists():
        for name in set(listing.read_text().split("\n")) - {str(path) for path in files}:
            (tree / name).unlink(missing_ok=True)
    for path in files:
        source, target = ROOT / path, tree / path
        if target.exists() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        shutil.copymode(source, target)
    listing.write_text("\n".join(map(str, files)))


class Cell:
    """One TensorFlow with one MPI."""

    def __init__(self, name: str, folder: Path) -> None:
        """Copies the tree and writes down what is to be installed."""
        self.name = name
        self.tensorflow, _, self.mpi = name.partition("/")
        self.python = find_python(self.tensorflow)
        self.folder = folder / name.replace("/", "-")
        self.tree = self.folder / "tree"
        self.tree.mkdir(parents=True, exist_ok=True)
        copy_tree(self.tree)
        requirements = ["-r tree/tools/requirements-test.txt", *TENSORFLOWS[self.tensorflow].requirements]
        lines = [*requirements, self.mpi.replace("-", "=="), ""]
        (self.folder / "requirements.txt").write_text("\n".join(lines))

    def make(self, log: str, *arguments: str) -> tuple[bool, str]:
        """Whether `make` succeeds, and what it says, which is in FOLDER/CELL/`log`.log too."""
        path = self.folder / f"{log}.log"
        here = [f"PYTHON={self.python}", f"VENV={self.folder / 'venv'}", f"REQUIREMENTS={self.folder}/requirements.txt"]
        environment = {
            name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
        }
        with path.open("w") as output:
            done = subprocess.run(
                [os.environ.get("MAKE", "make"), "--no-print-directory", *here, *arguments],
                cwd=self.tree,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        text = path.read_text(errors="replace")
        if done.returncode != 0:
            print(f"FAILED, see {path}; its end:", *text.splitlines()[-30:], sep="\n  ")
        return done.returncode == 0, text

    def run(self, ranks: list[str], launched: str | None) -> dict[str, str]:
        """The cell's row: what is in each column. `launched`: of the tests that start jobs, only these files."""
        begin = time.monotonic()
        row: dict[str, str] = {}

        def step(column: str, *arguments: str) -> None:
            print(f"== {self.name}: {column}", flush=True)
            good, text = self.make(column.replace(" ", "-"), *arguments)
            row[column] = verdict(good, text)
            print(f"   {row[column]}", flush=True)

        version = self.make("environment", "environment")
        if not version[0]:
            return {"failed": "environment"}
        python = self.folder / "venv/bin/python"
        answer = subprocess.run(
            [str(python), "-c", "import platform as p; print(p.python_version())"], capture_output=True
        )
        row["Python"] = answer.stdout.decode().strip()
        for count in ranks:
            step(f"N={count}", "test-tensorflow", f"TENSORFLOW_RANKS={count}", "LAUNCHER_TESTS=")
        only = [] if launched is None else [f"LAUNCHER_TESTS={launched}"]
        step("launched", "test-tensorflow", "TENSORFLOW_RANKS=", *only)
        step("native", "test-mpi-if-possible", f"MPI_RANKS={' '.join(ranks)}", f"MPICXX={self.folder}/venv/bin/mpicxx")
        row["minutes"] = f"{(time.monotonic() - begin) / 60:.0f}"
        return row


def verdict(good: bool, text: str) -> str:
    """A cell of the table: how many tests passed, added up over ranks and files, and how many did not."""
    counts = []
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)  # a launcher may give ranks a terminal, and so colours
    for word in ("failed", "errors?", "passed", "skipped"):
        # pytest's summary, and gtest's.
        total = sum(map(int, re.findall(rf"(\d+) {word}\b(?=.* in \d)", text)))
        if word == "passed":
            total += sum(map(int, re.findall(r"\[  PASSED  \] (\d+) test", text)))
        if total:
            counts.append(f"{total} {word.rstrip('?')}")
    if not good:
        return f"**FAILED** ({', '.join(counts) or 'no tests ran'})"
    return ", ".join(counts) or ("left out" if "left out" in text else "passed, not counted")


def table(results: dict[str, dict[str, str]], ranks: list[str]) -> str:
    """All results in Markdown."""
    columns = ["Python", *(f"N={count}" for count in ranks), "launched", "native", "minutes", "commit"]
    lines = [" | ".join(["TensorFlow", "MPI", *columns]), " | ".join(["---"] * (len(columns) + 2))]
    for cell, row in sorted(results.items()):
        tensorflow, _, mpi = cell.partition("/")
        lines.append(" | ".join([tensorflow, MPIS.get(mpi, mpi), *(row.get(column, "-") for column in columns)]))
    return "".join(f"| {line} |\n" for line in lines)


def commit() -> str:
    """Of the working tree; `-dirty` if something has been changed since."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def main() -> int:
    """The exit status: 0 if every cell that ran is good."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--cells", default=",".join(CELLS), help="TENSORFLOW/MPI,...; oldest/MPI for what Python allows"
    )
    parser.add_argument("--ranks", default="1 2 3 4", help="numbers of processes (default: %(default)s)")
    parser.add_argument("--launched", help="files of tests that start jobs themselves (default: all)")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/matrix", help="default: %(default)s")
    parser.add_argument("--document", type=Path, help="file to put the table into, between its two marks")
    arguments = parser.parse_args()

    results_file = arguments.folder / "results.json"
    results = json.loads(results_file.read_text()) if results_file.exists() else {}
    ranks = arguments.ranks.split()
    good = True
    for asked in filter(None, arguments.cells.split(",")):
        try:
            name = without_oldest(asked)
            row = Cell(name, arguments.folder.resolve()).run(ranks, arguments.launched)
        except NoPythonError as error:
            print(error, file=sys.stderr)
            name, row = asked, {"failed": str(error)}
        good = good and "failed" not in row and not any(value.startswith("**") for value in row.values())
        results[name] = {**row, "commit": commit()}
        results_file.parent.mkdir(parents=True, exist_ok=True)
        results_file.write_text(json.dumps(results, indent=2))
    print(f"\nTests passed, added up over ranks and files:\n\n{table(results, ranks)}")
    if arguments.document:
        write_into(arguments.document, "matrix", table(results, ranks))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
