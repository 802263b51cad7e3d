"""Starts and stops the native core and asks it who we are, through ctypes.

Importing this module loads the library, once, with its symbols kept to itself (RTLD_LOCAL). Every function may be
called from any thread.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from horovod_tf._version import __version__
from horovod_tf.common import ending, interrupts

LIBRARY_PATH: Final = Path(__file__).with_name("libhorovod_common.so")

# Every function of c_api.h: name -> (argtypes, restype). A test compares this with the header and with what the
# library exports, as ctypes would otherwise guess, and guess wrong for everything that is not an int.
PROTOTYPES: Final[dict[str, tuple[list[Any], Any]]] = {
    "horovod_agree_on": ([ctypes.c_char_p, ctypes.c_char_p], ctypes.c_int),
    "horovod_init": ([], ctypes.c_int),
    "horovod_init_ranks": ([ctypes.POINTER(ctypes.c_int), ctypes.c_int], ctypes.c_int),
    "horovod_shutdown": ([], ctypes.c_int),
    "horovod_shutdown_because": ([ctypes.c_char_p], ctypes.c_int),
    "horovod_finalize": ([], ctypes.c_int),
    "horovod_is_initialized": ([], ctypes.c_int),
    "horovod_rank": ([], ctypes.c_int),
    "horovod_size": ([], ctypes.c_int),
    "horovod_local_rank": ([], ctypes.c_int),
    "horovod_local_size": ([], ctypes.c_int),
    "horovod_cross_rank": ([], ctypes.c_int),
    "horovod_cross_size": ([], ctypes.c_int),
    "horovod_is_homogeneous": ([], ctypes.c_int),
    "horovod_mpi_threads_supported": ([], ctypes.c_int),
    "horovod_add_process_set": ([ctypes.POINTER(ctypes.c_int), ctypes.c_int], ctypes.c_int),
    "horovod_remove_process_set": ([ctypes.c_int], ctypes.c_int),
    "horovod_process_set_size": ([ctypes.c_int], ctypes.c_int),
    "horovod_process_set_rank": ([ctypes.c_int], ctypes.c_int),
    "horovod_process_set_included": ([ctypes.c_int], ctypes.c_int),
    "horovod_process_set_ids": ([ctypes.POINTER(ctypes.c_int), ctypes.c_int], ctypes.c_int),
    "horovod_process_set_ranks": (
        [ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.c_int],
        ctypes.c_int,
    ),
    "horovod_start_timeline": ([ctypes.c_char_p], ctypes.c_int),
    "horovod_stop_timeline": ([], ctypes.c_int),
    "horovod_status": ([], ctypes.c_char_p),
    "horovod_interrupt": ([ctypes.c_char_p], None),
    "horovod_last_error": ([], ctypes.c_char_p),
    "horovod_last_error_code": ([], ctypes.c_int),
    "horovod_version": ([], ctypes.c_char_p),
    "horovod_environment_markdown": ([], ctypes.c_char_p),
}

# Codes of horovod_last_error_code() that say that the caller can mend it: InvalidArgument, FailedPrecondition.
_CALLERS_FAULT: Final = frozenset({3, 9})
_NOT_INITIALIZED: Final = -1
_NO_SUCH_SET: Final = -3
_NO_MEMBER: Final = -4
# When a rank has ended badly the launcher ends the others; so long they have to say what they have been told.
_LAST_WORD_SECONDS: Final = 1.0
_BUILD_IT: Final = "run `make lib` in the source tree, or install the package again"


def _load() -> ctypes.CDLL:
    """Loads the library and declares its functions.

    Raises:
        ImportError: it is missing, cannot be loaded, or belongs to another version of this package.
    """
    if not LIBRARY_PATH.exists():
        raise ImportError(f"the native library {LIBRARY_PATH} has not been built: {_BUILD_IT}", path=str(LIBRARY_PATH))
    try:
        library = ctypes.CDLL(str(LIBRARY_PATH), mode=ctypes.RTLD_LOCAL)
        for name, (argtypes, restype) in PROTOTYPES.items():
            function = getattr(library, name)
            function.argtypes = argtypes
            function.restype = restype
    except (OSError, AttributeError) as error:
        raise ImportError(
            f"the native library does not fit this package ({error}): {_BUILD_IT}", path=str(LIBRARY_PATH)
        ) from error
    version = library.horovod_version().decode()
    if version != __version__:
        raise ImportError(
            f"{LIBRARY_PATH} is version {version}, this package is {__version__}: {_BUILD_IT}", path=str(LIBRARY_PATH)
        )
    return library


_library: Final = _load()


def _raise_last_error() -> None:
    """Raises what this thread's failed call left behind."""
    # In this order: the text is valid until the next call.
    text = _library.horovod_last_error().decode(errors="replace")
    if _library.horovod_last_error_code() in _CALLERS_FAULT:
        raise ValueError(text)
    raise RuntimeError(text)


