"""The collectives as TensorFlow operations, and the library's own queries.

Ranks match operations by name. In a graph that is the node's name, made from the tensor's unless one is given, so
ranks that build the same graph agree. In eager mode a call without a name waits until it is complete, and all of its
kind have one name: ranks must make the same calls in the same order, and a second thread in one is an error.

Importing this module loads libhorovod_tf_ops.so, once.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import tensorflow as tf

from horovod_tf.common import interrupts
from horovod_tf.common.basics import agree_on
from horovod_tf.common.basics import cross_rank as cross_rank
from horovod_tf.common.basics import cross_size as cross_size
from horovod_tf.common.basics import is_homogeneous as is_homogeneous
from horovod_tf.common.basics import is_initialized as is_initialized
from horovod_tf.common.basics import local_rank as local_rank
from horovod_tf.common.basics import local_size as local_size
from horovod_tf.common.basics import mpi_threads_supported as mpi_threads_supported
from horovod_tf.common.basics import rank as rank
from horovod_tf.common.basics import shutdown as shutdown
from horovod_tf.common.basics import size as size
from horovod_tf.common.basics import start_timeline as start_timeline
from horovod_tf.common.basics import status as status
from horovod_tf.common.basics import stop_timeline as stop_timeline
from horovod_tf.common.process_sets import ProcessSet as ProcessSet
from horovod_tf.common.process_sets import add_process_set as add_process_set
from horovod_tf.common.process_sets import global_process_set as global_process_set
from horovod_tf.common.process_sets import id_of as id_of
from horovod_tf.common.process_sets import init as init
from horovod_tf.common.process_sets import remove_process_set as remove_process_set
from horovod_tf.tensorflow import nameless
from horovod_tf.tensorflow.auto_control import keep_concurrent
from horovod_tf.tensorflow.reductions import Sum
from horovod_tf.tensorflow.xla import refuse_inside_xla

OPS_FOLDER: Final = Path(__file__).resolve().parent.parent / "ops"
OP_TYPES: Final = (
    "HorovodAllreduce",
    "HorovodGroupedAllreduce",
    "HorovodAllgather",
    "HorovodBroadcast",
    "HorovodAlltoall",
    "HorovodReducescatter",
    "HorovodGroupedReducescatter",
)
# What they say is found out when they run. They wait for nobody.
QUERY_TYPES: Final = (
    "HorovodSize",
    "HorovodProcessSetIncluded",
    "HorovodRank",
    "HorovodLocalRank",
    "HorovodLocalSize",
)
_BUILD_IT: Final = (
    "run `make ops PYTHON=<this Python>` in the source tree, or `pip install --no-build-isolation --force-reinstall .`"
)


def check_built_for(installed: str, folder: Path = OPS_FOLDER) -> None:
    """Whether the operations in `folder` fit TensorFlow version `installed`; a library for another one may crash.

    Raises:
        ImportError: they do not, or have not been built; the text has both versions and the command to build.
    """
    library = folder / "libhorovod_tf_ops.so"
    if not library.exists():
        raise ImportError(f"{library} has not been built: {_BUILD_IT}", path=str(library))
    info: dict[str, Any] = {}
    path = folder / "_build_info.py"
    if path.exists():
        exec(compile(path.read_text(), str(path), "exec"), info)  # noqa: S102 - our own build wrote it
    built_for = info.get("TENSORFLOW_VERSION", "an unknown version")
    if built_for != installed:
        raise ImportError(
            f"{library} was built for TensorFlow {built_for}, but TensorFlow {installed} is installed: {_BUILD_IT}",
            path=str(library),
        )


def _load() -> Any:
    """Loads the operations.

    Raises:
        ImportError: see `check_built_for`; or the library cannot be loaded.
    """
    check_built_for(tf.__version__)
    path = OPS_FOLDER / "libhorovod_tf_ops.so"
    try:
        return tf.load_op_library(str(path))
    except tf.errors.NotFoundError as error:
        raise ImportError(f"{path} cannot be loaded ({error.message}): {_BUILD_IT}", path=str(path)) from error


keep_concurrent((*OP_TYPES, *QUERY_TYPES))
_ops: Final = _load()
interrupts.waits_in("tensorflow")
interrupts.waits_in(_ops.__name__)  # eager operations
# Other versions may name a graph's operations otherwise, and name is what ranks match them by.
agree_on("TensorFlow's version", tf.__version__)


def _normalize_name(name: str) -> str:
    """`name` with everything that an operation's name must not have turned into an underscore."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def _default_name(kind: str, tensor: Any) -> str:
    """What an operation is named by in a graph if it is given no name.

    What a `tf.function` has found outside has a number for a name, which counts what this process has made before:
    another rank may have another. So it is called "captured", and these are counted in the order of the program.
    """
    tensor = tf.convert_to_tensor(tensor)
    is_number = re.fullmatch(r"(.*/)?\d+(_\d+)?:\d+", tensor.name)
    return f"{kind}_captured" if is_number else f"{kind}_{_normalize_name(tensor.name)}"


