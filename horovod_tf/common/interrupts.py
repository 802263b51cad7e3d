"""Lets Python's handlers of signals run while the main thread waits inside an operation.

Python runs handlers in its main thread and between two of its instructions: never, while the main thread waits inside
TensorFlow for another rank. When somebody asks the program to end, what has waited for long is withdrawn; the wait then
fails, and the handler runs before anything else.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

# By which a program is asked to end. Another one, SIGALRM for instance, is no reason to break off a step.
_ASK_TO_END: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
_PERIOD_SECONDS: Final = 0.2
_waiting_modules: Final[set[str]] = set()


def waits_in(module: str) -> None:
    """The main thread may wait inside functions of `module` (or in those below it) that run no Python code."""
    _waiting_modules.add(module)


def _is_waiting(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__"))
    return any(module == one or module.startswith(one + ".") for one in _waiting_modules)


def _place() -> tuple[FrameType, int] | None:
    """Which instruction of which call the main thread executes, if that may be a wait."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return (frame, frame.f_lasti) if frame is not None and _is_waiting(frame) else None


def _make_way(number: int, interrupt: Callable[[str], object]) -> None:
    """Interrupts until the main thread executes Python code again, and so the handler."""
    place = _place()
    while place is not None:
        time.sleep(_PERIOD_SECONDS)
        if _place() != place:
            return
        interrupt(f"its program was asked to end by {signal.Signals(number).name}, which it handles")


def _serve(pipe: int, interrupt: Callable[[str], object]) -> None:
    while True:
        for number in sorted(_ASK_TO_END.intersection(os.read(pipe, 64))):
            if callable(signal.getsignal(number)):
                _make_way(number, interrupt)


def _leave_to_parent() -> None:
    """A forked child has the pipe, but neither the thread nor a wait."""
    signal.set_wakeup_fd(-1)


def call(function: Callable[[], None]) -> None:
    """Calls it so that handlers run meanwhile, and what they raise is raised here; it then goes on by itself."""
    if threading.current_thread() is not threading.main_thread():
        function()
        return
    raised: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            function()
        except BaseException as error:  # raised again where it belongs
            raised.append(error)
        done.set()

    threading.Thread(target=run, name="horovod_tf call", daemon=True).start()
    done.wait()  # handlers interrupt this, unlike what it waits for
    if raised:
        raise raised[0]


@functools.cache
def watch(interrupt: Callable[[str], object]) -> None:
    """From now on handlers run within a second; harmless when repeated.

    Without effect where somebody else has the descriptor that Python writes signals to (an event loop), and outside of
    the main thread.

    Args:
        interrupt: Ends all waits of this process that have lasted for long, with this text. It may be called again
            and again.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    before = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    if before != -1:
        signal.set_wakeup_fd(before)
        os.close(reads)
        os.close(writes)
        return
    os.register_at_fork(after_in_child=_leave_to_parent)
    threading.Thread(target=_serve, args=(reads, interrupt), name="horovod_tf signals", daemon=True).start()
