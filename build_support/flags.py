"""Flags to compile and link against TensorFlow, MPI, CUDA and NCCL, asked of what is installed.

Nothing is compiled to find out: a missing header shows in the build itself, with the compiler's own words. The
Makefile asks through the command line, `python -m build_support.flags WHAT --compile|--link`; the answer is a response
file for the compiler.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple


class Flags(NamedTuple):
    """What the compiler and the linker are told."""

    compile: list[str]
    link: list[str]


class NotFoundError(RuntimeError):
    """Something the build was asked for is not installed; the text says what to do."""


def tensorflow_flags() -> Flags:
    """Flags of the TensorFlow that this interpreter imports.

    Its headers come as system headers: they are not ours to have warnings about.

    Raises:
        NotFoundError: there is none, or it cannot be imported.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # or it says that they are on
    try:
        import tensorflow as tf
    except ImportError as error:
        raise NotFoundError(
            f"TensorFlow cannot be imported ({error}): install it for this Python, or name another one: PYTHON=..."
        ) from error
    compile_flags: list[str] = []
    for flag in tf.sysconfig.get_compile_flags():
        if flag.startswith("-I"):
            compile_flags += ["-isystem", flag[2:]]
        elif not flag.startswith(("-std=", "--std=")):  # ours is given with our own flags
            compile_flags.append(flag)
    return Flags(compile_flags, list(tf.sysconfig.get_link_flags()))


def tensorflow_version() -> str:
    """Version of the TensorFlow that `tensorflow_flags` speaks of."""
    import tensorflow as tf

    return str(tf.__version__)


def which_tensorflow() -> str:
    """What changes when another TensorFlow takes its place. Cheap: nothing is imported. Empty if there is none."""
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:
        return ""
    return f"{spec.origin} {os.stat(spec.origin).st_mtime_ns}"


def mpi_flags() -> Flags:
    """Flags of the MPI whose compiler wrapper is MPICXX or, without that, the first `mpicxx` in the PATH.

    Raises:
        NotFoundError: there is no wrapper, or it is of no known kind.
    """
    wrapper = os.environ.get("MPICXX") or "mpicxx"
    if shutil.which(wrapper) is None:
        raise NotFoundError(
            f"there is no MPI compiler wrapper {wrapper}: install an MPI, or name its wrapper: MPICXX=..."
        )
    # Open MPI's and MPICH's way of saying what they would run. MPICH's answer begins with the compiler.
    for options in (["--showme:compile", "--showme:link"], ["-compile_info", "-link_info"]):
        answers = [subprocess.run([wrapper, option], capture_output=True, text=True, check=False) for option in options]
        if all(answer.returncode == 0 for answer in answers):
            compile_words, link_words = (_after_compiler(shlex.split(answer.stdout)) for answer in answers)
            return Flags(_as_system(compile_words), link_words)
    raise NotFoundError(f"{wrapper} is neither Open MPI's nor MPICH's wrapper: it does not say its flags")


def cuda_flags() -> Flags:
    """Flags of the CUDA toolkit in CUDA_HOME, CUDA_PATH or /usr/local/cuda.

    Raises:
        NotFoundError: there is none.
    """
    return _library_in(("CUDA_HOME", "CUDA_PATH"), "/usr/local/cuda", "cuda_runtime_api.h", "cudart")


def nccl_flags() -> Flags:
    """Flags of the NCCL in NCCL_HOME or /usr.

    Raises:
        NotFoundError: there is none.
    """
    return _library_in(("NCCL_HOME",), "/usr", "nccl.h", "nccl")


def _after_compiler(words: list[str]) -> list[str]:
    return words[1:] if words and not words[0].startswith("-") else words


def _as_system(words: list[str]) -> list[str]:
    """Without what is not a flag for compiling; include paths as system paths."""
    flags: list[str] = []
    for word in words:
        if word.startswith("-I"):
            flags += ["-isystem", word[2:]]
        elif word.startswith(("-D", "-pthread")):
            flags.append(word)
    return flags


def _library_in(variables: tuple[str, ...], default: str, header: str, library: str) -> Flags:
    home = Path(next((os.environ[name] for name in variables if os.environ.get(name)), default))
    if not (home / "include" / header).exists():
        raise NotFoundError(f"{home}/include has no {header}: install it, or say where it is with {variables[0]}=...")
    folder = next((home / name for name in ("lib64", "lib") if (home / name).is_dir()), home / "lib")
    return Flags(["-isystem", str(home / "include")], [f"-L{folder}", f"-Wl,-rpath,{folder}", f"-l{library}"])


FINDERS = {"tensorflow": tensorflow_flags, "mpi": mpi_flags, "cuda": cuda_flags, "nccl": nccl_flags}


def main() -> None:
    """Prints one of the lists of flags, or the generated Python file that says what the operations were built for."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("what", choices=FINDERS)
    parser.add_argument("answer", choices=("compile", "link", "build-info", "which"))
    arguments = parser.parse_args()
    if arguments.answer == "which":
        print(which_tensorflow())
        return
    try:
        flags = FINDERS[arguments.what]()
    except NotFoundError as error:
        parser.exit(1, f"{error}\n")
    if arguments.answer == "build-info":
        print('"""What libhorovod_tf_ops.so was built for. Written by the build."""\n')
        print(f'TENSORFLOW_VERSION = "{tensorflow_version()}"')
    else:
        print(shlex.join(getattr(flags, arguments.answer)))


if __name__ == "__main__":
    main()
