"""The optimizer for Keras 2, whose gradients come from a graph."""

from __future__ import annotations

from typing import Any

from horovod_tf.tensorflow.collectives import allreduce
from horovod_tf.tensorflow.optimizer import average_gradients


class _Averaging:
    """What is mixed into an optimizer's class."""

    _hvd_scope: str
    _hvd_devices: dict[str, Any]

    def get_gradients(self, loss: Any, params: Any) -> list[Any]:
        """The gradients of `loss` with respect to `params`, averaged over all ranks; None stays None.

        Raises:
            ValueError: before `hvd.init()`.
        """
        gradients = super().get_gradients(loss, params)  # type: ignore[misc]
        return average_gradients(gradients, self._hvd_scope, lambda one: allreduce(one, **self._hvd_devices))


def DistributedOptimizer(  # noqa: N802 - the reference system's name
    optimizer: Any, name: str | None = None, device_dense: str = "", device_sparse: str = ""
) -> Any:
    """An optimizer like `optimizer` that averages gradients over all ranks.

    Its class has the same name, so that a model saved with it loads without this package.

    Args:
        optimizer: A Keras optimizer that has `get_gradients` (Keras 2: `tf.keras.optimizers.legacy`).
        name: "Distributed" and the optimizer's class by default. The averages are under "<name>_Allreduce".
        device_dense: Where the averages of dense gradients are placed; '' leaves that to TensorFlow.
        device_sparse: The same for `tf.IndexedSlices`.

    Raises:
        ValueError: this optimizer has no `get_gradients`, so nothing would be averaged.
    """
    base: Any = type(optimizer)
    if not hasattr(base, "get_gradients"):
        raise ValueError(
            f"{base.__module__}.{base.__name__} has no get_gradients, so its gradients would not be averaged: use an "
            "optimizer of tf.keras.optimizers.legacy, or hvd.allreduce on the gradients"
        )
    wrapped: Any = type(base.__name__, (_Averaging, base), {"__module__": base.__module__})
    made = wrapped.from_config(optimizer.get_config())
    made._hvd_scope = f"{name or 'Distributed' + base.__name__}_Allreduce"
    made._hvd_devices = {"device_dense": device_dense, "device_sparse": device_sparse}
    return made
