"""Broadcasts into variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from horovod_tf.tensorflow.functions import broadcast_into
from horovod_tf.tensorflow.mpi_ops import ProcessSet, global_process_set


def broadcast_(
    variables: Iterable[Any], root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Assigns every variable the value that rank `root_rank` has, and returns the variables.

    Args:
        variables: Of any types that collectives have; the same types and shapes on all ranks.
        root_rank: The same on all ranks.
        name: Ranks match the i-th of n variables by "<name>_<i>of<n>", counted from 1; by its own name by default.
        process_set: Whose ranks; this one must be among them.

    Returns:
        Eager, and in a `tf.function`: the variables. In a graph of sessions: of each what is read after it has been
        assigned, which a session runs.

    Raises:
        ValueError: some are reference variables and some resource variables.
        tf.errors.FailedPreconditionError: when it runs: ranks disagree, or `init()` has not been called.
        tf.errors.InvalidArgumentError: when it runs: there is no such rank.
    """
    variables = list(variables)
    kinds = {hasattr(variable, "handle") for variable in variables}
    if len(kinds) > 1:
        raise ValueError(
            "broadcast_ takes resource variables or reference variables, and these are mixed: call it for each kind"
        )
    names = [name and f"{name}_{place}of{len(variables)}" for place in range(1, len(variables) + 1)]
    assigned = [broadcast_into(variable, root_rank, one, process_set) for variable, one in zip(variables, names)]
    return assigned if not tf.compat.v1.executing_eagerly_outside_functions() else variables