def _ask(name: str, *arguments: object) -> int:
    """The answer of one of the functions that need an initialized library."""
    answer = int(getattr(_library, name)(*arguments))
    if answer == _NOT_INITIALIZED:
        _raise_last_error()
    return answer


def agree_on(name: str, value: str) -> None:
    """Makes `init()` fail, with both values, where ranks have said different ones of this name by then."""
    if _library.horovod_agree_on(name.encode(), value.encode()) != 0:
        _raise_last_error()


def _numbers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int]:
    return (ctypes.c_int * len(values))(*values)


def _init(ranks: Sequence[int]) -> None:
    if _library.horovod_init_ranks(_numbers(ranks), len(ranks)) != 0:
        _raise_last_error()


def _end_with_python() -> None:
    # Once, and after whatever the program registered before: what still uses the library ends first.
    atexit.unregister(_end)
    atexit.register(_end)


def init(ranks: Sequence[int] = ()) -> None:
    """Starts the library and meets the other ranks. Harmless when repeated; works again after `shutdown()`.

    The library shuts down by itself when Python exits.

    Returns or fails within HOROVOD_TF_INIT_TIMEOUT_SECONDS and a second or two.

    Args:
        ranks: Which of the processes that were started together are the job, by rank in it; none: all of them.

    Raises:
        ValueError: an environment variable does not parse, or the library cannot start the way it was asked to.
        RuntimeError: something else failed; the text says what.
    """
    try:
        interrupts.call(lambda: _init(ranks))
    except ValueError:
        # A process that is not to be in the job has initialised MPI all the same.
        _end_with_python()
        raise
    interrupts.watch(lambda reason: _library.horovod_interrupt(reason.encode()))
    ending.watch(_shutdown_because_of_the_end)
    _end_with_python()


def shutdown() -> None:
    """Stops the library on all ranks. Harmless when repeated and before `init()`.

    Raises:
        RuntimeError: it did not stop in time.
    """
    if _library.horovod_shutdown() != 0:
        _raise_last_error()


def _shutdown_because_of_the_end() -> int:
    """The status of the call that tells the other ranks how this program ends."""
    reason = ending.reason().encode(errors="replace").replace(b"\0", b"?")
    return int(_library.horovod_shutdown_because(reason))


def _end() -> None:
    """What is done when Python exits.

    MPI is finalised too if `init()` has initialised it and nothing has failed. That waits for the other ranks, who may
    be busy for long: it is for good ends only.
    """
    bad = ending.is_bad()
    others = is_initialized() and size() > 1
    if _shutdown_because_of_the_end() != 0:
        _raise_last_error()
    if bad:
        if others:
            time.sleep(_LAST_WORD_SECONDS)
    elif _library.horovod_finalize() != 0:
        _raise_last_error()


def is_initialized() -> bool:
    """Whether the library runs: between a successful `init()` and `shutdown()`."""
    return bool(_library.horovod_is_initialized())


def rank() -> int:
    """This process's number among all, from 0.

    Raises:
        ValueError: before `init()`; so do all of the following.
    """
    return _ask("horovod_rank")


def size() -> int:
    """Number of processes."""
    return _ask("horovod_size")


def local_rank() -> int:
    """This process's number among those on its host, from 0: which GPU to take."""
    return _ask("horovod_local_rank")


def local_size() -> int:
    """Number of processes on this host."""
    return _ask("horovod_local_size")


def cross_rank() -> int:
    """This host's number among the hosts that have a process with this local rank, from 0."""
    return _ask("horovod_cross_rank")


def cross_size() -> int:
    """Number of hosts that have a process with this local rank."""
    return _ask("horovod_cross_size")


def is_homogeneous() -> bool:
    """Whether every host has the same number of processes."""
    return bool(_ask("horovod_is_homogeneous"))


