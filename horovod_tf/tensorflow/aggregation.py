"""Gradients of several passes, added up on this rank before they are reduced: `backward_passes_per_step`.

A pass that is not the last of its N keeps its gradients and does nothing else; the last one adds its own, and what
follows - the reduction over all ranks, and the step of the optimizer - happens then. Which pass it is is counted by a
variable, so graphs, functions and eager mode do the same; and as all ranks begin at 0 and count alike, all of them
reduce in the same pass. Sums and counters are local variables: no checkpoint has them, and no broadcast touches them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import tensorflow as tf

from horovod_tf.tensorflow.grouping import key_of

_v1: Any = tf.compat.v1

_NONE_IN_SOME_PASSES: Final = (
    "the gradients of some variables are None in some passes of one step and not in others, and what was added up for "
    "these would be lost. Ask for zeros instead of None, "
    "tape.gradient(..., unconnected_gradients=tf.UnconnectedGradients.ZERO), or give only variables that have "
    "gradients in every pass"
)


def _local_variable(like: tf.TensorSpec, name: str) -> Any:
    """Of that type and shape, where None is any length. Assigned before it is read."""
    shape = [0 if length is None else length for length in like.shape]
    return _v1.Variable(
        tf.zeros(shape, like.dtype),
        trainable=False,
        collections=[_v1.GraphKeys.LOCAL_VARIABLES],
        validate_shape=False,
        shape=like.shape,
        name=name,
        use_resource=True,
    )


@contextlib.contextmanager
def _conditions_for_all_variables() -> Iterator[None]:
    """In a graph of sessions, conditions are made in the older way: the newer one has no reference variables."""
    newer = not tf.executing_eagerly() and v1_graph() and _v1.control_flow_v2_enabled()
    if newer:
        _v1.disable_control_flow_v2()
    try:
        yield
    finally:
        if newer:
            _v1.enable_control_flow_v2()


def v1_graph() -> bool:
    """Whether what is built now is run by a session."""
    return not _v1.executing_eagerly_outside_functions()


class _Dense:
    """The sum of one variable's gradients."""

    def __init__(self, gradient: Any, variable: Any, name: str) -> None:
        shape = gradient.shape.merge_with(tf.TensorShape(variable.shape))
        self._sum = _local_variable(tf.TensorSpec(shape, gradient.dtype), name)

    @property
    def variables(self) -> list[Any]:
        return [self._sum]

    def begin(self, gradient: Any) -> list[Any]:
        # Assigned, not set to zero and added to: what is not finite in one step must not stay.
        return [self._sum.assign(gradient, read_value=False)]

    def go_on(self, gradient: Any) -> list[Any]:
        return [self._sum.assign_add(gradient, read_value=False)]

    def total(self, gradient: Any, factor: float) -> Any:
        total = self._sum.read_value() + gradient
        return total if factor == 1.0 else total * tf.cast(factor, total.dtype)


class _Rows:
    """All rows of one variable's gradients."""

    def __init__(self, gradient: Any, variable: Any, name: str) -> None:
        row = gradient.values.shape[1:].merge_with(tf.TensorShape(variable.shape)[1:])
        values = tf.TensorSpec([None, *row], gradient.values.dtype)
        self._values = _local_variable(values, f"{name}_values")
        self._indices = _local_variable(tf.TensorSpec([None], gradient.indices.dtype), f"{name}_indices")

    @property
    def variables(self) -> list[Any]:
        return [self._values, self._indices]

    def _all(self, gradient: Any) -> tuple[Any, Any]:
        return (
            tf.concat([self._values.read_value(), gradient.values], 0),
            tf.concat([self._indices.read_value(), gradient.indices], 0),
        )

    def _keep(self, values: Any, indices: Any) -> list[Any]:
        return [self._values.assign(values, read_value=False), self._indices.assign(indices, read_value=False)]

    def begin(self, gradient: Any) -> list[Any]:
        return self._keep(gradient.values, gradient.indices)

    def go_on(self, gradient: Any) -> list[Any]:
        return self._keep(*self._all(gradient))

    def total(self, gradient: Any, factor: float) -> Any:
        values, indices = self._all(gradient)
        values = values if factor == 1.0 else values * tf.cast(factor, values.dtype)
        return tf.IndexedSlices(values, indices, gradient.dense_shape)


