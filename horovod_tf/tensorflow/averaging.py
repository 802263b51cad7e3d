"""The averages of an optimizer's gradients over all ranks: small ones together, since each operation has its price."""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf

from horovod_tf.tensorflow.collectives import allreduce, grouped_allreduce
from horovod_tf.tensorflow.mpi_ops import size

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


def average_gradients(gradients: list[Any], scope: str, device_dense: str, device_sparse: str) -> list[Any]:
    """The averages over all ranks, under name scope `scope`; None stays None. Alone, the gradients themselves.

    Ranks need not group alike: the names are those of single allreduces.
    """
    if size() == 1:
        return list(gradients)
    devices: dict[str, Any] = {"device_dense": device_dense, "device_sparse": device_sparse}
    averaged: list[Any] = [None] * len(gradients)
    with tf.name_scope(scope):
        for places in groups_of(gradients):
            if len(places) == 1:
                averaged[places[0]] = allreduce(gradients[places[0]], **devices)
                continue
            group = grouped_allreduce([gradients[place] for place in places], **devices)
            for place, average in zip(places, group):
                averaged[place] = average
    return averaged
