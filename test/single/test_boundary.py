"""The boundary is a build error: no core file can include MPI, CUDA, NCCL or TensorFlow, by the real Makefile."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import ROOT, Run

FOLDERS = [".", "base", "protocol", "transport", "collectives", "runtime"]
# (header, whether tools/boundary knows it); the last are ones that nobody listed.
HEADERS = [
    ("mpi.h", True),
    ("nccl.h", True),
    ("cuda.h", True),
    ("cuda_runtime.h", True),
    ("cuda_runtime_api.h", True),
    ("tensorflow/core/framework/op_kernel.h", True),
    ("tensorflow/core/framework/op.h", True),
    ("tensorflow/core/framework/tensor.h", True),
    ("tensorflow/core/public/version.h", True),
    ("tensorflow/c/c_api.h", True),
    ("tensorflow/core/common_runtime/process_util.h", False),
    ("xla/stream_executor/stream.h", False),
]
# Stops at the first error, and does not optimise what is thrown away.
QUICK = "CXXFLAGS=-O0 -Wfatal-errors"


def smallest_source(folder: str) -> Path:
    """The core file of this folder, relative to the tree, that compiles fastest."""
    sources = sorted((ROOT / "horovod_tf/common" / folder).glob("*.cc"), key=lambda path: path.stat().st_size)
    assert sources, f"no source in {folder}: is the list of folders still right?"
    return sources[0].relative_to(ROOT)


def object_of(source: Path) -> str:
    return f"build/release/{source.with_suffix('.o')}"


class Included:
    """Within it, a file of the tree includes the header."""

    def __init__(self, file: Path, header: str) -> None:
        self._file = file
        self._text = file.read_text()
        self._header = header

    def __enter__(self) -> None:
        self._file.write_text(f"#include <{self._header}>\n{self._text}")

    def __exit__(self, *_: object) -> None:
        self._file.write_text(self._text)


def test_every_folder_of_the_core_is_covered() -> None:
    core = ROOT / "horovod_tf/common"
    with_sources = {str(path.parent.relative_to(core)) for path in core.rglob("*.cc")}
    assert with_sources - {"mpi", "cuda"} == set(FOLDERS)


def test_every_header_in_the_boundary_folder_is_covered() -> None:
    boundary = ROOT / "tools/boundary"
    known = {str(path.relative_to(boundary)) for path in boundary.rglob("*.h")}
    assert known == {header for header, known in HEADERS if known}


@pytest.mark.parametrize("folder", FOLDERS)
def test_core_file_compiles_without_the_include(run: Run, source_copy: Path, folder: str) -> None:
    done = run("make", QUICK, object_of(smallest_source(folder)), cwd=source_copy)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize(("header", "known"), HEADERS)
def test_core_file_with_the_include_does_not_compile(
    run: Run, source_copy: Path, folder: str, header: str, known: bool
) -> None:
    source = smallest_source(folder)
    with Included(source_copy / source, header):
        done = run("make", QUICK, object_of(source), cwd=source_copy)
    assert done.returncode != 0
    expected = "the core must not include" if known else f"{header}: No such file or directory"
    assert expected in done.stderr


def test_make_lib_fails_when_a_core_header_includes_mpi(run: Run, source_copy: Path) -> None:
    with Included(source_copy / "horovod_tf/common/base/status.h", "mpi.h"):
        done = run("make", QUICK, "lib", cwd=source_copy)
    assert done.returncode != 0
    assert "the core must not include <mpi.h>" in done.stderr
    assert not (source_copy / "horovod_tf/common/libhorovod_common.so").exists()


@pytest.mark.parametrize("variable", ["CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"])
@pytest.mark.parametrize("header", ["mpi.h", "nccl.h", "tensorflow/core/deep/inside.h"])
def test_include_path_of_the_environment_is_no_way_in(
    run: Run, source_copy: Path, tmp_path: Path, variable: str, header: str
) -> None:
    fake = tmp_path / header
    fake.parent.mkdir(parents=True, exist_ok=True)
    fake.write_text("// a header that compiles\n")
    source = smallest_source("base")
    with Included(source_copy / source, header):
        done = run("make", QUICK, object_of(source), cwd=source_copy, **{variable: str(tmp_path)})
    assert done.returncode != 0
    assert "the core must not include" in done.stderr or "No such file or directory" in done.stderr


@pytest.mark.parametrize("option", ["-I", "-isystem"])
@pytest.mark.parametrize("header", ["mpi.h", "cuda_runtime_api.h", "tensorflow/core/deep/inside.h", "xla/shape.h"])
def test_include_path_on_the_command_line_is_no_way_in(
    run: Run, source_copy: Path, tmp_path: Path, option: str, header: str
) -> None:
    fake = tmp_path / header
    fake.parent.mkdir(parents=True, exist_ok=True)
    fake.write_text("// a header that compiles, as where it is installed system-wide\n")
    source = smallest_source("protocol")
    (source_copy / object_of(source)).unlink(missing_ok=True)
    with Included(source_copy / source, header):
        done = run("make", f"{QUICK} {option} {tmp_path}", object_of(source), cwd=source_copy)
    assert done.returncode != 0
    assert "the core must not include" in done.stderr
    assert not (source_copy / object_of(source)).exists()
