"""The reduction of gradients over all ranks: small ones together, since each operation has its price."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import tensorflow as tf

from horovod_tf.tensorflow.collectives import allreduce
from horovod_tf.tensorflow.compression import Compression, Compressor
from horovod_tf.tensorflow.mpi_ops import ProcessSet, _grouped_allreduce, global_process_set, id_of
from horovod_tf.tensorflow.reductions import Average, ReduceOp, Sum, reduction

# Larger gradients are reduced alone, so that they travel while others are computed. A group is not there before its
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
    """Where the gradients are that are reduced together; alone is a group of one, and None is in no group.

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


@dataclasses.dataclass(frozen=True)
class GradientReduction:
    """How gradients are reduced.

    Attributes:
        device_dense: Where the reductions of dense gradients are placed; '' leaves that to TensorFlow.
        device_sparse: The same for `tf.IndexedSlices`.
        compression: What is reduced instead of a dense gradient: one of `Compression`.
        sparse_as_dense: Whether `tf.IndexedSlices` are made dense first.
        op: Average or Sum.
        gradient_predivide_factor: Of an average: gradients are divided by it before they are added up, and the sum by
            the number of ranks and multiplied by it behind.
        process_set: Whose ranks reduce them. On the others they stay as they are.

    Raises:
        ValueError: these do not go together.
    """

    device_dense: str = ""
    device_sparse: str = ""
    compression: type[Compressor] = Compression.none
    sparse_as_dense: bool = False
    op: int = Average
    gradient_predivide_factor: float = 1.0
    process_set: ProcessSet = global_process_set

    def __post_init__(self) -> None:
        if reduction(None, self.op) not in (Average, Sum):
            raise ValueError(f"op currently only supports Average and Sum for gradients, and this is {self.op!r}")
        if self.gradient_predivide_factor != 1.0 and self.op != Average:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
        if self.gradient_predivide_factor <= 0:
            raise ValueError(f"gradient_predivide_factor is {self.gradient_predivide_factor}, and must be positive")

    @property
    def _factors(self) -> dict[str, Any]:
        """Of the operations."""
        if self.gradient_predivide_factor == 1.0:
            return {}
        return {
            "prescale_factor": 1 / self.gradient_predivide_factor,
            "postscale_factor": self.gradient_predivide_factor,
        }

    def reduce(self, gradients: list[Any], scope: str) -> list[Any]:
        """The reduced gradients, under name scope `scope`; None stays None.

        On a rank that is alone, or not in the process set, the gradients themselves.

        In a graph ranks match them by their places: TensorFlow's names of gradients have numbers that count what else
        a rank has built. Ranks need not group alike.
        """
        with tf.name_scope(scope):
            if self.sparse_as_dense:
                gradients = [
                    tf.convert_to_tensor(one) if isinstance(one, tf.IndexedSlices) else one for one in gradients
                ]
            id_of(self.process_set)  # what is not registered has neither
            if not self.process_set.included() or self.process_set.size() == 1:
                return list(gradients)
            reduced: list[Any] = [None] * len(gradients)
            for places in groups_of(gradients):
                names = None if tf.executing_eagerly() else [f"gradient_{place}" for place in places]
                group = self._reduce_group([gradients[place] for place in places], names)
                for place, one in zip(places, group):
                    reduced[place] = one
            return reduced

    def _reduce_group(self, group: list[Any], names: list[str] | None) -> list[Any]:
        if len(group) == 1:
            return [
                allreduce(
                    group[0],
                    device_dense=self.device_dense,
                    device_sparse=self.device_sparse,
                    compression=self.compression,
                    op=ReduceOp(self.op),
                    name=None if names is None else names[0],
                    process_set=self.process_set,
                    **self._factors,
                )
            ]
        with tf.device(self.device_dense):
            compressed = [self.compression.compress(gradient) for gradient in group]
            results = _grouped_allreduce(
                [one for one, _ in compressed],
                reduce_op=self.op,
                members=names,
                process_set_id=id_of(self.process_set),
                **self._factors,
            )
            return [self.compression.decompress(one, context) for one, (_, context) in zip(results, compressed)]
