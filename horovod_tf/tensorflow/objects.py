"""Python objects from one rank to all, and from all to all."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from horovod_tf.tensorflow.evaluation import evaluate
from horovod_tf.tensorflow.mpi_ops import ProcessSet, _normalize_name, allgather, broadcast, global_process_set, rank


def _to_bytes(value: Any) -> np.ndarray[Any, Any]:
    """Pickled; by cloudpickle where it is installed, which knows functions without a module, too."""
    try:
        text = importlib.import_module("cloudpickle").dumps(value)
    except ImportError:
        text = pickle.dumps(value)
    return np.frombuffer(text, np.uint8)


def _from_bytes(content: np.ndarray[Any, Any]) -> Any:
    return pickle.loads(content.tobytes())  # noqa: S301 - another rank of this job wrote it


def _broadcast(value: np.ndarray[Any, Any], root_rank: int, name: str, process_set: ProcessSet) -> np.ndarray[Any, Any]:
    return evaluate(lambda: broadcast(value, root_rank, name, process_set=process_set))


def _allgather(value: np.ndarray[Any, Any], name: str, process_set: ProcessSet) -> np.ndarray[Any, Any]:
    return evaluate(lambda: allgather(value, name, process_set=process_set))


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The object that rank `root_rank` has. All ranks call it; not inside a tf.function.

    Args:
        obj: On the root, what can be pickled. Elsewhere it does not matter.
        root_rank: The same on all ranks; also in a process set a rank of the job.
        session: Of no use: in graph mode it has a session of its own.
        name: What ranks match it by, the same on all ranks.
        process_set: Whose ranks; this one must be among them.

    Returns:
        On the root, `obj` itself; elsewhere a copy.

    Raises:
        tf.errors.FailedPreconditionError: ranks disagree about the root, or `init()` has not been called.
        tf.errors.InvalidArgumentError: there is no such rank.
    """
    del session
    name = _normalize_name(name or "HorovodBroadcastObject")
    is_root = rank() == root_rank
    content = _to_bytes(obj) if is_root else np.zeros(0, np.uint8)
    count = int(_broadcast(np.array([content.size], np.int64), root_rank, f"{name}_size", process_set)[0])
    content = _broadcast(content if is_root else np.zeros(count, np.uint8), root_rank, f"{name}_bytes", process_set)
    return obj if is_root else _from_bytes(content)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """`broadcast_object` with everything but the object given."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The objects of all ranks, in their order. All ranks call it; not inside a tf.function.

    Args:
        obj: What can be pickled.
        session: Of no use: in graph mode it has a session of its own.
        name: What ranks match it by, the same on all ranks.
        process_set: Whose ranks; this one must be among them.

    Returns:
        Copies, also of this rank's own.

    Raises:
        tf.errors.FailedPreconditionError: `init()` has not been called.
    """
    del session
    name = _normalize_name(name or "HorovodAllgatherObject")
    content = _to_bytes(obj)
    counts = _allgather(np.array([content.size], np.int64), f"{name}_sizes", process_set)
    contents = np.split(_allgather(content, f"{name}_bytes", process_set), np.cumsum(counts)[:-1])
    return [_from_bytes(one) for one in contents]