def _run(op: Any, kind: str, tensor: Any, name: str | None, **attributes: Any) -> Any:
    """Adds one operation to the graph, or runs it when eager."""
    refuse_inside_xla(kind)
    tensor = tf.convert_to_tensor(tensor)
    if tf.executing_eagerly():
        # The kernel does not learn Python's `name`. Without one its name is the operation's type.
        if not name:
            return nameless.call(kind, op, tensor=tensor, **attributes)
        return op(tensor=tensor, tensor_name=name, name=name, **attributes)
    with tf.control_dependencies(_joins_so_far()):
        return op(tensor=tensor, name=name or _default_name(kind, tensor), **attributes)


_JOINS: Final = "horovod_tf_joins"  # a graph's collection


def _joins_so_far() -> list[tf.Operation]:
    """The joins of a `tf.function` that is being traced: what comes behind one in the program runs after it."""
    if tf.executing_eagerly():
        return []
    graph = tf.compat.v1.get_default_graph()
    return [one for one in graph.get_collection(_JOINS) if one.graph is graph]


def join() -> tf.Tensor:
    """Says that this rank has no more data, and waits until all ranks have said so.

    Until then every collective that the others ask for runs without this rank: a reduction is one over the others (an
    average divides by their number), a gather has no rows of it, and a broadcast gives it to the others. What this rank
    has asked for before it joined counts as its own, and what it asks for while it waits is done when the wait is over.
    A broadcast whose root has joined is an error for the others, who go on.

    Call it in place of the steps that a rank with less data does not make, on every rank, after its last step:

        for batch in data:
            train(batch)
        hvd.join()

    In a `tf.function` it runs after the collectives before it in the program, and those behind it run after it. In a
    graph of TensorFlow 1, run it in a step of its own.

    Returns:
        An int32 scalar: the rank that joined last. It is the same on all ranks, and had the most data: its state is
        the newest.

    Raises:
        tf.errors.FailedPreconditionError: when it runs: `init()` has not been called.
        tf.errors.InvalidArgumentError: when it runs: another `join()` of this rank is waiting.
        tf.errors.CancelledError: its step was cancelled; this rank takes part again.
        tf.errors.UnknownError: the job ended before all ranks had joined.
    """
    if tf.executing_eagerly():
        return _ops.horovod_join()
    graph = tf.compat.v1.get_default_graph()
    before = [one for one in graph.get_operations() if one.type in OP_TYPES] if graph.building_function else []
    with tf.control_dependencies(before):
        last_rank: tf.Tensor = _ops.horovod_join()
    if graph.building_function:
        graph.add_to_collection(_JOINS, last_rank.op)
    return last_rank


def _allreduce(tensor: Any, name: str | None = None, reduce_op: int = Sum, **attributes: Any) -> tf.Tensor:
    """The element-wise sum over all ranks, or another reduction.

    Args:
        tensor: Any shape, the same on all ranks, also empty or a scalar. Any number type.
        name: What ranks match it by; made from the tensor's name by default.
        reduce_op: A `ReduceOp`. An average is the sum divided by the number of ranks; integers truncate toward zero.
        attributes: prescale_factor, postscale_factor, ignore_name_scope, process_set_id, as the operation has them.

    Returns:
        A tensor of the input's type and shape, bitwise the same on all ranks.

    Raises:
        tf.errors.FailedPreconditionError: when it runs: ranks disagree, or `init()` has not been called.
    """
    reduced: tf.Tensor = _run(
        _ops.horovod_allreduce, "HorovodAllreduce", tensor, name, reduce_op=int(reduce_op), **attributes
    )
    return reduced


