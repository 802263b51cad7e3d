"""Saved models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from horovod_tf.keras.optimizer import DistributedOptimizer
from horovod_tf.tensorflow.compression import Compression, Compressor


def load_model(
    filepath: Any,
    custom_optimizers: Iterable[type] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: type[Compressor] = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """A saved model, whose optimizer goes on with its state and averages gradients over all ranks.

    One that has been saved without an optimizer comes as it is: compile it with a `DistributedOptimizer`.

    Args:
        filepath: As for `tf.keras.models.load_model`.
        custom_optimizers: Classes of optimizers that Keras does not know.
        custom_objects: As for `tf.keras.models.load_model`.
        compression: As for `DistributedOptimizer`.
        legacy_opts: Of no use: Keras knows what it has saved.

    Raises:
        ValueError: what Keras says.
    """
    del legacy_opts
    known = {one.__name__: one for one in custom_optimizers or []}
    model = tf.keras.models.load_model(filepath, custom_objects={**known, **(custom_objects or {})})
    if getattr(model, "optimizer", None) is None:
        return model
    if getattr(model, "jit_compile", False) and hasattr(type(model), "jit_compile"):
        model.jit_compile = False  # Keras 3's default, XLA, knows no collectives
    DistributedOptimizer(model.optimizer, compression=compression)
    return model
