"""Where tests keep their files: ranks of one job must not clear away each other's."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path

from support import ROOT, run_command

TEST = "def test_folder(tmp_path):\n    print('FOLDER', tmp_path)\n    assert not any(tmp_path.iterdir())\n"


def run_test(folder: Path, *flags: str) -> str:
    """The temporary folder of a test that runs in a pytest of its own with the fixtures of this one."""
    test = folder / "test_folder.py"
    test.write_text(TEST)
    shared = folder / "temporary"
    pytest = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "conftest", "--rootdir", str(ROOT)]
    done = run_command(*pytest, *flags, str(test), cwd=folder, PYTHONPATH=str(ROOT / "test"), TMPDIR=str(shared))
    assert done.returncode == 0, done.stdout + done.stderr
    return next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("FOLDER"))


def test_a_process_leaves_the_shared_folder_alone_and_nothing_behind(tmp_path: Path) -> None:
    old = [tmp_path / f"temporary/pytest-of-{getpass.getuser()}/pytest-{number}" for number in range(8)]
    for folder in old:
        folder.mkdir(parents=True, mode=0o700)
    mine = Path(run_test(tmp_path))
    assert all(folder.is_dir() for folder in old)
    assert mine.is_relative_to(tmp_path / "temporary")
    assert not mine.is_relative_to(old[0].parent)
    assert [entry.name for entry in (tmp_path / "temporary").iterdir()] == [old[0].parent.name]


def test_a_folder_that_is_asked_for_is_used(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    assert Path(run_test(tmp_path, "--basetemp", str(tmp_path / "asked"))).is_relative_to(tmp_path / "asked")
