"""The reduction of gradients over all ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod_tf.tensorflow.collectives import allreduce
from horovod_tf.tensorflow.compression import Compression, Compressor
from horovod_tf.tensorflow.grouping import Groups, groups_argument, groups_of
from horovod_tf.tensorflow.local_variables import LocalVariables
from horovod_tf.tensorflow.mpi_ops import ProcessSet, _grouped_allreduce, global_process_set, id_of
from horovod_tf.tensorflow.reductions import Average, ReduceOp, Sum, reduction
from horovod_tf.tensorflow.sparse import SPARSE_AUTO, gathered_or_as_table


def _is_sparse(gradient: Any) -> bool:
    return isinstance(gradient, tf.IndexedSlices)


@dataclasses.dataclass(frozen=True)
class GradientReduction:
    """How gradients are reduced: what the arguments of `DistributedOptimizer` and `DistributedGradientTape` mean.

    Attributes:
        device_dense: Where the reductions of dense gradients are placed; '' leaves that to TensorFlow.
        device_sparse: The same for `tf.IndexedSlices`.
        compression: What is reduced instead of a dense gradient: one of `Compression`.
        sparse_as_dense: False: the rows of `tf.IndexedSlices` are gathered. True: they are made dense first. "auto":
            in every step the ranks agree, for each, on the way that sends less.
        op: Average or Sum.
        gradient_predivide_factor: Of an average: gradients are divided by it before they are added up, and the sum by
            the number of ranks and multiplied by it behind.
        groups: How many groups of gradients are reduced together, as even as can be; or the variables of each group,
            where what is in no list is grouped as by default. None and 0, the default: small gradients together.
        process_set: Whose ranks reduce them. On the others they stay as they are.

    Raises:
        ValueError: these do not go together.
    """

    device_dense: str = ""
    device_sparse: str = ""
    compression: type[Compressor] = Compression.none
    sparse_as_dense: bool | str = False
    op: int = Average
    gradient_predivide_factor: float = 1.0
    groups: Groups = None
    process_set: ProcessSet = global_process_set

    def __post_init__(self) -> None:
        if reduction(None, self.op) not in (Average, Sum):
            raise ValueError(f"op currently only supports Average and Sum for gradients, and this is {self.op!r}")
        if self.gradient_predivide_factor != 1.0 and self.op != Average:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
        if self.gradient_predivide_factor <= 0:
            raise ValueError(f"gradient_predivide_factor is {self.gradient_predivide_factor}, and must be positive")
        if self.sparse_as_dense not in (True, False, SPARSE_AUTO):
            raise ValueError(f'sparse_as_dense is {self.sparse_as_dense!r}, and must be True, False or "{SPARSE_AUTO}"')
        groups_argument(self.groups)

    @property
    def _factors(self) -> dict[str, Any]:
        """Of the operations."""
        if self.gradient_predivide_factor == 1.0:
            return {}
        return {
            "prescale_factor": 1 / self.gradient_predivide_factor,
            "postscale_factor": self.gradient_predivide_factor,
        }

    def as_reduced(self, gradients: Sequence[Any]) -> list[Any]:
        """The gradients, dense where they will be reduced so."""
        always = self.sparse_as_dense is True
        return [tf.convert_to_tensor(one) if always and _is_sparse(one) else one for one in gradients]

    def reduce(
        self,
        gradients: Sequence[Any],
        scope: str,
        variables: Sequence[Any] | None = None,
        local: LocalVariables | None = None,
    ) -> list[Any]:
        """The reduced gradients, under name scope `scope`; None stays None.

        On a rank that is alone, or not in the process set, the gradients themselves.

        In a graph ranks match them by their places: TensorFlow's names of gradients have numbers that count what else
        a rank has built. Ranks need not group alike, nor have the same local variables.

        Args:
            gradients: None, dense or sparse.
            scope: The name scope.
            variables: Theirs; needed for groups that list variables, and for local ones.
            local: Whose gradients are not reduced.
        """
        own = local.places(variables) if local is not None and variables is not None else set()
        with tf.name_scope(scope):
            results = self.as_reduced(gradients)
            id_of(self.process_set)  # what is not registered has neither
            if not self.process_set.included() or self.process_set.size() == 1:
                return results
            shared = [place for place in range(len(results)) if place not in own]
            reduced = self._reduce_shared(
                [results[place] for place in shared], variables and [variables[place] for place in shared]
            )
            for place, one in zip(shared, reduced):
                results[place] = one
            for place in own:
                assert local is not None
                results[place] = local.scaled(results[place])
            return results

    def _reduce_shared(self, gradients: list[Any], variables: Sequence[Any] | None) -> list[Any]:
        reduced: list[Any] = [None] * len(gradients)
        sparse = [place for place, one in enumerate(gradients) if _is_sparse(one)]
        apart = sparse if self.sparse_as_dense == SPARSE_AUTO else []
        together = [None if place in apart else one for place, one in enumerate(gradients)]
        for places in groups_of(together, variables, groups_argument(self.groups)):
            group = self._reduce_group([gradients[place] for place in places], self._names(places))
            for place, one in zip(places, group):
                reduced[place] = one
        if apart:
            with tf.device(self.device_sparse):
                tables = gathered_or_as_table(
                    [gradients[place] for place in apart],
                    ReduceOp(self.op),
                    self._names(apart) or [None] * len(apart),
                    self.compression,
                    self.process_set,
                    **self._factors,
                )
            for place, one in zip(apart, tables):
                reduced[place] = one
        return reduced

    @staticmethod
    def _names(places: Sequence[int]) -> list[str] | None:
        return None if tf.executing_eagerly() else [f"gradient_{place}" for place in places]

    def _reduce_group(self, group: list[Any], names: list[str] | None) -> list[Any]:
        dense = [place for place, one in enumerate(group) if not _is_sparse(one)]
        results: list[Any] = [None] * len(group)
        for place, gradient in enumerate(group):
            if len(dense) == 1 or place not in dense:
                results[place] = self._reduce_one(gradient, None if names is None else names[place])
        if len(dense) > 1:
            reduced = self._reduce_dense([group[place] for place in dense], names and [names[place] for place in dense])
            for place, one in zip(dense, reduced):
                results[place] = one
        return results

    def _reduce_one(self, gradient: Any, name: str | None) -> Any:
        return allreduce(
            gradient,
            device_dense=self.device_dense,
            device_sparse=self.device_sparse,
            compression=self.compression,
            op=ReduceOp(self.op),
            name=name,
            process_set=self.process_set,
            **self._factors,
        )

    def _reduce_dense(self, group: list[Any], names: list[str] | None) -> list[Any]:
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
