"""What is said where XLA would compile a collective.

XLA knows none, and what it says about that names neither the program's line nor a way out. Whether a function is traced
for XLA is a private matter of TensorFlow's, and this module is the only one that asks: where a TensorFlow has no
answer, its own error comes instead.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

_asked: Any = getattr(control_flow_util, "GraphOrParentsInXlaContext", None)


def refuse_inside_xla(what: str) -> None:
    """Whether a collective may be built here.

    Raises:
        tf.errors.UnimplementedError: inside a function that XLA compiles.
    """
    if _asked is None or tf.executing_eagerly() or not _asked(tf.compat.v1.get_default_graph()):
        return
    raise tf.errors.UnimplementedError(
        None,
        None,
        f"{what} inside a function that XLA compiles: XLA knows no collectives, so leave jit_compile=True out of the "
        "tf.function around it (only what is computed between collectives may have it), or with Keras use "
        "model.compile(..., jit_compile=False)",
    )
