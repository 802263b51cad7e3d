"""The boundary is a build error: the core reads only itself, the standard library and POSIX, by the real Makefile."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support import ROOT, Run

FOLDERS = [".", "base", "protocol", "shm", "transport", "collectives", "runtime"]
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

    def __init__(self, file: Path, header: str, quoted: bool = False) -> None:
        self._file = file
        self._text = file.read_text()
        self._header = f'"{header}"' if quoted else f"<{header}>"

    def __enter__(self) -> None:
        self._file.write_text(f"#include {self._header}\n{self._text}")

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


@pytest.mark.parametrize("option", ["-I", "-isystem", "-iquote"])
@pytest.mark.parametrize(
    "header",
    [
        *("mpi.h", "cuda_runtime_api.h", "tensorflow/core/deep/inside.h", "xla/shape.h", "cuda_fp16.h"),
        *("driver_types.h", "mpi-ext.h", "nccl_net.h", "absl/strings/str_cat.h", "Eigen/Core", "stdio2.h"),
    ],
)
def test_include_path_on_the_command_line_is_no_way_in(
    run: Run, source_copy: Path, tmp_path: Path, option: str, header: str
) -> None:
    fake = tmp_path / header
    fake.parent.mkdir(parents=True, exist_ok=True)
    fake.write_text("// a header that compiles, as where it is installed system-wide\n")
    source = smallest_source("protocol")
    (source_copy / object_of(source)).unlink(missing_ok=True)
    with Included(source_copy / source, header, quoted=option == "-iquote"):
        done = run("make", f"{QUICK} {option} {tmp_path}", object_of(source), cwd=source_copy)
    assert done.returncode != 0
    assert "the core must not include" in done.stderr
    assert not (source_copy / object_of(source)).exists()


def test_list_of_headers_cannot_be_led_elsewhere(run: Run, source_copy: Path, tmp_path: Path) -> None:
    (tmp_path / "nccl_net.h").write_text("// a header that compiles\n")
    source = smallest_source("base")
    with Included(source_copy / source, "nccl_net.h"):
        done = run("make", f"{QUICK} -I{tmp_path} -MF {tmp_path}/other.d", object_of(source), cwd=source_copy)
    assert done.returncode != 0
    assert f"the core must not include {tmp_path}/nccl_net.h" in done.stderr


def test_clang_agrees(run: Run, source_copy: Path, tmp_path: Path) -> None:
    if shutil.which("clang++") is None:
        pytest.skip("clang++ is not installed")
    (tmp_path / "nccl_net.h").write_text("// a header that compiles\n")
    source = smallest_source("base")
    command = ("make", "CXX=clang++", f"{QUICK} -I{tmp_path}", object_of(source))
    assert run(*command, cwd=source_copy).returncode == 0
    with Included(source_copy / source, "nccl_net.h"):
        done = run(*command, cwd=source_copy)
    assert done.returncode != 0
    assert f"the core must not include {tmp_path}/nccl_net.h" in done.stderr


# What g++ 12 and clang 14 of Debian 12 and g++ 14 of Debian 13 print, and the image of gcc's makers.
SEARCH_LIST = """
#include <...> search starts here:
 /usr/include/c++/12
 /usr/bin/../lib/gcc/x86_64-linux-gnu/14/../../../../include/c++/14
 /usr/include/x86_64-linux-gnu/c++/12
 /usr/local/include/c++/14.2.0
 /usr/lib/gcc/x86_64-linux-gnu/12/include
 /usr/lib/llvm-14/lib/clang/14.0.6/include
 /usr/local/include
 /usr/include/x86_64-linux-gnu
 /usr/include
End of search list.
 /opt/not/in/the/list
"""


def foreign(run: Run, tmp_path: Path, *headers: str) -> tuple[int, list[str]]:
    (tmp_path / "folders").write_text(SEARCH_LIST)
    (tmp_path / "file.d").write_text("a/b.o: " + " \\\n ".join(headers) + "\n" + "".join(f"{h}:\n" for h in headers))
    own = "own=^horovod_tf/common/"
    script = str(ROOT / "tools/check_includes.awk")
    done = run("awk", "-f", script, "-v", own, str(tmp_path / "folders"), str(tmp_path / "file.d"))
    return done.returncode, done.stdout.splitlines()


def test_headers_of_the_standard_library_and_the_system_are_allowed(run: Run, tmp_path: Path) -> None:
    allowed = [
        "horovod_tf/common/base/status.h",
        "./horovod_tf/common/base/status.h",
        "/usr/include/c++/12/vector",
        "/usr/include/c++/14/bits/stl_vector.h",
        "/usr/bin/../lib/gcc/x86_64-linux-gnu/14/../../../../include/c++/14/string",
        "/usr/include/x86_64-linux-gnu/c++/12/bits/c++config.h",
        "/usr/local/include/c++/14.2.0/string",
        "/usr/lib/gcc/x86_64-linux-gnu/12/include/immintrin.h",
        "/usr/lib/llvm-14/lib/clang/14.0.6/include/stddef.h",
        "/usr/include/stdio.h",
        "/usr/include/features-time64.h",
        "/usr/include/x86_64-linux-gnu/bits/types/FILE.h",
        "/usr/include/x86_64-linux-gnu/sys/mman.h",
        "/usr/include/linux/futex.h",
    ]
    assert foreign(run, tmp_path, *allowed) == (0, [])


@pytest.mark.parametrize(
    "header",
    [f"/usr/include/{name}" for name in ("mpi.h", "cuda_fp16.h", "driver_types.h", "mpi-ext.h", "nccl_net.h", "stdio")]
    + ["/usr/include/absl/strings/str_cat.h", "/usr/include/Eigen/Core", "/usr/include/eigen3/Eigen/stdio.h"]
    + ["/usr/include/x86_64-linux-gnu/mpi/mpi.h", "/usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h"]
    + ["/usr/local/include/nccl_net.h", "/opt/not/in/the/list/stdio.h", "/usr/include/c++/12/../../cuda_fp16.h"]
    + ["third_party/stdio.h", "horovod_tf/common/../../third_party/x.h", "../horovod_tf/common/x.h"]
    + ["/usr/include/gtest/gtest.h", "test/cpp/support/test_entry.h"],
)
def test_header_that_nobody_listed_is_foreign(run: Run, tmp_path: Path, header: str) -> None:
    code, found = foreign(run, tmp_path, "/usr/include/stdio.h", header)
    assert code == 1
    assert len(found) == 1
    assert found[0].endswith(header.rpartition("/")[2])


def test_check_that_has_nothing_to_look_at_fails(run: Run, tmp_path: Path) -> None:
    assert foreign(run, tmp_path)[0] == 2
