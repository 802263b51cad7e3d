"""Callbacks of `fit` for several ranks."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from horovod_tf.common.basics import rank, size
from horovod_tf.keras.state import (
    broadcast_values,
    learning_rate,
    refuse_schedule,
    scale_momentum,
    set_learning_rate,
    variables_of,
    weights_so_far,
)
from horovod_tf.tensorflow.objects import allgather_object

_Callback: Any = tf.keras.callbacks.Callback


class BroadcastGlobalVariablesCallback(_Callback):
    """Gives all ranks the weights and the optimizer's variables that one rank has.

    The weights before the first batch, so that it begins with the same on all ranks; all after it, when the optimizer
    has its variables.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Iterable[Any] | None = None) -> None:
        """Of rank `root_rank`.

        Args:
            root_rank: The same on all ranks.
            device: Of no use.
            local_variables: Each rank's own, which are left alone.
        """
        super().__init__()
        del device
        self._root_rank = root_rank
        self._local_variables = list(local_variables or [])
        self._done = False

    def register_local_var(self, var: Any) -> None:
        """Leaves this variable alone, too."""
        self._local_variables.append(var)

    def _broadcast(self, variables: Iterable[Any]) -> None:
        local = {id(variable) for variable in self._local_variables}
        broadcast_values([variable for variable in variables if id(variable) not in local], self._root_rank)

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcasts the weights that there are."""
        if not self._done:
            self._broadcast(weights_so_far(self.model))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcasts all, once."""
        if self._done:
            return
        self._done = True
        self._broadcast([*self.model.weights, *variables_of(self.model.optimizer)])


def _is_number(value: Any) -> bool:
    return isinstance(value, (numbers.Number, np.ndarray)) and np.ndim(value) == 0


def average_of_ranks(logs: dict[str, Any]) -> dict[str, float]:
    """The averages of all numbers in `logs` over all ranks.

    Raises:
        ValueError: ranks have different ones; the text names them.
    """
    mine = {name: float(value) for name, value in logs.items() if _is_number(value)}
    every = allgather_object(mine, name="HorovodMetrics")
    for other, theirs in enumerate(every):
        if set(theirs) != set(every[0]):
            raise ValueError(
                f"ranks have different metrics: rank 0 has {sorted(every[0])} and rank {other} has {sorted(theirs)}. "
                "Compile and evaluate the same on all ranks"
            )
    return {name: float(np.mean([theirs[name] for theirs in every])) for name in mine}


class MetricAverageCallback(_Callback):
    """Replaces the metrics of an epoch by their averages over all ranks. Goes before callbacks that look at them."""

    def __init__(self, device: str = "") -> None:
        """Of all numbers in the logs; `device` is of no use."""
        super().__init__()
        del device

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Averages.

        Raises:
            ValueError: ranks have different metrics.
        """
        if logs is not None:
            logs.update(average_of_ranks(logs))


class EarlyStopping(tf.keras.callbacks.EarlyStopping):
    """As Keras' own, but by the average of what is monitored: all ranks stop after the same epoch."""

    def get_monitor_value(self, logs: dict[str, Any] | None) -> Any:
        """The average; None where a rank has no value, with Keras' own warning.

        Raises:
            ValueError: ranks monitor different things.
        """
        value = super().get_monitor_value(logs or {})
        return average_of_ranks({} if value is None else {self.monitor: value}).get(self.monitor)


class LearningRateScheduleCallback(_Callback):
    """Multiplies the initial learning rate by a function of the epoch."""

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        """From `start_epoch` on.

        Args:
            initial_lr: What is multiplied.
            multiplier: A function of the epoch, or a number whose power is taken: one more with every epoch.
            start_epoch: The first epoch, counted from 0, in which this decides.
            end_epoch: The first in which it does no more; never, by default.
            staircase: Whether it decides once in an epoch. If not, before every batch, by a fraction of the epoch.
            momentum_correction: Whether what earlier steps have left behind is changed as the learning rate is.
            steps_per_epoch: What fractions are of. Keras knows it, unless the data have no length.

        Raises:
            ValueError: initial_lr is None.
        """
        super().__init__()
        if initial_lr is None:
            raise ValueError("initial_lr is the learning rate that is multiplied, and must be given")
        self._initial = initial_lr
        self._multiplier: Callable[[float], float] = (
            multiplier if callable(multiplier) else lambda epoch: multiplier ** (epoch - start_epoch)
        )
        self._epochs = (start_epoch, end_epoch)
        self._staircase = staircase
        self._momentum_correction = momentum_correction
        self._steps_per_epoch = steps_per_epoch
        self._epoch = 0

    def _decides(self) -> bool:
        start, end = self._epochs
        return self._epoch >= start and (end is None or self._epoch < end)

    def _adjust(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        before, now = learning_rate(optimizer), self._initial * self._multiplier(epoch)
        set_learning_rate(optimizer, now)
        if self._momentum_correction and before > 0 and now != before:
            scale_momentum(optimizer, now / before)

    def _steps(self) -> int:
        steps = self._steps_per_epoch or (self.params or {}).get("steps")
        if not steps:
            raise ValueError("Keras does not know how many steps an epoch has: give steps_per_epoch")
        return int(steps)

    def on_train_begin(self, logs: Any = None) -> None:
        """Looks at the optimizer.

        Raises:
            ValueError: its own schedule decides.
        """
        refuse_schedule(self.model.optimizer)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Decides, if it does so once in an epoch."""
        self._epoch = epoch
        if self._staircase and self._decides():
            self._adjust(epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Decides, if it does so before every batch.

        Raises:
            ValueError: nobody knows how many steps an epoch has.
        """
        if not self._staircase and self._decides():
            self._adjust(self._epoch + batch / self._steps())

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the learning rate to the logs."""
        if logs is not None:
            logs["lr"] = learning_rate(self.model.optimizer)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from that of one process to that of all, batch by batch.

    With N ranks, from initial_lr / N to initial_lr: large steps of large batches lead astray while all is new.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        """During the first `warmup_epochs`.

        Args:
            initial_lr: What it ends with: the learning rate of one process times the number of ranks.
            warmup_epochs: How long it takes.
            momentum_correction: As for `LearningRateScheduleCallback`.
            steps_per_epoch: As for `LearningRateScheduleCallback`.
            verbose: Above 0, rank 0 says when it is over.

        Raises:
            ValueError: initial_lr is None, or before `hvd.init()`.
        """
        smallest = 1 / size()
        super().__init__(
            initial_lr,
            # The last batch of it has all.
            lambda epoch: smallest + (1 - smallest) * min(1.0, (epoch + self._step()) / warmup_epochs),
            end_epoch=int(np.ceil(warmup_epochs)),
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self._says_end = verbose > 0

    def _step(self) -> float:
        return 1 / self._steps()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the learning rate to the logs, and says when the last epoch of it is over."""
        super().on_epoch_end(epoch, logs)
        if self._says_end and epoch + 1 == self._epochs[1] and rank() == 0:
            rate = learning_rate(self.model.optimizer)
            print(f"\nEpoch {epoch + 1}: the warm-up of the learning rate ends at {rate:g}.")
