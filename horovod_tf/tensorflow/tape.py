"""The gradient tape for eager mode and tf.function."""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf

from horovod_tf.tensorflow.compression import Compression, Compressor
from horovod_tf.tensorflow.gradient_reduction import GradientReduction
from horovod_tf.tensorflow.grouping import Groups, groups_argument
from horovod_tf.tensorflow.local_variables import LocalVariables, layers_argument
from horovod_tf.tensorflow.mpi_ops import ProcessSet, global_process_set
from horovod_tf.tensorflow.reductions import Average

_SCOPE: Final = "DistributedGradientTape_Allreduce"


class _Reducing:
    """What is mixed into a tape's class."""

    _hvd_reduction: GradientReduction
    _hvd_local: LocalVariables

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
        reduced = self._hvd_reduction.reduce(flat, _SCOPE, tf.nest.flatten(sources), self._hvd_local)
        return tf.nest.pack_sequence_as(gradients, reduced)

    def register_local_source(self, source: Any) -> None:
        """Makes `source`, a variable, this rank's own: its gradients are not reduced."""
        self._hvd_local.register(source)


def DistributedGradientTape(  # noqa: N802 - the reference system's name
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool | str = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Makes `gradtape` reduce the gradients that it gives over all ranks, and returns it.

    The same object, with what it has recorded: it may be persistent, and may be wrapped while it records or later. All
    ranks ask for the same gradients in the same order. Its `register_local_source(source)` leaves a variable out.

    Args:
        gradtape: A `tf.GradientTape`.
        device_dense: This and all that is not here: as `gradient_reduction.GradientReduction` has them.
        device_sparse: See there.
        compression: See there.
        sparse_as_dense: See there.
        op: See there.
        gradient_predivide_factor: See there.
        num_groups: The older name of groups.
        groups: See there.
        process_set: See there. Ranks that are not in it get their own gradients.
        scale_local_gradients: Whether gradients of local sources are divided by the number of ranks.

    Raises:
        ValueError: this is no tape, or one that reduces already; op and gradient_predivide_factor do not go together;
            or groups is neither a number nor lists of variables.
    """
    options = (device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor)
    reduction = GradientReduction(*options, groups_argument(groups, num_groups), process_set)
    return _reducing(gradtape, reduction, LocalVariables(scale=scale_local_gradients, process_set=process_set))


def PartialDistributedGradientTape(  # noqa: N802 - the reference system's name
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool | str = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """As `DistributedGradientTape`, but gradients of some layers are not reduced: each rank has its own of them.

    Args:
        gradtape: A `tf.GradientTape`.
        device_dense: This and all that is not here: as for `DistributedGradientTape`.
        device_sparse: See there.
        compression: See there.
        sparse_as_dense: See there.
        op: See there.
        gradient_predivide_factor: See there.
        num_groups: See there.
        groups: See there.
        process_set: See there. Ranks that are not in it get their own gradients.
        local_layers: A layer or several: all their trainable weights, also those that are made later.
        scale_local_gradients: See there.

    Raises:
        ValueError: as `DistributedGradientTape`; or one of `local_layers` is no layer.
    """
    options = (device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor)
    reduction = GradientReduction(*options, groups_argument(groups, num_groups), process_set)
    return _reducing(
        gradtape, reduction, LocalVariables(layers_argument(local_layers), scale_local_gradients, process_set)
    )


def _reducing(gradtape: Any, reduction: GradientReduction, local: LocalVariables) -> Any:
    """`gradtape`, of another class."""
    base: Any = type(gradtape)
    if issubclass(base, _Reducing):
        raise ValueError("this tape reduces its gradients already: wrap a tape once")
    if not isinstance(gradtape, tf.GradientTape):
        raise ValueError(f"{base.__module__}.{base.__name__} is not a tf.GradientTape")
    members = {
        "__module__": base.__module__,
        "__doc__": base.__doc__,
        "_hvd_reduction": reduction,
        "_hvd_local": local,
    }
    gradtape.__class__ = type(base.__name__, (_Reducing, base), members)
    return gradtape
