"""Eager calls without a name. All of one kind have the same, so they may come from one thread at a time only."""

from __future__ import annotations

import threading
from typing import Any, Final

_callers: Final[dict[tuple[str, int], int]] = {}  # kind of operation and process set: the thread in such a call


def _described(thread: int) -> str:
    names = [one.name for one in threading.enumerate() if one.ident == thread]
    return repr(names[0] if names else str(thread))


def call(kind: str, op: Any, **arguments: Any) -> Any:
    """`op(**arguments)`, which runs an eager operation of this kind that has been given no name.

    Raises:
        ValueError: another thread is in such a call. Ranks would match the two in the order in which they come, and
            threads come in any.
    """
    me = threading.get_ident()
    key = (kind, arguments.get("process_set_id", 0))
    other = _callers.setdefault(key, me)  # one step, for all threads
    if other != me:
        raise ValueError(
            f"thread {_described(me)} calls {kind} without a name while thread {_described(other)} is in such a call. "
            "All eager calls without a name have the same one, by which ranks match them in the order in which they "
            "come; that of two threads differs between ranks, and values of different calls would be mixed. Give the "
            "calls of each thread names of their own (name=), or make them all from one thread"
        )
    try:
        return op(**arguments)
    finally:
        _callers.pop(key, None)
