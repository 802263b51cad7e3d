"""Variables that each rank has for itself: their gradients are not reduced."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from horovod_tf.tensorflow.grouping import key_of
from horovod_tf.tensorflow.mpi_ops import ProcessSet, global_process_set


def layers_argument(local_layers: Any) -> list[Any]:
    """`local_layers=`: a layer, several, or None.

    Raises:
        ValueError: one of them is no layer.
    """
    layers = list(local_layers) if isinstance(local_layers, (list, tuple, set)) else [local_layers]
    layers = [layer for layer in layers if layer is not None]
    if layers and not all(isinstance(layer, tf.keras.layers.Layer) for layer in layers):
        raise ValueError("All local layers must be of tf.keras.layers.Layer type.")
    return layers


class LocalVariables:
    """Which variables are this rank's own.

    The gradient of such a variable holds what all ranks' losses say about it, where their data have come to this rank;
    all others are averages. So it is divided by the number of ranks, unless that is not wanted.
    """

    def __init__(
        self, layers: Iterable[Any] = (), scale: bool = True, process_set: ProcessSet = global_process_set
    ) -> None:
        """All trainable weights of `layers`, also of those that have none yet; `scale`: whether to divide.

        By the number of ranks of `process_set`.
        """
        self._layers = list(layers)
        self._scale = scale
        self._process_set = process_set
        self._registered: dict[int, Any] = {}  # with the variables, so that nothing else gets their identity

    def register(self, variable: Any) -> None:
        """Adds one."""
        self._registered[key_of(variable)] = variable

    def places(self, variables: Iterable[Any]) -> set[int]:
        """Where in `variables` this rank's own are."""
        keys = set(self._registered)
        keys.update(key_of(weight) for layer in self._layers for weight in layer.trainable_weights)
        if not keys:
            return set()
        return {place for place, variable in enumerate(variables) if key_of(variable) in keys}

    def scaled(self, gradient: Any) -> Any:
        """A gradient of one of them, as it is applied; None stays None."""
        if gradient is None or not self._scale or self._process_set.size() == 1:
            return gradient
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(self.scaled(gradient.values), gradient.indices, gradient.dense_shape)
        return gradient / tf.cast(self._process_set.size(), gradient.dtype)
