"""The optimizer: of graph mode; that of Keras is elsewhere."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from horovod_tf.tensorflow.aggregation import LocalGradientAggregationHelper, v1_graph
from horovod_tf.tensorflow.compression import Compression, Compressor
from horovod_tf.tensorflow.gradient_reduction import GradientReduction
from horovod_tf.tensorflow.grouping import Groups, groups_argument, key_of
from horovod_tf.tensorflow.local_variables import LocalVariables
from horovod_tf.tensorflow.mpi_ops import ProcessSet, global_process_set
from horovod_tf.tensorflow.reductions import Average


class GraphOptimizer(tf.compat.v1.train.Optimizer):
    """What `DistributedOptimizer` makes of a `tf.compat.v1.train.Optimizer`.

    All but the averages is the wrapped optimizer's: attributes that only its class has, slots, and what checkpoints and
    other wrappers ask of an optimizer. The name is this one's own.
    """

    def __init__(
        self,
        optimizer: Any,
        name: str | None,
        use_locking: bool,
        reduction: GradientReduction,
        passes: tuple[int, bool],
        scale_local_gradients: bool,
    ) -> None:
        """Wraps `optimizer`; `passes` are their number in a step, and whether sums are divided by it."""
        # Not what Optimizer makes, slots for instance: there is one state, the wrapped optimizer's.
        self._name = name or f"Distributed{type(optimizer).__name__}"
        self._use_locking = use_locking
        self._optimizer = optimizer
        self._reduction = reduction
        self._local = LocalVariables(scale=scale_local_gradients, process_set=reduction.process_set)
        self._passes = passes
        self._aggregations: dict[tuple[int, ...], LocalGradientAggregationHelper] = {}
        self._new_aggregation()

    def register_local_var(self, var: Any) -> None:
        """Makes `var` this rank's own: its gradients are not reduced."""
        self._local.register(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """The wrapped optimizer's (gradient, variable) pairs with averaged gradients.

        Raises:
            ValueError: before `init()`.
        """
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        gradients, variables = [gradient for gradient, _ in pairs], [variable for _, variable in pairs]
        if self._passes[0] == 1:
            reduced = self._reduce(gradients, variables)
        else:
            reduced = self._aggregation_of(variables).compute_gradients(gradients, variables)
        return list(zip(reduced, variables))

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """The wrapped optimizer's; with several passes in a step, in the last of them.

        Raises:
            ValueError: there are several passes in a step, and `compute_gradients` has not been called for these
                variables.
        """
        pairs = list(grads_and_vars)
        if self._passes[0] == 1:
            return self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
        aggregation = self._aggregations.get(tuple(key_of(variable) for _, variable in pairs))
        if aggregation is None:
            raise ValueError(
                "with backward_passes_per_step, apply_gradients takes the variables that compute_gradients has given, "
                "in the same order"
            )
        return aggregation.apply_gradients(
            lambda: self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
        )

    def _reduce(self, gradients: list[Any], variables: list[Any]) -> list[Any]:
        return self._reduction.reduce(gradients, f"{self.get_name()}_Allreduce", variables, self._local)

    def _new_aggregation(self, variables: list[Any] | None = None) -> LocalGradientAggregationHelper:
        passes, average = self._passes
        return LocalGradientAggregationHelper(
            passes,
            lambda totals: self._reduce(totals, variables or []),
            self._reduction.sparse_as_dense is True,
            average,
            f"{self.get_name()}_Aggregation",
        )

    def _aggregation_of(self, variables: list[Any]) -> LocalGradientAggregationHelper:
        """In a graph each call of `compute_gradients` has its own; in eager mode calls are the passes of one."""
        key = tuple(key_of(variable) for variable in variables)
        if key not in self._aggregations or v1_graph():
            self._aggregations[key] = self._new_aggregation(variables)
        return self._aggregations[key]

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
    def call(self: GraphOptimizer, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._optimizer, name)(*args, **kwargs)

    return functools.update_wrapper(call, inherited)


def _delegate_inherited() -> None:
    """Delegates what Optimizer defines for subclasses, checkpoints and wrappers: it finds no `__getattr__`.

    What the bases define works on state that it asks of this object and, as it has none, finds in the wrapped
    optimizer; if only it is made there. State kept twice would be, say, a restored momentum lost without a word.
    """
    for name, member in vars(tf.compat.v1.train.Optimizer).items():
        if name.startswith("_") and not name.startswith("__") and callable(member):
            setattr(GraphOptimizer, name, _delegated_method(name, member))
    makes_state = "_maybe_initialize_trackable"
    inherited = getattr(tf.compat.v1.train.Optimizer, makes_state)
    setattr(GraphOptimizer, makes_state, _delegated_method(makes_state, inherited))


_delegate_inherited()


def DistributedOptimizer(  # noqa: N802 - the reference system's name
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool | str = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """A `tf.compat.v1.train.Optimizer` that averages gradients over all ranks before another one applies them.

    What is done with gradients between `compute_gradients` and `apply_gradients`, clipping for instance, is done with
    the averages. An optimizer of Keras is given to `horovod_tf.keras.DistributedOptimizer`, which says what it returns.

    Args:
        optimizer: Computes and applies the gradients.
        name: "Distributed" and the optimizer's class by default. The averages are under "<name>_Allreduce".
        use_locking: As of every Optimizer; of no use for one of Keras.
        device_dense: This and all that is not here: as `gradient_reduction.GradientReduction` has them.
        device_sparse: See there.
        compression: See there.
        sparse_as_dense: See there.
        backward_passes_per_step: N: gradients are added up on each rank in N passes. In the last of them the sums are
            averaged over all ranks and applied; in the others no variable moves, and `global_step` neither. In a
            graph, `tf.compat.v1.local_variables_initializer` makes the sums ready.
        op: See there.
        gradient_predivide_factor: See there.
        average_aggregated_gradients: Whether the sums are divided by N.
        num_groups: The older name of groups.
        groups: See there.
        process_set: See there. Ranks that are not in it apply their own gradients.
        scale_local_gradients: Whether gradients of variables of `register_local_var` are divided by the number of
            ranks.

    Raises:
        ValueError: this is no optimizer; op and gradient_predivide_factor do not go together; groups is neither a
            number nor lists of variables; or backward_passes_per_step is not a positive whole number.
    """
    groups = groups_argument(groups, num_groups)
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer) and hasattr(optimizer, "from_config"):
        # Only then: Keras takes seconds to import.
        return importlib.import_module("horovod_tf.keras.optimizer").DistributedOptimizer(
            optimizer,
            name,
            device_dense,
            device_sparse,
            compression,
            sparse_as_dense,
            gradient_predivide_factor,
            op,
            backward_passes_per_step,
            average_aggregated_gradients,
            groups=groups,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )
    if not all(hasattr(optimizer, method) for method in ("compute_gradients", "apply_gradients")):
        kind = type(optimizer)
        raise ValueError(
            f"{kind.__module__}.{kind.__name__} is neither an optimizer of tf.compat.v1.train nor one of Keras"
        )
    options = (device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor)
    reduction = GradientReduction(*options, groups, process_set)
    passes = (backward_passes_per_step, average_aggregated_gradients)
    return GraphOptimizer(optimizer, name, use_locking, reduction, passes, scale_local_gradients)
