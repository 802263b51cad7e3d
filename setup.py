"""Builds the native libraries by driving the Makefile; everything else is in pyproject.toml.

The operations are built for the TensorFlow of this interpreter, which must be there, and the MPI library for the MPI
of MPICXX or the first `mpicxx` in the PATH, if there is one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

from setuptools import Command, setup
from setuptools.command.build import build
from setuptools.dist import Distribution

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from build_support.flags import NotFoundError, mpi_flags  # noqa: E402

PACKAGE = "horovod_tf"


def _has_mpi() -> bool:
    try:
        mpi_flags()
    except NotFoundError as error:
        print(f"without MPI, for one process only: {error}")
        return False
    return True


class BuildNative(Command):
    """Makes what `make ops` makes and, unless installing in place, copies it into the build folder."""

    description = "build the native libraries"
    user_options: ClassVar[list[tuple[str, str | None, str]]] = []
    # Set by setuptools: its editable installs leave the libraries where the Makefile puts them.
    editable_mode = False
    build_lib: str | None = None

    def initialize_options(self) -> None:
        """Nothing to do."""
        self.build_lib = None

    def finalize_options(self) -> None:
        """The build folder is the one of the whole build."""
        self.set_undefined_options("build", ("build_lib", "build_lib"))

    def run(self) -> None:
        """Runs make with this interpreter. MAKEFLAGS are the caller's, or as many jobs as there are processors."""
        environment = {"MAKEFLAGS": f"-j{os.cpu_count() or 1}", **os.environ}
        make = [os.environ.get("MAKE", "make"), f"PYTHON={sys.executable}"]
        for goal in ("ops", "mpi") if _has_mpi() else ("ops",):
            subprocess.run([*make, goal], cwd=ROOT, env=environment, check=True)
        if self.editable_mode:
            return
        for name in self.get_outputs():
            target = Path(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / target.relative_to(self._folder()), target)

    def get_outputs(self) -> list[str]:
        """The files in the build folder."""
        return [str(self._folder() / path) for path in self.get_output_mapping().values()]

    def get_output_mapping(self) -> dict[str, str]:
        """From the build folder's files to the source tree's. The Makefile decides what there is."""
        native = [*(ROOT / PACKAGE).rglob("*.so"), ROOT / PACKAGE / "ops/_build_info.py"]
        return {str(path.relative_to(ROOT)): str(path.relative_to(ROOT)) for path in sorted(native)}

    def get_source_files(self) -> list[str]:
        """What a source distribution needs beside the packages."""
        return []

    def _folder(self) -> Path:
        return Path(self.build_lib or "build/lib")


class Build(build):
    """The usual build, with the native part first, so that what it generates is there to be packaged."""

    sub_commands: ClassVar[list[Any]] = [("build_native", None), *build.sub_commands]


class NativeDistribution(Distribution):
    """Says that the wheel is for this kind of machine."""

    def has_ext_modules(self) -> bool:
        """The Makefile builds them."""
        return True


if __name__ == "__main__":
    setup(cmdclass={"build": Build, "build_native": BuildNative}, distclass=NativeDistribution)
