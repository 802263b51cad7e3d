"""Collectives of values, as Keras programs use them: numbers and arrays in, numbers and arrays out."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod_tf.tensorflow import collectives, functions, mpi_ops
from horovod_tf.tensorflow.compression import Compression, Compressor
from horovod_tf.tensorflow.evaluation import evaluate
from horovod_tf.tensorflow.reductions import Average


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: type[Compressor] = Compression.none,
) -> Any:
    """The average, or another reduction, of a value over all ranks; an array. As of `horovod_tf.tensorflow`."""
    return evaluate(
        lambda: collectives.allreduce(
            value,
            average,
            name=name or "HorovodKerasAllreduce",
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            compression=compression,
        )
    )


def allgather(value: Any, name: str | None = None) -> Any:
    """The values of all ranks one after the other on dimension 0; an array. As of `horovod_tf.tensorflow`."""
    return evaluate(lambda: mpi_ops.allgather(value, name or "HorovodKerasAllgather"))


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """The value of rank `root_rank`; an array. As of `horovod_tf.tensorflow`."""
    return evaluate(lambda: mpi_ops.broadcast(value, root_rank, name or "HorovodKerasBroadcast"))


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """This rank's share of the rows of a reduced value; an array. As of `horovod_tf.tensorflow`."""
    return evaluate(lambda: collectives.reducescatter(value, name=name or "HorovodKerasReducescatter", op=op))


def broadcast_global_variables(root_rank: int) -> None:
    """Assigns every global variable of Keras' session the value that rank `root_rank` has.

    Raises:
        RuntimeError: in eager mode, which has no global variables.
    """
    operation = functions.broadcast_global_variables(root_rank)
    tf.compat.v1.keras.backend.get_session().run(operation)