def _reducescatter(tensor: Any, name: str | None = None, reduce_op: int = Sum, **attributes: Any) -> tf.Tensor:
    """This rank's rows of the element-wise sum over all ranks, or of another reduction.

    Args:
        tensor: As for `_allreduce`, but no scalar.
        name: As for `_allreduce`.
        reduce_op: As for `_allreduce`.
        attributes: As for `_allreduce`.

    Returns:
        A tensor of the input's type with dim0 // size rows, or one more on the first dim0 % size ranks. Its static
        dimension 0 is unknown.

    Raises:
        tf.errors.FailedPreconditionError: when it runs: ranks disagree, or `init()` has not been called.
    """
    rows: tf.Tensor = _run(
        _ops.horovod_reducescatter, "HorovodReducescatter", tensor, name, reduce_op=int(reduce_op), **attributes
    )
    return rows


def _names_of_members(tensors: Sequence[tf.Tensor], name: str | None, collective: str) -> list[str]:
    """What ranks match the tensors of a group by, inside the scope of its operation."""
    if name or tf.executing_eagerly():
        return [f"{name or f'HorovodGrouped{collective}'}_{i + 1}of{len(tensors)}" for i in range(len(tensors))]
    return [_default_name(f"Horovod{collective}", tensor) for tensor in tensors]


def _reserve(names: Iterable[str]) -> list[str]:
    """As if they were operations: nothing else in the graph gets these names."""
    if tf.executing_eagerly():
        return list(names)
    graph = tf.compat.v1.get_default_graph()
    return [graph.unique_name(one).rpartition("/")[2] for one in names]


def _grouped_allreduce(
    tensors: Iterable[Any],
    name: str | None = None,
    reduce_op: int = Sum,
    members: Sequence[str] | None = None,
    **attributes: Any,
) -> list[tf.Tensor]:
    """The same of each tensor, in one operation for each type that they have.

    Args:
        tensors: Each as for `_allreduce`. Types may differ.
        name: Ranks match the i-th of n tensors by "<name>_<i>of<n>", counted from 1. By default, in a graph, by the
            name that `_allreduce` of this tensor would have: ranks need not group the same tensors, or any.
        reduce_op: As for `_allreduce`.
        members: Names by which ranks match the tensors instead: those that `_allreduce` of each would be given.
        attributes: As for `_allreduce`.

    Returns:
        Tensors of the inputs' types and shapes in their order, bitwise the same on all ranks.

    Raises:
        tf.errors.FailedPreconditionError: when it runs: ranks disagree about one of the tensors, or `init()` has not
            been called. There are no results then; the other tensors have been reduced all the same.
    """
    return _run_grouped(
        _ops.horovod_grouped_allreduce, "Allreduce", tensors, name, members, reduce_op=int(reduce_op), **attributes
    )


def _grouped_reducescatter(
    tensors: Iterable[Any], name: str | None = None, reduce_op: int = Sum, **attributes: Any
) -> list[tf.Tensor]:
    """`_reducescatter` of each tensor, in one operation for each type that they have.

    Args:
        tensors: Each as for `_reducescatter`. Types may differ.
        name: As for `_grouped_allreduce`.
        reduce_op: As for `_allreduce`.
        attributes: As for `_allreduce`.

    Returns:
        This rank's rows of each, in their order.

    Raises:
        tf.errors.FailedPreconditionError: as `_grouped_allreduce`.
    """
    return _run_grouped(
        _ops.horovod_grouped_reducescatter,
        "Reducescatter",
        tensors,
        name,
        None,
        reduce_op=int(reduce_op),
        **attributes,
    )


def _run_grouped(
    op: Any,
    collective: str,
    tensors: Iterable[Any],
    name: str | None,
    members: Sequence[str] | None,
    **attributes: Any,
) -> list[tf.Tensor]:
    refuse_inside_xla(f"HorovodGrouped{collective}")
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    names = _reserve(_names_of_members(tensors, name, collective) if members is None else members)
    if members is None and not name and tf.executing_eagerly():
        op = functools.partial(nameless.call, f"HorovodGrouped{collective}", op)
    results: list[Any] = [None] * len(tensors)
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        places = [place for place, tensor in enumerate(tensors) if tensor.dtype == dtype]
        with tf.control_dependencies(_joins_so_far()):
            reduced = op(
                tensors=[tensors[place] for place in places],
                tensor_names=[names[place] for place in places],
                name=name or f"HorovodGrouped{collective}",
                **attributes,
            )
        for place, result in zip(places, reduced):
            results[place] = result
    return results