def _parts(gradients: Sequence[Any]) -> list[Any]:
    """Tensors only, as branches of a condition give them back."""
    parts = []
    for one in gradients:
        if isinstance(one, tf.IndexedSlices):
            parts += [tf.identity(one.values), tf.identity(one.indices)]
        elif one is not None:
            parts.append(tf.identity(one))
    return parts


def _like(gradients: Sequence[Any], parts: Sequence[Any]) -> list[Any]:
    """What `_parts` has taken apart."""
    left = iter(parts)
    results: list[Any] = []
    for one in gradients:
        if isinstance(one, tf.IndexedSlices):
            results.append(tf.IndexedSlices(next(left), next(left), one.dense_shape))
        elif one is None:
            results.append(None)
        else:
            part = next(left)
            part.set_shape(one.shape)
            results.append(part)
    return results


class LocalGradientAggregationHelper:
    """Adds up the gradients of N passes and reduces the sum once.

    Either `step`, which does everything, or `compute_gradients` and then `apply_gradients` in the same pass. Always for
    the same variables in the same order. Not for two threads at once.
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[[list[Any]], list[Any]],
        sparse_as_dense: bool = False,
        average_aggregated_gradients: bool = False,
        name: str = "aggregation",
    ) -> None:
        """Nothing is built yet.

        Args:
            backward_passes_per_step: N, at least 1.
            allreduce_func: Reduces a list of gradients: None stays None, sparse ones stay sparse.
            sparse_as_dense: Whether sparse gradients are made dense before they are added up. If not, all their rows
                are kept.
            average_aggregated_gradients: Whether the sum is divided by N.
            name: Of variables and operations; ranks match what they reduce by it, among others.

        Raises:
            ValueError: backward_passes_per_step is not a positive whole number.
        """
        if not isinstance(backward_passes_per_step, int) or backward_passes_per_step < 1:
            raise ValueError(
                f"backward_passes_per_step is {backward_passes_per_step!r}, and must be a whole number from 1 on"
            )
        self._passes = backward_passes_per_step
        self._reduce = allreduce_func
        self._sparse_as_dense = sparse_as_dense
        self._factor = 1.0 / backward_passes_per_step if average_aggregated_gradients else 1.0
        self._name = name
        self._done: Any = None  # passes of this step; a variable
        self._given: Any = None  # which gradients the last pass had: a number in the list; a variable
        self._kinds_given: list[tuple[bool, ...]] = []
        self._kept: dict[int, Any] = {}
        self._is_last: Any = None

    @property
    def variables(self) -> list[Any]:
        """The counter and the sums, as far as they have been needed."""
        return [one for one in [self._done, self._given] if one is not None] + [
            variable for kept in self._kept.values() for variable in kept.variables
        ]

    def _build(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Where each gradient is kept; None for those that are None."""
        with tf.init_scope(), tf.name_scope(self._name):
            if self._done is None:
                with tf.device("/cpu:0"):  # what decides which branch is taken is read there
                    self._done = _local_variable(tf.TensorSpec([], tf.int32), "passes")
                    if not v1_graph():  # whose passes are all built by one call
                        self._given = _local_variable(tf.TensorSpec([], tf.int32), "given")
        places: list[Any] = []
        for place, (gradient, variable) in enumerate(zip(gradients, variables)):
            if gradient is None:
                places.append(None)
                continue
            key = key_of(variable)
            kind = _Rows if isinstance(gradient, tf.IndexedSlices) else _Dense
            if key not in self._kept:
                with tf.init_scope(), tf.name_scope(self._name):
                    self._kept[key] = kind(gradient, variable, f"sum_{place}")
            if not isinstance(self._kept[key], kind):
                raise ValueError(
                    f"the gradient of {variable.name} is sparse in some passes and dense in others: these cannot be "
                    "added up. sparse_as_dense=True makes all of them dense"
                )
            places.append(self._kept[key])
        return places

    def _checked(self, done: Any, gradients: Sequence[Any]) -> Any:
        """`done`, if this pass has gradients for the variables for which the step's passes before it had some."""
        if self._given is None:
            return done
        given = tuple(gradient is not None for gradient in gradients)
        if given not in self._kinds_given:
            self._kinds_given.append(given)
        number = self._kinds_given.index(given)
        as_before = tf.logical_or(tf.equal(done, 0), tf.equal(self._given.read_value(), number))
        check = tf.debugging.Assert(as_before, [_NONE_IN_SOME_PASSES])
        with tf.control_dependencies([] if check is None else [check]):
            noted = self._given.assign(number, read_value=False)
        with tf.control_dependencies([] if noted is None else [noted]):
            return tf.identity(done)

    def _pass(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Any],
        at_last: Callable[[list[Any]], list[Any]],
        between: Callable[[], list[Any]],
    ) -> list[Any]:
        """Keeps the gradients and gives what `between` does; at the last, what `at_last` makes of all of them.

        Both give tensors of the same types, at least one.
        """
        places = self._build(gradients, variables)
        pairs = [(kept, gradient) for kept, gradient in zip(places, gradients) if kept is not None]
        with tf.device("/cpu:0"):
            done = self._checked(self._done.read_value(), gradients)
            self._is_last = tf.equal(done, self._passes - 1)

        def last() -> list[Any]:
            if self._passes == 1:
                return at_last(list(gradients))
            return at_last(
                [
                    None if kept is None else kept.total(gradient, self._factor)
                    for kept, gradient in zip(places, gradients)
                ]
            )

        def keep(how: str) -> list[Any]:
            with tf.control_dependencies([part for kept, one in pairs for part in getattr(kept, how)(one)]):
                return [tf.constant(True)]

        def not_last() -> list[Any]:
            kept = tf.cond(tf.equal(done, 0), lambda: keep("begin"), lambda: keep("go_on"), name="keep")
            with tf.control_dependencies(kept):
                return [tf.identity(one) for one in between()]

        results = tf.cond(self._is_last, last, not_last, name="pass")
        with tf.control_dependencies(results), tf.device("/cpu:0"):
            counted = self._done.assign(tf.where(self._is_last, 0, done + 1), read_value=False)
        with tf.control_dependencies([] if counted is None else [counted]):
            return [tf.identity(one) for one in results]

    @tf.autograph.experimental.do_not_convert
    def compute_gradients(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The reduced sums in the last of N passes; in all others this pass's gradients as they are."""
        with tf.name_scope(self._name), _conditions_for_all_variables():
            gradients = self._made_dense(gradients)
            results = self._pass(
                gradients,
                variables,
                lambda totals: [*_parts(self._reduce(totals)), tf.constant(True)],
                lambda: [*_parts(gradients), tf.constant(True)],
            )
            return _like(gradients, results[:-1])

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(self, apply: Callable[[], Any]) -> Any:
        """Does `apply` in the pass that `compute_gradients` has found to be the last of N.

        Returns:
            In a graph, a tensor that is there when it is done.

        Raises:
            ValueError: `compute_gradients` has not been called.
        """
        if self._is_last is None:
            raise ValueError("compute_gradients comes first: it counts the passes")
        with tf.name_scope(self._name), _conditions_for_all_variables():
            (done,) = tf.cond(self._is_last, lambda: _done_after(apply()), lambda: [tf.constant(False)], name="apply")
            return done

    @tf.autograph.experimental.do_not_convert
    def step(self, gradients: Sequence[Any], variables: Sequence[Any], apply: Callable[[list[Any]], Any]) -> Any:
        """One pass; in the last of N `apply` of the reduced sums.

        Returns:
            In a graph, a tensor that is there when it is done.
        """
        with tf.name_scope(self._name), _conditions_for_all_variables():
            gradients = self._made_dense(gradients)
            (done,) = self._pass(
                gradients,
                variables,
                lambda totals: _done_after(apply(self._reduce(totals))),
                lambda: [tf.constant(False)],
            )
            return done

    def _made_dense(self, gradients: Sequence[Any]) -> list[Any]:
        if not self._sparse_as_dense:
            return list(gradients)
        return [tf.convert_to_tensor(one) if isinstance(one, tf.IndexedSlices) else one for one in gradients]


def _done_after(applied: Any) -> list[Any]:
    """True, once that is done."""
    is_op = isinstance(applied, (tf.Operation, tf.Tensor)) and not tf.executing_eagerly()
    with tf.control_dependencies([applied] if is_op else []):
        return [tf.constant(True)]
