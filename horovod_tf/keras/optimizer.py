"""The optimizer for Keras 2 and Keras 3, in graphs, functions and eager mode."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from horovod_tf.tensorflow.compression import Compression, Compressor
from horovod_tf.tensorflow.gradient_reduction import GradientReduction
from horovod_tf.tensorflow.mpi_ops import ProcessSet, global_process_set
from horovod_tf.tensorflow.reductions import Average


class _Averaging:
    """What is mixed into an optimizer's class: gradients are averaged once on their way to the variables."""

    # Of the class, so that one made from the configuration averages too.
    _hvd_scope: str
    _hvd_reduction: GradientReduction
    # What get_gradients has averaged and may come to apply_gradients. The objects themselves, so that nothing else can
    # get their identity.
    _hvd_averaged: Sequence[Any] = ()

    def _hvd_average(self, gradients: list[Any]) -> list[Any]:
        done = {id(gradient) for gradient in self._hvd_averaged if gradient is not None}
        if done and all(gradient is None or id(gradient) in done for gradient in gradients):
            return gradients
        return self._hvd_reduction.reduce(gradients, self._hvd_scope)


class _AveragingInGetGradients(_Averaging):
    """Keras 2's optimizers of graph mode."""

    def get_gradients(self, loss: Any, params: Any) -> list[Any]:
        """The gradients of `loss` with respect to `params`, averaged over all ranks; None stays None.

        Raises:
            ValueError: before `hvd.init()`.
        """
        self._hvd_averaged = self._hvd_average(super().get_gradients(loss, params))  # type: ignore[misc]
        return self._hvd_averaged


class _AveragingInApplyGradients(_Averaging):
    """Keras 2."""

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]], *args: Any, **kwargs: Any) -> Any:
        """Averages the gradients over all ranks, and does what the optimizer does with them.

        Raises:
            ValueError: before `hvd.init()`.
        """
        pairs = list(grads_and_vars)
        averaged = self._hvd_average([gradient for gradient, _ in pairs])
        pairs = [(gradient, variable) for gradient, (_, variable) in zip(averaged, pairs)]
        return super().apply_gradients(pairs, *args, **kwargs)  # type: ignore[misc]


class _AveragingInApply(_Averaging):
    """Keras 3, where everything ends in `apply`."""

    def apply(self, grads: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        """Averages the gradients over all ranks, and does what the optimizer does with them.

        Raises:
            ValueError: before `hvd.init()`.
        """
        return super().apply(self._hvd_average(list(grads)), *args, **kwargs)  # type: ignore[misc]


# In this order: what a class offers decides where gradients pass.
_PLACES: dict[str, type] = {
    "get_gradients": _AveragingInGetGradients,
    "apply": _AveragingInApply,
    "apply_gradients": _AveragingInApplyGradients,
}


def DistributedOptimizer(  # noqa: N802 - the reference system's name
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Makes `optimizer` average gradients over all ranks before it applies them, and returns it.

    The same object, so that it keeps all that it was given and what it has learnt: a schedule that only this program
    knows, or the state of a loaded model. Its class becomes a subclass of the same name: a model saved with it loads
    without this package. Compile the model with it afterwards; what has been traced before does not average.

    With Keras 3, compile the model with `jit_compile=False`: XLA does not know the collectives.

    Loss scaling goes inside: `DistributedOptimizer(LossScaleOptimizer(optimizer))`. The other way round, as `compile`
    does it by itself under the policy mixed_float16, a rank whose gradients overflow skips the averages that the others
    wait for.

    Args:
        optimizer: A Keras optimizer, of Keras 2 (also `tf.keras.optimizers.legacy`) or Keras 3. What it clips are the
            averaged gradients.
        name: "Distributed" and the optimizer's class by default. The averages are under "<name>_Allreduce".
        device_dense: Where the averages of dense gradients are placed; '' leaves that to TensorFlow.
        device_sparse: The same for `tf.IndexedSlices`.
        compression: What is reduced instead of a dense gradient: one of `Compression`.
        sparse_as_dense: Whether `tf.IndexedSlices` are made dense first.
        gradient_predivide_factor: Of an average: gradients are divided by it before they are added up.
        op: Average or Sum.
        process_set: Whose ranks average. The others apply their own gradients.

    Raises:
        ValueError: this is no Keras optimizer, or one that averages already; or op and gradient_predivide_factor do
            not go together.
    """
    base: Any = type(optimizer)
    if issubclass(base, _Averaging):
        raise ValueError(f"this {base.__name__} averages already: wrap an optimizer once")
    offered = {place: mixin for place, mixin in _PLACES.items() if callable(getattr(base, place, None))}
    if "apply" in offered:
        offered.pop("apply_gradients", None)
    if not offered or not hasattr(base, "from_config"):
        raise ValueError(
            f"{base.__module__}.{base.__name__} is not a Keras optimizer: it must have from_config, and get_gradients, "
            "apply or apply_gradients. For optimizers of tf.compat.v1 there is "
            "horovod_tf.tensorflow.DistributedOptimizer"
        )
    members = {
        "__module__": base.__module__,
        "__doc__": base.__doc__,
        "_hvd_scope": f"{name or 'Distributed' + base.__name__}_Allreduce",
        "_hvd_reduction": GradientReduction(
            device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor, process_set
        ),
    }
    optimizer.__class__ = type(base.__name__, (*offered.values(), base), members)
    return optimizer
