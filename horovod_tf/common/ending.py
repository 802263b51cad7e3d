"""How the program of this process ends, which the ranks that still wait for it are to be told."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Final, NoReturn

_LONGEST: Final = 1000  # characters; TensorFlow's errors quote whole graphs
_BY_ITSELF: Final = (
    "its program has ended, by itself, by sys.exit or by SystemExit; has it had fewer steps or less data than the "
    "others?"
)
_codes: Final[list[object]] = []  # what sys.exit was given by which the program ends
_threads: Final[list[str]] = []  # threads that an exception has ended, and which; text, to keep nothing alive


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class _Exit(SystemExit):
    """As SystemExit, but known here when nobody has caught it: Python itself keeps nothing of it."""

    def __del__(self) -> None:
        # The interpreter lets go of it when it has left all Python code; who catches it does so inside of some.
        if sys._getframe().f_back is None and _in_main_thread():
            _codes.append(self.code)


def _exit(status: object = None, /) -> NoReturn:
    """As sys.exit."""
    # Of another thread, Python shows a traceback unless it is SystemExit itself, and it ends no program.
    raise _Exit(status) if _in_main_thread() else SystemExit(status)


def _remember_threads() -> None:
    """From now on `_threads` is kept; what the program does about such exceptions stays."""
    before = threading.excepthook

    def remember(args: threading.ExceptHookArgs) -> None:
        if not issubclass(args.exc_type, SystemExit):
            name = "unknown" if args.thread is None else args.thread.name
            _threads.append(f"its thread {name} with {args.exc_type.__name__}: {args.exc_value}")
        before(args)

    threading.excepthook = remember


@functools.cache
def watch(at_a_bad_end: Callable[[], object]) -> None:
    """From now on `reason` and `is_bad` know of sys.exit; harmless when repeated.

    Args:
        at_a_bad_end: Called when the program has ended badly, before Python waits for threads, which may wait for us.
    """
    sys.exit = _exit
    _remember_threads()
    # Without it, which is private, the threads that wait are not told.
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        register(lambda: is_bad() and at_a_bad_end())


def _exception() -> BaseException | None:
    """What has ended the program, whatever the program made of sys.excepthook."""
    return None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)


def _code() -> object:
    """What sys.exit was given, if that has ended the program."""
    return _codes[-1] if _codes else None


def is_bad() -> bool:
    """Whether this process ends with another status than 0, as far as Python shows: `raise SystemExit` it does not."""
    return _exception() is not None or _code() not in (None, 0)


def reason() -> str:
    """Why Python exits."""
    error, code = _exception(), _code()
    if error is not None:
        text = f"its program ended with {type(error).__name__}: {error}"
    elif code in (None, 0):
        if not _threads:
            return _BY_ITSELF
        text = f"its program has ended, and before it {_threads[-1]}"
    else:
        text = f"its program ended with sys.exit({code!r})"
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."
