"""What two generations of Keras keep, by one name each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import tensorflow as tf

from horovod_tf.tensorflow.functions import broadcast_variables

_KERAS_3: Final = hasattr(tf.keras.optimizers.SGD, "apply")
_GENERATIONS: Final = [tf.keras.optimizers] if _KERAS_3 else [tf.keras.optimizers, tf.keras.optimizers.legacy]
_RATE_IN_MOMENTUM: Final = tuple(kind for one in _GENERATIONS for kind in (one.SGD, one.RMSprop))


def weights_so_far(model: Any) -> list[Any]:
    """The model's weights; none where its first batch makes them."""
    try:
        return list(model.weights)
    except ValueError:  # what Keras 2 says then
        return []


def variables_of(optimizer: Any) -> list[Any]:
    """The optimizer's own: slots, counters."""
    variables = getattr(optimizer, "variables", [])
    return list(variables() if callable(variables) else variables)


def broadcast_values(variables: Iterable[Any], root_rank: int) -> None:
    """`broadcast_variables`, in graph mode in Keras' session."""
    operation = broadcast_variables(variables, root_rank)
    if operation is not None:
        tf.compat.v1.keras.backend.get_session().run(operation)


def value_of(variable: Any) -> Any:
    """Its value now: a number or an array."""
    if tf.executing_eagerly():
        # Without Keras, whose way from a variable to an array warns with NumPy 2.
        return tf.convert_to_tensor(variable).numpy()
    return tf.keras.backend.get_value(variable)


def _set(variable: Any, value: Any) -> None:
    if tf.executing_eagerly():
        variable.assign(value)
    else:
        tf.keras.backend.set_value(variable, value)


def _innermost(optimizer: Any) -> Any:
    """The one that a loss scaling optimizer scales for."""
    while hasattr(optimizer, "inner_optimizer"):
        optimizer = optimizer.inner_optimizer
    return optimizer


def refuse_schedule(optimizer: Any) -> None:
    """Whether the learning rate may be set.

    Raises:
        ValueError: a schedule decides.
    """
    rate = _innermost(optimizer).get_config().get("learning_rate")
    if isinstance(rate, dict):
        raise ValueError(
            f"the optimizer's learning rate is decided by its {rate['class_name']}: give it a number, or leave this "
            "callback out"
        )


def learning_rate(optimizer: Any) -> float:
    """What is in force."""
    return float(value_of(optimizer.learning_rate))


def set_learning_rate(optimizer: Any, rate: float) -> None:
    """Also for functions that have been traced: it is a variable."""
    _set(optimizer.learning_rate, rate)


def scale_momentum(optimizer: Any, factor: float) -> None:
    """Multiplies what steps have left behind for the next: nothing, where the optimizer has no momentum.

    Only of SGD and RMSprop, whose momentum has the learning rate in it: that of Adam, Lion or Muon has not.
    """
    optimizer = _innermost(optimizer)
    if not isinstance(optimizer, _RATE_IN_MOMENTUM):
        return
    left = getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", None)  # of SGD, of RMSprop
    if left is None and hasattr(optimizer, "get_slot_names") and "momentum" in optimizer.get_slot_names():
        # Keras 2's legacy optimizers, whose momentum may be 0 and then has no slots.
        left = [one for one in variables_of(optimizer) if one.name.partition(":")[0].endswith("/momentum")]
    for variable in left or []:
        _set(variable, value_of(variable) * factor)
