"""The optimizer for Keras 2 and Keras 3, in graphs, functions and eager mode."""

from __future__ import annotations

import contextlib
import copy
import functools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from horovod_tf.keras.loss_scaling import average_before_scaling
from horovod_tf.tensorflow.aggregation import LocalGradientAggregationHelper, v1_graph
from horovod_tf.tensorflow.compression import Compression, Compressor
from horovod_tf.tensorflow.gradient_reduction import GradientReduction
from horovod_tf.tensorflow.grouping import Groups, groups_argument, key_of
from horovod_tf.tensorflow.local_variables import LocalVariables, layers_argument
from horovod_tf.tensorflow.mpi_ops import ProcessSet, global_process_set
from horovod_tf.tensorflow.reductions import Average
from horovod_tf.tensorflow.sparse import merged


class _Settings(NamedTuple):
    """What an optimizer was wrapped with."""

    scope: str
    reduction: GradientReduction
    passes: int
    average_passes: bool
    local_layers: Sequence[Any]
    scale_local: bool


class _State:
    """What one optimizer has besides: its local variables, and sums of gradients."""

    def __init__(self, settings: _Settings) -> None:
        self.settings = settings
        self.local = LocalVariables(settings.local_layers, settings.scale_local, settings.reduction.process_set)
        # What get_gradients has averaged and may come to apply_gradients. The objects themselves, so that nothing else
        # can get their identity.
        self.averaged: Sequence[Any] = ()
        self.passes_averages_on = False  # what comes has been averaged already
        self._aggregations: dict[tuple[int, ...], LocalGradientAggregationHelper] = {}

    @contextlib.contextmanager
    def passing_averages_on(self) -> Iterator[None]:
        self.passes_averages_on = True
        try:
            yield
        finally:
            self.passes_averages_on = False

    def average(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        done = {id(gradient) for gradient in self.averaged if gradient is not None}
        if done and all(gradient is None or id(gradient) in done for gradient in gradients):
            return list(gradients)
        return self.settings.reduction.reduce(gradients, self.settings.scope, variables, self.local)

    def aggregation_of(self, variables: Sequence[Any]) -> LocalGradientAggregationHelper:
        """One for each list of variables: a model may be trained in parts."""
        key = tuple(key_of(variable) for variable in variables)
        if key not in self._aggregations:
            variables = list(variables)
            self._aggregations[key] = LocalGradientAggregationHelper(
                self.settings.passes,
                lambda totals: self.average(totals, variables),
                self.settings.reduction.sparse_as_dense is True,
                self.settings.average_passes,
                self.settings.scope.replace("_Allreduce", "_Aggregation"),
            )
        return self._aggregations[key]


class _Averaging:
    """What is mixed into an optimizer's class: gradients are averaged once on their way to the variables."""

    # Of the class, so that one made from the configuration averages too.
    _hvd_settings: _Settings
    _hvd_plain: type
    _hvd_own: _State | None = None

    def _hvd_state(self) -> _State:
        if self._hvd_own is None:
            # Not by Keras' way, which looks for what is to be saved in it.
            object.__setattr__(self, "_hvd_own", _State(self._hvd_settings))
        assert self._hvd_own is not None
        return self._hvd_own

    # Keras 3 copies and pickles what it would save, which is the plain optimizer: what comes back averages, too.

    def __copy__(self) -> Any:
        return _made_averaging(self._hvd_as_plain(copy.copy), self._hvd_settings)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _made_averaging(self._hvd_as_plain(lambda plain: copy.deepcopy(plain, memo)), self._hvd_settings)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _unpickled, (self._hvd_as_plain(lambda plain: pickle.dumps(plain, protocol)), self._hvd_settings)

    def _hvd_as_plain(self, use: Callable[[Any], Any]) -> Any:
        """`use` of this optimizer, while it is of its plain class and holds nothing of ours."""
        averaging, own = type(self), self.__dict__.pop("_hvd_own", None)
        self.__class__ = averaging._hvd_plain
        try:
            return use(self)
        finally:
            self.__class__ = averaging
            if own is not None:
                object.__setattr__(self, "_hvd_own", own)

    @property
    def _hvd_made_averaging(self) -> Callable[[Any], Any]:
        """Makes a plain copy of this optimizer average as this one does; can be pickled."""
        return functools.partial(_made_averaging, settings=self._hvd_settings)

    def register_local_var(self, var: Any) -> None:
        """Makes `var` this rank's own: its gradients are not averaged."""
        self._hvd_state().local.register(var)

    def _hvd_variables(self, given: Sequence[Any] | None) -> list[Any]:
        """What Keras 3 applies gradients to if nothing is given."""
        return list(self._trainable_variables if given is None else given)  # type: ignore[attr-defined]

    def _hvd_pass_before(
        self, outer: Any, gradients: Sequence[Any], variables: Sequence[Any], apply: Callable[[list[Any]], Any]
    ) -> Any:
        """As `_hvd_pass`, for an optimizer around this one: its `apply` may come back to this one, or not."""

        def applied(averaged: list[Any]) -> Any:
            with self._hvd_state().passing_averages_on():
                return apply(averaged)

        return self._hvd_pass(gradients, variables, applied, outer)

    def _hvd_pass(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Any],
        apply: Callable[[list[Any]], Any],
        applying: Any = None,
    ) -> Any:
        """`apply` of the averages; with several passes in a step, in the last of them. By default this one applies."""
        state = self._hvd_state()
        if state.passes_averages_on:
            return apply(list(gradients))
        if state.settings.passes == 1:
            return apply(state.average(gradients, variables))
        if v1_graph():
            return self._hvd_pass_in_graph(gradients, variables, apply)
        applying = applying or self
        if getattr(applying, "built", True) is False:  # Keras 3; its variables cannot be made inside a condition
            with tf.init_scope():
                applying.build(variables)
        state.aggregation_of(variables).step(gradients, variables, apply)
        return getattr(self, "iterations", None)

    def _hvd_pass_in_graph(
        self, gradients: Sequence[Any], variables: Sequence[Any], apply: Callable[[list[Any]], Any]
    ) -> Any:
        aggregation = self._hvd_state().aggregation_of(variables)
        done = aggregation.step(gradients, variables, apply)
        # Keras initializes only what it has made itself.
        session = tf.compat.v1.keras.backend.get_session()
        session.run([variable.initializer for variable in aggregation.variables])
        return done


