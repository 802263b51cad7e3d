"""What `make test-matrix` makes of the tests' output, and which interpreter it takes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from build_support import matrix

PASSED = "== test/a.py on 2 ranks\n11 passed, 2 skipped in 3.10s\n11 passed, 2 skipped in 3.12s\n"
NATIVE = "[  PASSED  ] 40 tests.\n\x1b[0;32m[  PASSED  ] \x1b[m1 test.\n"


def test_verdict_adds_up_over_ranks_and_kinds_of_tests() -> None:
    assert matrix.verdict(True, PASSED) == "22 passed, 4 skipped"
    assert matrix.verdict(True, NATIVE) == "41 passed"
    assert matrix.verdict(True, "The native tests are left out") == "left out"
    assert matrix.verdict(True, "") == "passed, not counted"
    summary = "===== 3 failed, 8 passed, 1 error in 114.82s (0:01:54) =====\n"
    assert matrix.verdict(False, PASSED + summary) == "**FAILED** (3 failed, 1 errors, 30 passed, 4 skipped)"
    assert matrix.verdict(False, "make: *** Error 2\n") == "**FAILED** (no tests ran)"


def test_table_has_a_row_per_result() -> None:
    table = matrix.table({"2.15.1/mpich-5.0.2": {"Python": "3.11.7", "N=1": "8 passed"}}, ["1", "2"])
    assert "| 2.15.1 | MPICH 5.0.2 | 3.11.7 | 8 passed | - |" in table


def test_oldest_is_the_oldest_that_there_is_a_python_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(matrix, "minor_version", lambda python: 13 if python == sys.executable else None)
    assert matrix.without_oldest("oldest/openmpi-5.0.11") == "2.20.0/openmpi-5.0.11"
    assert "TensorFlow 2.15.1 needs Python 3.9 to 3.11, which is not here" in capsys.readouterr().out
    monkeypatch.setattr(matrix, "minor_version", lambda python: 11 if python == "python3.11" else 13)
    assert matrix.without_oldest("oldest/openmpi-5.0.11") == "2.15.1/openmpi-5.0.11"
    assert matrix.find_python("2.15.1").endswith("python3.11")
    monkeypatch.setattr(matrix, "minor_version", lambda python: 14)
    with pytest.raises(matrix.NoPythonError, match="no TensorFlow"):
        matrix.without_oldest("oldest/openmpi-5.0.11")


def test_copy_follows_the_tree_and_leaves_build_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, tree = tmp_path / "source", tmp_path / "cell/tree"
    (source / "deep").mkdir(parents=True)
    tree.mkdir(parents=True)
    monkeypatch.setattr(matrix, "ROOT", source)
    files = {"a": "1", "deep/b": "2"}

    def copy() -> None:
        for name, text in files.items():
            (source / name).write_text(text)
        monkeypatch.setattr(matrix, "tree_files", lambda: [Path(name) for name in files])
        matrix.copy_tree(tree)

    copy()
    (tree / "build").mkdir()
    before = (tree / "a").stat().st_mtime_ns
    del files["deep/b"]
    files["c"] = "3"
    copy()
    assert sorted(path.name for path in tree.rglob("*") if path.is_file()) == ["a", "c"]
    assert (tree / "build").is_dir()
    assert (tree / "a").stat().st_mtime_ns == before
