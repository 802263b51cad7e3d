"""The Makefile rebuilds what has become stale, and nothing else; and says what is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support import Run

TWO = "horovod_tf/common/base/status.cc horovod_tf/common/base/check.cc"


class Build:
    """`make lib` of a few sources in a copy of the tree; answers with what was compiled."""

    def __init__(self, run: Run, tree: Path) -> None:
        self._run = run
        self.tree = tree

    def __call__(self, *arguments: str, sources: str = TWO) -> list[str]:
        done = self._run(
            "make", "lib", "V=1", "BUILD=build/incremental", f"CORE_SOURCES={sources}", *arguments, cwd=self.tree
        )
        assert done.returncode == 0, done.stderr
        steps = re.findall(r" -c \S*/(\w+)\.cc ", done.stdout)
        return sorted(steps) + (["link"] if " -shared " in done.stdout else [])


@pytest.fixture
def build(run: Run, source_copy: Path) -> Build:
    built = Build(run, source_copy)
    built("CXXFLAGS=-O0")
    return built


def test_second_build_does_nothing(build: Build) -> None:
    assert build("CXXFLAGS=-O0") == []


@pytest.mark.parametrize("arguments", [["CXXFLAGS=-O1"], ["CXXFLAGS=-O0", "STRICT=1"], ["CXXFLAGS=-O0", "CXX=c++"]])
def test_changed_flags_or_compiler_rebuild_everything(build: Build, arguments: list[str]) -> None:
    assert build(*arguments) == ["check", "status", "link"]
    assert build(*arguments) == []


def test_changed_linker_flags_only_link(build: Build) -> None:
    assert build("CXXFLAGS=-O0", "LDFLAGS=-Wl,-O1") == ["link"]


def test_changed_header_rebuilds_who_includes_it(build: Build) -> None:
    (build.tree / "horovod_tf/common/base/status.h").touch()
    assert build("CXXFLAGS=-O0") == ["status", "link"]
    (build.tree / "horovod_tf/common/base/check.h").touch()
    assert build("CXXFLAGS=-O0") == ["check", "status", "link"]


def test_source_that_was_removed_leaves_the_library(build: Build) -> None:
    assert build("CXXFLAGS=-O0", sources="horovod_tf/common/base/check.cc") == ["link"]


def test_removed_header_is_no_obstacle(build: Build) -> None:
    header = build.tree / "horovod_tf/common/base/gone.h"
    source = build.tree / "horovod_tf/common/base/temporary.cc"
    header.write_text("")
    source.write_text('#include "horovod_tf/common/base/gone.h"\n')
    sources = f"{TWO} horovod_tf/common/base/temporary.cc"
    try:
        assert build("CXXFLAGS=-O0", sources=sources) == ["temporary", "link"]
        header.unlink()
        source.write_text("\n")
        assert build("CXXFLAGS=-O0", sources=sources) == ["temporary", "link"]
    finally:
        source.unlink()
        header.unlink(missing_ok=True)


def test_unknown_variant_is_refused(run: Run, source_copy: Path) -> None:
    done = run("make", "VARIANT=fast", "lib", cwd=source_copy)
    assert done.returncode != 0
    assert "VARIANT=fast is none of release, asan" in done.stderr


def test_missing_gtest_names_the_package(run: Run, source_copy: Path) -> None:
    # A compiler that finds no header at all stands in for a machine without gtest.
    done = run("make", "CXX=g++ -nostdinc", "BUILD=build/no_gtest", "build/no_gtest/gtest.found", cwd=source_copy)
    assert done.returncode != 0
    assert "apt-get install libgtest-dev" in done.stderr


@pytest.mark.parametrize("tests", ["test-cpp", "test-mpi"])
def test_missing_gtest_is_no_failure_of_make_test(tests: str, run: Run, source_copy: Path) -> None:
    done = run("make", "CXX=g++ -nostdinc", "BUILD=build/no_gtest", f"{tests}-if-possible", cwd=source_copy)
    assert done.returncode == 0, done.stderr
    assert "The native tests are left out: they need gtest (apt-get install libgtest-dev)" in done.stdout