class _AveragingInGetGradients(_Averaging):
    """Keras 2's optimizers of graph mode."""

    def get_gradients(self, loss: Any, params: Any) -> list[Any]:
        """The gradients of `loss` with respect to `params`, averaged over all ranks; None stays None.

        With several passes in a step they are this rank's own, and `apply_gradients` does the rest.

        Raises:
            ValueError: before `hvd.init()`.
        """
        gradients: list[Any] = super().get_gradients(loss, params)  # type: ignore[misc]
        state = self._hvd_state()
        if state.settings.passes == 1:
            state.averaged = gradients = state.average(gradients, params)
        return gradients


class _AveragingInApplyGradients(_Averaging):
    """Keras 2."""

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]], *args: Any, **kwargs: Any) -> Any:
        """Averages the gradients over all ranks, and does what the optimizer does with them.

        Raises:
            ValueError: before `hvd.init()`.
        """
        pairs = list(grads_and_vars)
        variables = [variable for _, variable in pairs]
        apply = super().apply_gradients  # type: ignore[misc]
        return self._hvd_pass(
            [gradient for gradient, _ in pairs],
            variables,
            lambda averaged: apply(list(zip(averaged, variables)), *args, **kwargs),
        )


class _AveragingInApply(_Averaging):
    """Keras 3, where everything ends in `apply`."""

    def apply(self, grads: Iterable[Any], trainable_variables: Any = None) -> Any:
        """Averages the gradients over all ranks, and does what the optimizer does with them.

        Raises:
            ValueError: before `hvd.init()`.
        """
        given = None if trainable_variables is None else list(trainable_variables)
        apply = super().apply  # type: ignore[misc]
        return self._hvd_pass(
            list(grads), self._hvd_variables(given), lambda averaged: apply(_each_row_once(averaged), given)
        )


def _each_row_once(gradients: Sequence[Any]) -> list[Any]:
    """Rows of one index added up, which Keras 3 leaves out.

    Its adaptive optimizers square them one by one, so the steps would depend on how a batch is divided among ranks.
    """
    return [merged(one) if isinstance(one, tf.IndexedSlices) else one for one in gradients]


# In this order: what a class offers decides where gradients pass.
_PLACES: dict[str, type] = {
    "get_gradients": _AveragingInGetGradients,
    "apply": _AveragingInApply,
    "apply_gradients": _AveragingInApplyGradients,
}


def _averaging(optimizer: Any, name: str | None, settings: Callable[[str], _Settings]) -> Any:
    """`optimizer`, of another class."""
    base: Any = type(optimizer)
    if issubclass(base, _Averaging):
        raise ValueError(f"this {base.__name__} averages already: wrap an optimizer once")
    if not _places_of(base) or not hasattr(base, "from_config"):
        raise ValueError(
            f"{base.__module__}.{base.__name__} is not a Keras optimizer: it must have from_config, and get_gradients, "
            "apply or apply_gradients. For optimizers of tf.compat.v1 there is "
            "horovod_tf.tensorflow.DistributedOptimizer"
        )
    return _made_averaging(optimizer, settings(f"{name or 'Distributed' + base.__name__}_Allreduce"))


