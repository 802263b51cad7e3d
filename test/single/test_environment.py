"""The environments that the Makefile makes: made once, made anew when something changed, never somebody's own."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest

from build_support import environment
from support import Run


@pytest.fixture
def requirements(tmp_path: Path) -> Path:
    path = tmp_path / "requirements.txt"
    path.write_text("# nothing\n-r more.txt\n")
    (tmp_path / "more.txt").write_text("# nothing\n")
    return path


def made_anew(folder: Path, requirements: Path) -> bool:
    """Whether the folder was made, told by a file in it that does not come back."""
    mark = folder / "mark"
    if folder.exists():
        mark.touch()
    environment.make(folder, requirements)
    assert (folder / "bin/python").exists()
    return not mark.exists()


def test_is_made_once_and_again_when_something_changed(tmp_path: Path, requirements: Path) -> None:
    folder = tmp_path / "made"
    assert made_anew(folder, requirements)
    assert not made_anew(folder, requirements)
    (tmp_path / "more.txt").write_text("# another\n")
    assert made_anew(folder, requirements)
    (folder / environment.STAMP).write_text("")  # as if somebody had pressed Ctrl-C
    assert made_anew(folder, requirements)
    moved = folder.rename(tmp_path / "moved")
    assert made_anew(moved, requirements)


def test_folder_of_somebody_is_left_alone(tmp_path: Path, requirements: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "theirs"
    venv.create(folder)
    before = sorted(folder.rglob("*"))
    with pytest.raises(environment.CannotMakeError, match="has no tensorflow, numpy, pytest: install that there"):
        environment.make(folder, requirements)
    monkeypatch.setattr(environment, "NEEDED", ("json",))
    environment.make(folder, requirements)
    assert sorted(folder.rglob("*")) == before


def test_python_without_venv_names_the_package(
    tmp_path: Path, requirements: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(environment.CannotMakeError, match="apt-get install python3-venv"):
        environment.make(tmp_path / "made", requirements)


@pytest.mark.parametrize("version", [(3, 8, 18), (3, 14, 0)])
def test_python_without_tensorflow_says_which_have_one(
    version: tuple[int, int, int], tmp_path: Path, requirements: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requirements.write_text("tensorflow-cpu\n")
    monkeypatch.setattr("sys.version_info", version)
    with pytest.raises(environment.CannotMakeError, match=r"is Python 3\.\d+, for .* from 3\.9 to 3\.13, PYTHON="):
        environment.make(tmp_path / "made", requirements)
    assert not (tmp_path / "made").exists()


def test_error_is_one_line_and_a_status(run: Run, tmp_path: Path, requirements: Path) -> None:
    venv.create(tmp_path / "theirs")
    done = run(sys.executable, environment.__file__, str(tmp_path / "theirs"), str(requirements))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "has no tensorflow" in done.stderr
