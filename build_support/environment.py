"""Makes the Python environment that `make demo`, `make test` and `make lint` run in.

    python3 build_support/environment.py FOLDER REQUIREMENTS

Does nothing if FOLDER is what it would make: of this interpreter, with these requirements. A folder that exists and
was not made by this program is somebody's: nothing is changed in it, it only has to have what is needed. Runs on any
Python 3, to say which one is needed, and imports the standard library only.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST, NEWEST = (3, 9), (3, 13)  # TensorFlow has a release for these
STAMP = ".stamp"  # what the folder was made of; empty while it is being made
NEEDED = ("tensorflow", "numpy", "pytest")  # in a folder of somebody's


class CannotMakeError(RuntimeError):
    """The text is one line that says what to do."""


def requirements_in(path: Path) -> str:
    """The text of a requirements file and of those that it includes."""
    text = path.read_text()
    included = [line.split()[1] for line in text.splitlines() if line.startswith("-r ")]
    return text + "".join(requirements_in(path.parent / name) for name in included)


def interpreter() -> str:
    """This interpreter, or the one that its environment was made of."""
    return os.path.realpath(sys.executable)


def how_to_install(folder: Path) -> list[str]:
    """The command that begins an installation by pip into the folder, which is made.

    Raises:
        CannotMakeError: there is nothing to install with.
    """
    has_pip = importlib.util.find_spec("ensurepip") is not None
    lends_pip = importlib.util.find_spec("pip") is not None
    if importlib.util.find_spec("venv") is None or not (has_pip or lends_pip):
        version = "{}.{}".format(*sys.version_info[:2])
        raise CannotMakeError(
            f"this Python has no venv, which is needed to make {folder}: apt-get install python3-venv "
            f"(or python{version}-venv)"
        )
    subprocess.run([interpreter(), "-m", "venv", *([] if has_pip else ["--without-pip"]), str(folder)], check=True)
    python = str(folder / "bin/python")
    return [python, "-m", "pip"] if has_pip else [interpreter(), "-m", "pip", "--python", python]


def add_package(folder: Path) -> None:
    """Lets scripts in any folder import the package from this tree."""
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "horovod_tf.pth").write_text(f"{Path(__file__).resolve().parent.parent}\n")


def check_version() -> None:
    """Raises CannotMakeError if there is no TensorFlow for this Python."""
    have, oldest, newest = ("{}.{}".format(*version[:2]) for version in (sys.version_info, OLDEST, NEWEST))
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        raise CannotMakeError(
            f"{sys.executable} is Python {have}, for which there is no TensorFlow: name one from {oldest} to {newest}, "
            "PYTHON=..."
        )


def check_foreign(folder: Path) -> None:
    """Raises CannotMakeError if the folder lacks what is needed."""
    code = f"import importlib.util as u; print(*[n for n in {NEEDED!r} if u.find_spec(n) is None])"
    answer = subprocess.run([str(folder / "bin/python"), "-c", code], stdout=subprocess.PIPE, check=True)
    missing = answer.stdout.decode().split()
    if missing:
        raise CannotMakeError(
            f"{folder} was not made by this Makefile and has no {', '.join(missing)}: install that there, or remove "
            "the folder to have it made"
        )


def make(folder: Path, requirements: Path) -> None:
    """Makes the folder unless it is there.

    Raises:
        CannotMakeError: something is missing.
        subprocess.CalledProcessError: a command has failed and said why.
    """
    stamp = folder / STAMP
    if (folder / "bin/python").exists() and not stamp.exists():
        check_foreign(folder)
        return
    text = requirements_in(requirements)
    if "tensorflow" in text:
        check_version()
    # Scripts in the folder name it, so that one which was moved is no longer right.
    wanted = f"{interpreter()}\n{folder.resolve()}\n{hashlib.sha256(text.encode()).hexdigest()}\n"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"Installing {requirements} into {folder}; this is done once and takes a minute or more.", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    stamp.write_text("")
    install = [*how_to_install(folder), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "--requirement", str(requirements)], check=True)
    if "tensorflow" in text:
        add_package(folder)
    stamp.write_text(wanted)


def main() -> int:
    """The exit status."""
    try:
        make(Path(sys.argv[1]), Path(sys.argv[2]))
    except CannotMakeError as error:
        print(error, file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"failed: {' '.join(map(str, error.cmd))}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