def _places_of(base: Any) -> list[type]:
    offered = {place: mixin for place, mixin in _PLACES.items() if callable(getattr(base, place, None))}
    if "apply" in offered:
        offered.pop("apply_gradients", None)
    return list(offered.values())


def _made_averaging(optimizer: Any, settings: _Settings) -> Any:
    base: Any = type(optimizer)
    average_before_scaling(_Averaging)
    members = {
        "__module__": base.__module__,
        "__doc__": base.__doc__,
        "_hvd_plain": base,
        "_hvd_settings": settings,
    }
    optimizer.__class__ = type(base.__name__, (*_places_of(base), base), members)
    return optimizer


def _unpickled(plain: bytes, settings: _Settings) -> Any:
    return _made_averaging(pickle.loads(plain), settings)  # noqa: S301 - a part of what is unpickled already


def DistributedOptimizer(  # noqa: N802 - the reference system's name
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool | str = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Makes `optimizer` average gradients over all ranks before it applies them, and returns it.

    The same object, so that it keeps all that it was given and what it has learnt: a schedule that only this program
    knows, or the state of a loaded model. Its class becomes a subclass of the same name: a model saved with it loads
    without this package. Compile the model with it afterwards; what has been traced before does not average. Its
    `register_local_var(var)` makes a variable this rank's own, whose gradients are not averaged.

    With Keras 3, compile the model with `jit_compile=False`: XLA does not know the collectives, and Keras chooses it by
    itself where there is a GPU. What then comes is an error that says so.

    Loss scaling may be inside, `DistributedOptimizer(LossScaleOptimizer(optimizer))`, or around, as `compile` puts it
    by itself under the policy mixed_float16. It looks at averages in any case, so all ranks skip the same steps.

    Args:
        optimizer: A Keras optimizer, of Keras 2 (also `tf.keras.optimizers.legacy`) or Keras 3. What it clips are the
            averaged gradients.
        name: "Distributed" and the optimizer's class by default. The averages are under "<name>_Allreduce".
        device_dense: This and all that is not here: as
            `horovod_tf.tensorflow.gradient_reduction.GradientReduction` has them.
        device_sparse: See there.
        compression: See there.
        sparse_as_dense: See there.
        gradient_predivide_factor: See there.
        op: See there.
        backward_passes_per_step: N: gradients are added up on each rank in N passes. In the last of them the sums are
            averaged over all ranks and applied; in the others no variable moves, and `iterations` neither.
        average_aggregated_gradients: Whether the sums are divided by N.
        num_groups: The older name of groups.
        groups: See there.
        process_set: See there. Ranks that are not in it apply their own gradients.
        scale_local_gradients: Whether gradients of variables of `register_local_var` are divided by the number of
            ranks.

    Raises:
        ValueError: this is no Keras optimizer, or one that averages already; op and gradient_predivide_factor do not
            go together; groups is neither a number nor lists of variables; or backward_passes_per_step is not a
            positive whole number.
    """
    options = (device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor)
    reduction = GradientReduction(*options, groups_argument(groups, num_groups), process_set)
    passes = _checked(backward_passes_per_step)
    return _averaging(
        optimizer,
        name,
        lambda scope: _Settings(scope, reduction, passes, average_aggregated_gradients, (), scale_local_gradients),
    )


def PartialDistributedOptimizer(  # noqa: N802 - the reference system's name
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool | str = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """As `DistributedOptimizer`, but gradients of some layers are not averaged: each rank has its own of them.

    Args:
        optimizer: As for `DistributedOptimizer`.
        name: This and all that is not here: as for `DistributedOptimizer`.
        device_dense: See there.
        device_sparse: See there.
        compression: See there.
        sparse_as_dense: See there.
        gradient_predivide_factor: See there.
        op: See there.
        backward_passes_per_step: See there.
        average_aggregated_gradients: See there.
        groups: See there.
        process_set: See there. Ranks that are not in it apply their own gradients.
        local_layers: A layer or several: all their trainable weights, also those that are made later.
        scale_local_gradients: See there.

    Raises:
        ValueError: as `DistributedOptimizer`; or one of `local_layers` is no layer.
    """
    options = (device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor)
    reduction = GradientReduction(*options, groups_argument(groups), process_set)
    passes = _checked(backward_passes_per_step)
    layers = layers_argument(local_layers)
    return _averaging(
        optimizer,
        name,
        lambda scope: _Settings(scope, reduction, passes, average_aggregated_gradients, layers, scale_local_gradients),
    )


def _checked(backward_passes_per_step: int) -> int:
    LocalGradientAggregationHelper(backward_passes_per_step, list)
    return backward_passes_per_step
