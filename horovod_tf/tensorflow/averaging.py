"""The averages of an optimizer's gradients over all ranks: small ones together, since each operation has its price."""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf

from horovod_tf.tensorflow.collectives import allreduce
from horovod_tf.tensorflow.mpi_ops import AVERAGE, _grouped_allreduce, size

# Larger gradients are averaged alone, so that they travel while others are computed. A group is not there before its
# last gradient, so groups end somewhere, too.
SMALL_BYTES: Final = 64 * 1024
GROUP_BYTES: Final = 256 * 1024


def _bytes_if_small(gradient: Any) -> int | None:
    """None: it is large, or nobody knows before it is there."""
    if not isinstance(gradient, tf.Tensor) or gradient.shape.num_elements() is None:
        return None
    count: int = gradient.shape.num_elements() * gradient.dtype.size
    return count if count <= SMALL_BYTES else None


def groups_of(gradients: list[Any]) -> list[list[int]]:
    """Where the gradients are that are averaged together; alone is a group of one, and None is in no group.

    From the last to the first: gradients of the last layers are there first.
    """
    groups: list[list[int]] = []
    open_group: list[int] = []
    room = 0
    for place, gradient in reversed(list(enumerate(gradients))):
        count = _bytes_if_small(gradient)
        if count is None:
            if gradient is not None:
                groups.append([place])
            continue
        if not open_group or count > room:
            open_group, room = [], GROUP_BYTES
            groups.append(open_group)
        open_group.append(place)
        room -= count
    return groups


def _average(group: list[Any], names: list[str] | None, device_dense: str, device_sparse: str) -> list[Any]:
    if len(group) == 1:
        return [allreduce(group[0], True, device_dense, device_sparse, name=None if names is None else names[0])]
    with tf.device(device_dense):
        return _grouped_allreduce(group, reduce_op=AVERAGE, members=names)


def average_gradients(gradients: list[Any], scope: str, device_dense: str, device_sparse: str) -> list[Any]:
    """The averages over all ranks, under name scope `scope`; None stays None. Alone, the gradients themselves.

    In a graph ranks match them by their places: TensorFlow's names of gradients have numbers that count what else a
    rank has built. Ranks need not group alike.
    """
    if size() == 1:
        return list(gradients)
    averaged: list[Any] = [None] * len(gradients)
    with tf.name_scope(scope):
        for places in groups_of(gradients):
            names = None if tf.executing_eagerly() else [f"gradient_{place}" for place in places]
            group = _average([gradients[place] for place in places], names, device_dense, device_sparse)
            for place, average in zip(places, group):
                averaged[place] = average
    return averaged
