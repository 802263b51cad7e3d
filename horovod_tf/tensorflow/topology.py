"""Who and how many there are, as operations that find out when they run."""

from __future__ import annotations

import tensorflow as tf

from horovod_tf.tensorflow.mpi_ops import QUERY_TYPES, _ops

for _type in QUERY_TYPES:
    tf.no_gradient(_type)


def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """Number of processes in a process set, as an int32 scalar.

    Args:
        process_set_id: 0 is the set of all processes.
        name: Of the operation.

    Raises:
        tf.errors.FailedPreconditionError: when it runs: `init()` has not been called. So do all of these.
        tf.errors.InvalidArgumentError: when it runs: there is no such set.
    """
    return _ops.horovod_size(process_set_id=process_set_id, name=name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """1 if this process is in a process set, else 0; an int32 scalar.

    Args:
        process_set_id: 0 is the set of all processes.
        name: Of the operation.

    Raises:
        tf.errors.InvalidArgumentError: when it runs: there is no such set.
    """
    return _ops.horovod_process_set_included(process_set_id=process_set_id, name=name)


def rank_op(name: str | None = None) -> tf.Tensor:
    """This process's number among all, as an int32 scalar."""
    return _ops.horovod_rank(name=name)


def local_rank_op(name: str | None = None) -> tf.Tensor:
    """This process's number among those on its host, as an int32 scalar."""
    return _ops.horovod_local_rank(name=name)


def local_size_op(name: str | None = None) -> tf.Tensor:
    """Number of processes on this host, as an int32 scalar."""
    return _ops.horovod_local_size(name=name)
