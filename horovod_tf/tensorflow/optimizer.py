"""The optimizer for graph mode."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from horovod_tf.tensorflow.collectives import allreduce
from horovod_tf.tensorflow.mpi_ops import size


def average_gradients(gradients: list[Any], scope: str, reduce: Callable[[Any], Any]) -> list[Any]:
    """`reduce` of every gradient, under name scope `scope`; None stays None. Alone, the gradients themselves."""
    if size() == 1:
        return list(gradients)
    with tf.name_scope(scope):
        return [None if gradient is None else reduce(gradient) for gradient in gradients]


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
    ) -> None:
        """Wraps `optimizer`.

        Args:
            optimizer: Computes and applies the gradients.
            name: "Distributed" and the optimizer's class by default. The averages are under "<name>_Allreduce".
            use_locking: As of every Optimizer.
            device_dense: Where the averages of dense gradients are placed; '' leaves that to TensorFlow.
            device_sparse: The same for `tf.IndexedSlices`.
        """
        super().__init__(name=name or f"Distributed{type(optimizer).__name__}", use_locking=use_locking)
        self._optimizer = optimizer
        self._device_dense = device_dense
        self._device_sparse = device_sparse

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """The wrapped optimizer's (gradient, variable) pairs with averaged gradients.

        Raises:
            ValueError: before `init()`.
        """
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        averaged = average_gradients(
            [gradient for gradient, _ in pairs],
            f"{self.get_name()}_Allreduce",
            lambda gradient: allreduce(gradient, device_dense=self._device_dense, device_sparse=self._device_sparse),
        )
        return [(gradient, variable) for gradient, (_, variable) in zip(averaged, pairs)]

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


def _delegated(name: str) -> Callable[..., Any]:
    def call(self: DistributedOptimizer, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._optimizer, name)(*args, **kwargs)

    return functools.update_wrapper(call, getattr(tf.compat.v1.train.Optimizer, name))


# What Optimizer itself defines for its subclasses, checkpoints and wrappers finds no __getattr__, and would work on
# slots of this object, which are empty: a restored momentum would be lost without a word.
for _name, _member in vars(tf.compat.v1.train.Optimizer).items():
    if _name.startswith("_") and not _name.startswith("__") and callable(_member):
        setattr(DistributedOptimizer, _name, _delegated(_name))
