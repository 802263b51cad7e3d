"""Fixtures of the Python tests. The hard limit of a test is faulthandler_timeout in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from support import ROOT, Run, run_command


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Gives each process a temporary folder of its own.

    By default pytest numbers its folders inside one that all processes of a user share, and clears old ones away at
    exit. Ranks of one job start and end together, and then stumble over each other there.
    """
    if config.option.basetemp is None:
        folder = tempfile.TemporaryDirectory(prefix="pytest-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        config.option.basetemp = str(Path(folder.name) / "base")


@pytest.fixture(scope="session")
def run() -> Run:
    return run_command


@pytest.fixture(scope="session")
def run_python() -> Run:
    """Runs a program in a fresh interpreter: for exits, crashes and environments."""

    def run_program(program: str, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
        path = {"PYTHONPATH": str(cwd)}
        return run_command(sys.executable, "-c", program, cwd=cwd, timeout=60, **{**path, **variables})

    return run_program


@pytest.fixture(scope="session")
def source_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the native core is built from, to be changed and built by tests."""
    copy = tmp_path_factory.mktemp("tree")
    sources = [path for path in (ROOT / "horovod_tf/common").rglob("*") if path.suffix in {".h", ".cc", ".inc", ".py"}]
    sources += [path for path in (ROOT / "tools").rglob("*") if path.is_file()]
    sources += [path for path in (ROOT / "build_support").iterdir() if path.is_file()]
    sources += [ROOT / "Makefile", *(ROOT / "horovod_tf").glob("*.py")]
    for path in sources:
        target = copy / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
        target.chmod(path.stat().st_mode)
    return copy
