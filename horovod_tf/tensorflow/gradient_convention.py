"""What the gradients of allgather and broadcast are: sums over all ranks, or averages.

A sum is what the gradient is if the losses of all ranks are added up. The reference system has had sums up to its
version 0.21 and averages since; a script that counts on averages asks for them, once for the whole program.
"""

from __future__ import annotations

import os
from typing import Final

from horovod_tf.tensorflow.reductions import Average, ReduceOp, Sum

# In the table of the native library, too, which refuses what is neither yes nor no.
VARIABLE: Final = "HOROVOD_TF_AVERAGE_GRADIENTS"
_YES: Final = frozenset({"true", "yes", "on", "1"})

_asked_for: bool | None = None


def set_average_gradients(average: bool | None) -> None:
    """For all gradients that are made from now on; None: as the environment says."""
    global _asked_for
    _asked_for = average


def reduction_of_gradients() -> ReduceOp:
    """How incoming gradients of all ranks are put together."""
    average = os.environ.get(VARIABLE, "").strip().lower() in _YES if _asked_for is None else _asked_for
    return Average if average else Sum