def _allgather(tensor: Any, name: str | None = None, **attributes: Any) -> tf.Tensor:
    """As `allgather`, with the operation's attributes; `average` divides all rows by the number of ranks."""
    return _run(_ops.horovod_allgather, "HorovodAllgather", tensor, name, **attributes)


def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """The tensors of all ranks one after the other on dimension 0, in the order of the ranks.

    Args:
        tensor: Not a scalar. Dimension 0 may differ between ranks and be 0; the others are the same on all.
        name: What ranks match it by; made from the tensor's name by default.
        ignore_name_scope: Whether ranks match it by the last part of its name only, in a graph.
        process_set: Which ranks take part; this one must be among them.

    Returns:
        A tensor of the input's type. Its static dimension 0 is unknown.

    Raises:
        ValueError: the process set is not registered; or, eager and without a name, another thread is in such a call.
        tf.errors.FailedPreconditionError: when it runs: ranks disagree, or `init()` has not been called.
        tf.errors.InvalidArgumentError: when it runs: this rank is not in the process set, or it has been removed.
    """
    rows: tf.Tensor = _run(
        _ops.horovod_allgather,
        "HorovodAllgather",
        tensor,
        name,
        ignore_name_scope=ignore_name_scope,
        process_set_id=id_of(process_set),
    )
    return rows


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives each rank some rows of this rank's tensor, and gets those that every rank has for this one.

    Args:
        tensor: Not a scalar. Dimension 0 may differ between ranks and be 0; the others are the same on all.
        splits: How many rows each rank gets, in the order of the ranks: int32, `size()` of them, each at least 0, and
            together all rows of the tensor. By default each rank gets as many; dimension 0 is a multiple of `size()`
            then.
        name: What ranks match it by; made from the tensor's name by default.
        ignore_name_scope: Whether ranks match it by the last part of its name only, in a graph.
        process_set: Which ranks take part; this one must be among them. Its size counts instead of `size()`.

    Returns:
        The rows of rank 0, then those of rank 1, and so on, as a tensor of the input's type whose static dimension 0
        is unknown. With splits, a pair: that, and how many rows came from each rank, an int32 vector.

    Raises:
        ValueError: splits is empty, or the process set is not registered.
        tf.errors.InvalidArgumentError: when it runs: splits do not fit the tensor or the number of ranks, or there are
            none and the rows cannot be divided evenly.
        tf.errors.FailedPreconditionError: when it runs: ranks disagree, or `init()` has not been called.
    """
    given = tf.convert_to_tensor([] if splits is None else splits, tf.int32)
    if splits is not None and given.shape.num_elements() == 0:
        raise ValueError("splits is empty, and has to say for each rank how many rows it gets")
    output, received = _run(
        _ops.horovod_alltoall,
        "HorovodAlltoall",
        tensor,
        name,
        splits=given,
        ignore_name_scope=ignore_name_scope,
        process_set_id=id_of(process_set),
    )
    return output if splits is None else (output, received)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """The tensor of rank `root_rank`, on every rank.

    Args:
        tensor: Type and shape are the same on all ranks; only the root's values matter.
        root_rank: The same on all ranks; also in a process set a rank of the job.
        name: What ranks match it by; made from the tensor's name by default.
        ignore_name_scope: Whether ranks match it by the last part of its name only, in a graph.
        process_set: Which ranks take part; this one must be among them.

    Returns:
        A tensor of the input's type and shape.

    Raises:
        ValueError: the process set is not registered; or, eager and without a name, another thread is in such a call.
        tf.errors.FailedPreconditionError: when it runs: ranks disagree, or `init()` has not been called.
        tf.errors.InvalidArgumentError: when it runs: there is no such rank in the process set, or this one is none, or
            the set has been removed.
    """
    value: tf.Tensor = _run(
        _ops.horovod_broadcast,
        "HorovodBroadcast",
        tensor,
        name,
        root_rank=root_rank,
        ignore_name_scope=ignore_name_scope,
        process_set_id=id_of(process_set),
    )
    return value