def add_process_set(ranks: Sequence[int]) -> int:
    """The id of a new process set, above 0. All ranks of the job call it, and it waits for them.

    Args:
        ranks: Of the job, by rank in the set; the same on all ranks.

    Raises:
        ValueError: as on all ranks: they do not agree, there is such a set, or there are no such ranks; or before
            `init()`.
        RuntimeError: it could not be made, or the job has ended.
    """
    added: list[int] = []

    def add() -> None:
        added.append(int(_library.horovod_add_process_set(_numbers(ranks), len(ranks))))
        if added[0] < 0:
            _raise_last_error()

    interrupts.call(add)
    return added[0]


def remove_process_set(process_set: int) -> None:
    """Ends a process set. All ranks of the job call it, and it waits for them.

    Raises:
        ValueError: as on all ranks: they do not agree, or there is no such set; or before `init()`.
        RuntimeError: it did not end well, or the job has ended.
    """

    def remove() -> None:
        if _library.horovod_remove_process_set(process_set) != 0:
            _raise_last_error()

    interrupts.call(remove)


def _ask_set(name: str, process_set: int, *arguments: object) -> int:
    answer = _ask(name, process_set, *arguments)
    if answer == _NO_SUCH_SET:
        raise ValueError(f"process set {process_set}: Process set does not exist or has not been registered.")
    if answer == _NO_MEMBER:
        raise ValueError(f"rank {rank()}, in process set {process_set}: Process is not part of provided process set.")
    return answer


def process_set_size(process_set: int) -> int:
    """Number of processes in a process set.

    Raises:
        ValueError: there is no such set, or before `init()`; so do all of the following.
    """
    return _ask_set("horovod_process_set_size", process_set)


def process_set_rank(process_set: int) -> int:
    """This process's number in a process set. It is a ValueError that it is no member."""
    return _ask_set("horovod_process_set_rank", process_set)


def process_set_included(process_set: int) -> bool:
    """Whether this process is a member of a process set."""
    return bool(_ask_set("horovod_process_set_included", process_set))


def process_set_ranks(process_set: int) -> list[int]:
    """The members of a process set, as ranks of the job."""
    ranks = _numbers([0] * process_set_size(process_set))
    _ask_set("horovod_process_set_ranks", process_set, ranks, len(ranks))
    return list(ranks)


def process_set_ids() -> list[int]:
    """All process sets that there are; 0, of all ranks, is the first."""
    ids = _numbers([0] * _ask("horovod_process_set_ids", None, 0))
    count = _ask("horovod_process_set_ids", ids, len(ids))
    return list(ids)[:count]


def start_timeline(file_path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """From now on rank 0 writes a Chrome trace of what every tensor is doing.

    Any rank may call it; on others nothing happens. What is under way may lack its beginning. Another file that is
    written is finished; the same one again changes nothing. `HOROVOD_TIMELINE` writes one from the start.

    Args:
        file_path: The file, which is replaced.
        mark_cycles: Of no use: there are no cycles, as work is started by messages.

    Raises:
        ValueError: before `init()`, or the file cannot be made.
    """
    del mark_cycles
    if _library.horovod_start_timeline(os.fsencode(file_path)) != 0:
        _raise_last_error()


def stop_timeline() -> None:
    """Finishes the timeline's file; harmless when there is none.

    Raises:
        ValueError: before `init()`.
    """
    if _library.horovod_stop_timeline() != 0:
        _raise_last_error()


def mpi_threads_supported() -> bool:
    """Whether MPI may be called from several threads at once, by mpi4py for instance."""
    return bool(_ask("horovod_mpi_threads_supported"))


def status() -> str:
    """What this rank does, for people who wonder why nothing goes on.

    Several lines: how many collectives it has executed and which was the last, or what waits here, for how long and for
    which ranks; and all settings in force. `kill -USR1 PID` prints the same to standard error at any time, also while
    Python waits in an operation, unless the program handles that signal itself. Takes two seconds at most.
    """
    return str(_library.horovod_status().decode(errors="replace"))


def version() -> str:
    """The native library's version. Works before `init()`."""
    return str(_library.horovod_version().decode())


def environment_markdown() -> str:
    """The page on environment variables, from the table that the library parses with. Works before `init()`."""
    return str(_library.horovod_environment_markdown().decode())
