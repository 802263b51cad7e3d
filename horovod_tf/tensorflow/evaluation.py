"""Values of collectives for code that is no part of a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf


def evaluate(make: Callable[[], Any]) -> np.ndarray[Any, Any]:
    """The value of the tensor that `make` makes; in graph mode in a graph and a session of its own."""
    if tf.executing_eagerly():
        return np.asarray(make())
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return np.asarray(session.run(make()))
