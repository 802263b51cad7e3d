"""The gradient tape for eager mode and tf.function."""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf

from horovod_tf.tensorflow.compression import Compression, Compressor
from horovod_tf.tensorflow.gradient_reduction import GradientReduction
from horovod_tf.tensorflow.mpi_ops import ProcessSet, global_process_set
from horovod_tf.tensorflow.reductions import Average

_SCOPE: Final = "DistributedGradientTape_Allreduce"


class _Reducing:
    """What is mixed into a tape's class."""

    _hvd_reduction: GradientReduction

    def gradient(self, target: Any, sources: Any, *args: Any, use_generic_names: bool = False, **kwargs: Any) -> Any:
        """The tape's gradients, reduced over all ranks; in the structure of `sources`, None stays None.

        Args:
            target: As of the tape.
            sources: As of the tape.
            args: As of the tape.
            use_generic_names: Of no use: ranks match gradients by their places in any case.
            kwargs: As of the tape.

        Raises:
            ValueError: before `hvd.init()`.
        """
        del use_generic_names
        gradients = super().gradient(target, sources, *args, **kwargs)  # type: ignore[misc]
        # A gradient of IndexedSlices is one, although it is a structure itself.
        flat = tf.nest.flatten(gradients)
        return tf.nest.pack_sequence_as(gradients, self._hvd_reduction.reduce(flat, _SCOPE))


def DistributedGradientTape(  # noqa: N802 - the reference system's name
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Makes `gradtape` reduce the gradients that it gives over all ranks, and returns it.

    The same object, with what it has recorded: it may be persistent, and may be wrapped while it records or later. All
    ranks ask for the same gradients in the same order.

    Args:
        gradtape: A `tf.GradientTape`.
        device_dense: Where the reductions of dense gradients are placed; '' leaves that to TensorFlow.
        device_sparse: The same for `tf.IndexedSlices`.
        compression: What is reduced instead of a dense gradient: one of `Compression`.
        sparse_as_dense: Whether `tf.IndexedSlices` are made dense first.
        op: Average or Sum.
        gradient_predivide_factor: Of an average: gradients are divided by it before they are added up.
        process_set: Whose ranks average. The others get their own gradients.

    Raises:
        ValueError: this is no tape, or one that reduces already; or op and gradient_predivide_factor do not go
            together.
    """
    base: Any = type(gradtape)
    if issubclass(base, _Reducing):
        raise ValueError("this tape reduces its gradients already: wrap a tape once")
    if not isinstance(gradtape, tf.GradientTape):
        raise ValueError(f"{base.__module__}.{base.__name__} is not a tf.GradientTape")
    reduction = GradientReduction(
        device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor, process_set
    )
    members = {"__module__": base.__module__, "__doc__": base.__doc__, "_hvd_reduction": reduction}
    gradtape.__class__ = type(base.__name__, (_Reducing, base), members)
    return gradtape
