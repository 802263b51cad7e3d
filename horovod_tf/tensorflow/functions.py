"""Giving all ranks the same variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from horovod_tf.tensorflow.mpi_ops import ProcessSet, _normalize_name, broadcast, global_process_set, rank
from horovod_tf.tensorflow.objects import allgather_object
from horovod_tf.tensorflow.variable_names import first_difference


def _normalized(name: str) -> str:
    """By the variable's name: what reads it is named differently from graph to graph."""
    return f"HorovodBroadcast_{_normalize_name(name)}"


def broadcast_into(
    variable: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """What assigns one variable the value of rank `root_rank`; in a graph, it reads as that value."""
    name = name or _normalized(variable.name)
    return variable.assign(broadcast(tf.convert_to_tensor(variable), root_rank, name, process_set=process_set))


def _refuse_other_variables(roots: list[str], others: list[str], rank_of_others: int) -> None:
    place = first_difference(roots, others)
    if place is None:
        return
    root, other = (repr(names[place]) if place < len(names) else "missing" for names in (roots, others))
    raise ValueError(
        f"ranks broadcast different variables: number {place + 1} is {root} on the root and {other} on rank "
        f"{rank_of_others}. Build the same model on all ranks, and list its variables in the same order"
    )


def _names_of_root(variables: list[Any], root_rank: int, process_set: ProcessSet) -> list[str]:
    """What the variables are named on the root.

    Raises:
        ValueError: on all ranks: they have other variables.
    """
    names = [variable.name for variable in variables]
    if process_set.size() == 1:
        return names
    of_ranks = dict(allgather_object((rank(), names), name="HorovodBroadcastVariables", process_set=process_set))
    roots: list[str] = of_ranks.get(root_rank, names)  # the broadcast says that there is no such root
    for other, theirs in of_ranks.items():
        _refuse_other_variables(roots, theirs, other)
    return roots


def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Assigns every variable the value that rank `root_rank` has.

    Args:
        variables: The same on all ranks, with the same names, types and shapes. In eager mode, in the same order;
            numbers that Keras has given them, `dense_3`, may differ.
        root_rank: The same on all ranks; also in a process set a rank of the job.
        process_set: Whose ranks; this one must be among them.
        inplace: Of no use: values go from tensor to variable either way.

    Returns:
        In a graph, the operation that does it. Eager: None, it is done.

    Raises:
        ValueError: eager: ranks have other variables, by their names.
        tf.errors.FailedPreconditionError: when it runs: ranks disagree, or `init()` has not been called.
    """
    del inplace
    variables = list(variables)
    if not tf.executing_eagerly():
        return tf.group(*(broadcast_into(one, root_rank, process_set=process_set) for one in variables))
    for variable, name in zip(variables, _names_of_root(variables, root_rank, process_set)):
        broadcast_into(variable, root_rank, _normalized(name), process_set)
    return None


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
