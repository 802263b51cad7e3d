"""Giving all ranks the same variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from horovod_tf.tensorflow.mpi_ops import ProcessSet, _normalize_name, broadcast, global_process_set


def broadcast_into(
    variable: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """What assigns one variable the value of rank `root_rank`; in a graph, it reads as that value."""
    # By the variable's name: what reads it is named differently from graph to graph.
    name = name or f"HorovodBroadcast_{_normalize_name(variable.name)}"
    return variable.assign(broadcast(tf.convert_to_tensor(variable), root_rank, name, process_set=process_set))


def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Assigns every variable the value that rank `root_rank` has.

    Args:
        variables: The same on all ranks, with the same names, types and shapes.
        root_rank: The same on all ranks; also in a process set a rank of the job.
        process_set: Whose ranks; this one must be among them.
        inplace: Of no use: values go from tensor to variable either way.

    Returns:
        In a graph, the operation that does it. Eager: None, it is done.

    Raises:
        tf.errors.FailedPreconditionError: when it runs: ranks disagree, or `init()` has not been called.
    """
    del inplace
    assigned = [broadcast_into(variable, root_rank, process_set=process_set) for variable in variables]
    return None if tf.executing_eagerly() else tf.group(*assigned)


def broadcast_global_variables(root_rank: int) -> Any:
    """The operation that assigns every global variable of the default graph the value that rank `root_rank` has.

    Raises:
        RuntimeError: in eager mode, which has no global variables.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() needs a graph: in eager mode there is no list of all variables. Use "
            "hvd.broadcast_variables(<model>.variables, root_rank=...)"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


def broadcast_late_variables(session: Any, variables: Iterable[Any], root_rank: int) -> None:
    """Gives every variable the root's value although the session's graph is final.

    The values go through a graph of their own, and come back as what the variables' initializers are fed.

    Args:
        session: Of the graph of the variables.
        variables: As for `broadcast_variables`.
        root_rank: The same on all ranks.
    """
    variables = list(variables)
    if not variables:
        return
    values = session.run(variables)
    with tf.Graph().as_default(), tf.compat.v1.Session() as own:
        fed = [tf.compat.v1.placeholder(value.dtype, value.shape) for value in values]
        names = [f"HorovodBroadcast_late_{_normalize_name(variable.name)}" for variable in variables]
        roots = [broadcast(one, root_rank, name) for one, name in zip(fed, names)]
        values = own.run(roots, dict(zip(fed, values)))
    # An initializer assigns its second input, whatever kind of variable it is. One at a time: two variables may have
    # the same tensor there.
    for variable, value in zip(variables, values):
        session.run(variable.initializer, {variable.initializer.inputs[1]: value})
