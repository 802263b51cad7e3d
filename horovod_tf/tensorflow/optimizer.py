"""The optimizer for graph mode."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from horovod_tf.tensorflow.compression import Compression, Compressor
from horovod_tf.tensorflow.gradient_reduction import GradientReduction
from horovod_tf.tensorflow.mpi_ops import ProcessSet, global_process_set
from horovod_tf.tensorflow.reductions import Average


class DistributedOptimizer(tf.compat.v1.train.Optimizer):
    """A `tf.compat.v1.train.Optimizer` that averages gradients over all ranks before another one applies them.

    Everything else is the wrapped optimizer's: attributes that only its class has, slots, and what checkpoints and
    other wrappers ask of an optimizer. The name is this one's own.
    """

    def __init__(
        self,
        optimizer: Any,
        name: str | None = None,
        use_locking: bool = False,
        device_dense: str = "",
        device_sparse: str = "",
        compression: type[Compressor] = Compression.none,
        sparse_as_dense: bool = False,
        op: int = Average,
        gradient_predivide_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        """Wraps `optimizer`.

        Args:
            optimizer: Computes and applies the gradients.
            name: "Distributed" and the optimizer's class by default. The averages are under "<name>_Allreduce".
            use_locking: As of every Optimizer.
            device_dense: Where the averages of dense gradients are placed; '' leaves that to TensorFlow.
            device_sparse: The same for `tf.IndexedSlices`.
            compression: What is reduced instead of a dense gradient: one of `Compression`.
            sparse_as_dense: Whether `tf.IndexedSlices` are made dense first.
            op: Average or Sum.
            gradient_predivide_factor: Of an average: gradients are divided by it before they are added up.
            process_set: Whose ranks average. The others apply their own gradients.

        Raises:
            ValueError: op and gradient_predivide_factor do not go together.
        """
        # Not what Optimizer makes, slots for instance: there is one state, the wrapped optimizer's.
        self._name = name or f"Distributed{type(optimizer).__name__}"
        self._use_locking = use_locking
        self._optimizer = optimizer
        self._reduction = GradientReduction(
            device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor, process_set
        )

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """The wrapped optimizer's (gradient, variable) pairs with averaged gradients.

        Raises:
            ValueError: before `init()`.
        """
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        reduced = self._reduction.reduce([gradient for gradient, _ in pairs], f"{self.get_name()}_Allreduce")
        return [(gradient, variable) for gradient, (_, variable) in zip(reduced, pairs)]

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """The wrapped optimizer's."""
        return self._optimizer.apply_gradients(*args, **kwargs)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """The wrapped optimizer's."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """The wrapped optimizer's."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """The wrapped optimizer's."""
        return self._optimizer.variables(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # Asked only for what neither this object nor its class has: what belongs to the wrapped optimizer's own class.
        if name == "_optimizer":  # not there yet: while copying
            raise AttributeError(name)
        return getattr(self._optimizer, name)


def _delegated_method(name: str, inherited: Any) -> Callable[..., Any]:
    def call(self: DistributedOptimizer, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._optimizer, name)(*args, **kwargs)

    return functools.update_wrapper(call, inherited)


def _delegate_inherited() -> None:
    """Delegates what Optimizer defines for subclasses, checkpoints and wrappers: it finds no `__getattr__`.

    What the bases define works on state that it asks of this object and, as it has none, finds in the wrapped
    optimizer; if only it is made there. State kept twice would be, say, a restored momentum lost without a word.
    """
    for name, member in vars(tf.compat.v1.train.Optimizer).items():
        if name.startswith("_") and not name.startswith("__") and callable(member):
            setattr(DistributedOptimizer, name, _delegated_method(name, member))
    makes_state = "_maybe_initialize_trackable"
    inherited = getattr(tf.compat.v1.train.Optimizer, makes_state)
    setattr(DistributedOptimizer, makes_state, _delegated_method(makes_state, inherited))


_delegate_inherited()
