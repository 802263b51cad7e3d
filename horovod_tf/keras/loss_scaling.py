"""Loss scaling that is put around an optimizer that averages, as Keras' `compile` does it by itself."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf


@functools.cache
def average_before_scaling(averages: Any) -> None:
    """From now on loss scaling around an optimizer that `averages` sees averages, and all ranks skip the same steps.

    Such an optimizer is asked only where the gradients are finite, which is another question on each rank: some would
    wait for averages that others leave out. Loss scaling around other optimizers is as it was.

    Args:
        averages: The class of optimizers with `_hvd_pass_before(outer, gradients, variables, apply)`, and with
            `_hvd_made_averaging(plain)` for copies.
    """
    kind = tf.keras.mixed_precision.LossScaleOptimizer
    # In Keras 2 the public class stands for one of two others.
    for one in (kind, *kind.__subclasses__()):
        for place, made in (("apply", _apply), ("apply_gradients", _apply_gradients)):
            if place in vars(one) and not issubclass(one, averages):
                setattr(one, place, made(vars(one)[place], averages))
                if place == "apply":
                    one.__reduce_ex__ = _reduce_ex(one.__reduce_ex__, averages)
                break


def _apply(before: Callable[..., Any], averages: Any) -> Callable[..., Any]:
    """Keras 3's."""

    @functools.wraps(before)
    def apply(self: Any, grads: Iterable[Any], trainable_variables: Any = None) -> Any:
        if not isinstance(self.inner_optimizer, averages):
            return before(self, grads, trainable_variables)
        variables = self.inner_optimizer._hvd_variables(trainable_variables)
        return self.inner_optimizer._hvd_pass_before(
            self, list(grads), variables, lambda averaged: before(self, averaged, trainable_variables)
        )

    return apply


def _reduce_ex(before: Callable[..., Any], averages: Any) -> Callable[..., Any]:
    """Keras 3's, which copies and pickles what it would save: the plain optimizer inside."""

    @functools.wraps(before)
    def reduce_ex(self: Any, protocol: Any) -> Any:
        made = before(self, protocol)
        inner = self.inner_optimizer
        return (_rebuilt, (made, inner._hvd_made_averaging)) if isinstance(inner, averages) else made

    return reduce_ex


def _rebuilt(made: tuple[Callable[..., Any], tuple[Any, ...]], averaging: Callable[[Any], Any]) -> Any:
    make, arguments = made
    outer = make(*arguments)
    averaging(outer.inner_optimizer)
    return outer


def _apply_gradients(before: Callable[..., Any], averages: Any) -> Callable[..., Any]:
    """Keras 2's."""

    @functools.wraps(before)
    def apply_gradients(self: Any, grads_and_vars: Iterable[tuple[Any, Any]], *args: Any, **kwargs: Any) -> Any:
        if not isinstance(self.inner_optimizer, averages):
            return before(self, grads_and_vars, *args, **kwargs)
        pairs = list(grads_and_vars)
        variables = [variable for _, variable in pairs]
        return self.inner_optimizer._hvd_pass_before(
            self,
            [gradient for gradient, _ in pairs],
            variables,
            lambda averaged: before(self, list(zip(averaged, variables)), *args, **kwargs),
        )

    return apply_gradients
