"""Keeps collectives of one `tf.function` concurrent.

Our operations are stateful, or TensorFlow would fold, merge or prune them. But inside a `tf.function` it also runs
stateful operations one after the other, in the order of the program: no fusion, and a deadlock where ranks order
independent collectives differently. TensorFlow has a list of stateful operations that must run but need no order; it
is a private name, and this module is the only one that touches it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tensorflow.python.framework import auto_control_deps

LIST_NAME: Final = "MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS"


def keep_concurrent(op_types: Iterable[str]) -> None:
    """Adds these types of operation to TensorFlow's list.

    Raises:
        ImportError: this TensorFlow has no such list.
    """
    present = getattr(auto_control_deps, LIST_NAME, None)
    if not isinstance(present, frozenset):
        raise ImportError(
            f"tensorflow.python.framework.auto_control_deps.{LIST_NAME} is not the set it used to be: this package "
            "does not know how to keep collectives concurrent with this version of TensorFlow"
        )
    setattr(auto_control_deps, LIST_NAME, present | frozenset(op_types))
