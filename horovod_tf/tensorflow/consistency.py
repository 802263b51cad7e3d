"""Finding out that ranks do not have the same variables any more: `check_consistency` and `ConsistencyHook`.

Each rank makes 64 bits of every variable's bits. Of all variables together they travel in one small allgather, and
every rank compares the same table, so all ranks come to the same answer. Only if it is that variables differ in name,
type or shape do the names travel too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf

from horovod_tf.tensorflow import divergence
from horovod_tf.tensorflow.divergence import Contents, Variable
from horovod_tf.tensorflow.mpi_ops import allgather, size

_NAME: Final = "HorovodConsistency"
_NO_STEP: Final = -1
_MOVES: Final = ("AssignAdd", "AssignAddVariableOp")


# ---- what a rank has -----------------------------------------------------------------------------


def _described(variable: Any) -> Variable:
    # Keras 3 has names like "kernel", and paths that say of which layer.
    name = getattr(variable, "path", None) or variable.name
    shape = tf.TensorShape(variable.shape)
    dimensions = "of any shape" if shape.rank is None else shape.as_list()
    return Variable(str(name), f"{tf.as_dtype(variable.dtype).base_dtype.name} {dimensions}")


def _number_of(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def _fingerprint(value: Any, shape_is_known: bool) -> Any:
    """64 bits of all bits of a tensor, and of its shape if the graph does not know it, as [int64]."""
    bits = value
    if value.dtype == tf.string:
        bits = tf.concat([tf.reshape(value, [-1]), [""]], 0)  # of no strings at all TensorFlow leaves it undefined
    result = tf.bitcast(tf.fingerprint(tf.reshape(bits, [1, -1])), tf.int64)
    if shape_is_known:
        return result
    return _fingerprint(tf.concat([result, tf.shape(value, tf.int64)], 0), shape_is_known=True)


def _fingerprints(variables: Sequence[Any]) -> Any:
    """One int64 for each."""
    if not variables:
        return tf.zeros([0], tf.int64)
    parts = [_fingerprint(tf.convert_to_tensor(one), tf.TensorShape(one.shape).is_fully_defined()) for one in variables]
    return tf.concat(parts, 0)


# ---- comparing -----------------------------------------------------------------------------------


def _gather(rows: np.ndarray[Any, Any], name: str) -> Any:
    """All ranks' rows, also beside a graph that is final."""
    if tf.executing_eagerly():
        return allgather(rows, name).numpy()
    with tf.Graph().as_default(), tf.compat.v1.Session() as own:
        fed = tf.compat.v1.placeholder(rows.dtype, rows.shape)
        return own.run(allgather(fed, name), {fed: rows})


def _gather_contents(mine: Contents, name: str) -> list[Contents]:
    # The first row says how many follow: ranks may have different numbers of variables.
    rows = np.array([(len(mine.values), mine.step), *zip(mine.definitions, mine.values)], np.int64)
    table = _gather(rows, name)
    ranks = []
    while len(table) > 0:
        end = 1 + int(table[0, 0])
        ranks.append(Contents(int(table[0, 1]), table[1:end, 0].tolist(), table[1:end, 1].tolist()))
        table = table[end:]
    return ranks


def _gather_lists(mine: Sequence[Variable], name: str) -> list[list[Variable]]:
    text = json.dumps(mine).encode() + b"\0"  # no byte of JSON is zero
    everything = _gather(np.frombuffer(text, np.uint8), name).tobytes()
    return [[Variable(*one) for one in json.loads(part)] for part in everything.split(b"\0")[:-1]]


def _compare(variables: Sequence[Variable], values: np.ndarray[Any, Any], step: int, name: str, of: str = "") -> None:
    """Raises the same error on all ranks if they do not have the same; `of` is what the step is counted in."""
    mine = Contents(step, [_number_of(str(variable)) for variable in variables], values.tolist())
    ranks = _gather_contents(mine, name)
    when = "" if step == _NO_STEP else f" at step {step}{of}"
    error = divergence.different_steps(ranks)
    if error is None and not divergence.same_lists(ranks):
        error = divergence.different_lists(_gather_lists(variables, f"{name}_names"), when)
    if error is None:
        error = divergence.different_values(ranks, variables, when)
    if error is not None:
        raise tf.errors.FailedPreconditionError(None, None, error)


class _GraphCheck:
    """Compares the variables of one graph, whenever it is called with a session of it."""

    def __init__(self, variables: Iterable[Any] | None, every: int, name: str) -> None:
        """Builds what reads them; None is all global variables, and later those that have come until then."""
        self.graph = tf.compat.v1.get_default_graph()
        self._all = variables is None
        chosen = tf.compat.v1.global_variables() if variables is None else list(variables)
        self._included = {variable.name for variable in chosen}
        self._described = [_described(variable) for variable in chosen]
        with tf.name_scope(name):
            self._values = _fingerprints(chosen)
        self._every = every
        self._name = name

    def __call__(self, session: Any, step: int | None = None, of: str = "") -> None:
        """As `check_consistency` says."""
        if not _is_due(step, self._every) or size() == 1:
            return
        late, values = self._late(session)
        values = np.concatenate([session.run(self._values), values])
        _compare(self._described + late, values, _NO_STEP if step is None else step, self._name, of)

    def _late(self, session: Any) -> tuple[list[Variable], np.ndarray[Any, Any]]:
        """What has been created since; read as it is, and the rest done elsewhere, as this graph is final by now."""
        created = self.graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES) if self._all else []
        late = [variable for variable in created if variable.name not in self._included]
        if not late:
            return [], np.zeros([0], np.int64)
        values = session.run(late)
        with tf.Graph().as_default(), tf.compat.v1.Session() as own:
            fed = [tf.compat.v1.placeholder(one.dtype.base_dtype, one.shape) for one in late]
            return [_described(one) for one in late], own.run(_fingerprints(fed), dict(zip(fed, values)))


# ---- what users call -----------------------------------------------------------------------------


def _check_every(every: int) -> None:
    if every < 1:
        raise ValueError(f"every={every} must be at least 1: variables are compared at each so many steps")


def _is_due(step: int | None, every: int) -> bool:
    if step is None and every != 1:
        raise ValueError(f"every={every} needs the step: check_consistency(..., step=<the same on all ranks>)")
    return step is None or step % every == 0


def _check_in_function(variables: Sequence[Any], step: Any, every: int, name: str) -> None:
    described = [_described(variable) for variable in variables]
    counted = tf.cast(_NO_STEP if step is None else tf.convert_to_tensor(step), tf.int64)

    def compare(values: Any, at: Any) -> Any:
        _compare(described, values.numpy(), int(at), name)
        return at

    def check() -> Any:
        return tf.py_function(compare, [_fingerprints(variables), counted], tf.int64)

    tf.cond(counted % every == 0, check, lambda: counted)


def check_consistency(
    variables: Iterable[Any] | None = None, step: Any = None, every: int = 1, name: str | None = None
) -> Callable[..., None] | None:
    """Raises an error on every rank if not all ranks have the same variables, bit by bit.

    After a step, in eager mode:

        hvd.check_consistency(model.variables + optimizer.variables, step=step, every=100)

    In a graph it returns what does it; between two steps, since what runs at the same time changes variables:

        check = hvd.check_consistency(every=100)
        ...
            session.run(train)
            check(session, step)

    For a MonitoredSession or an Estimator there is `ConsistencyHook`. In a Keras `fit`, call it in a callback's
    on_train_batch_end. Inside of a `tf.function` it compares as they are at this place.

    All ranks must call it at the same steps with the same `every`: those that come wait for those that do not. On one
    rank there is nothing to compare, and nothing is read.

    It costs a pass over the variables' memory and an allgather of 16 bytes per variable: on ranks of one host about as
    much as an allreduce of the variables, and several times that in eager mode where they are many and small. Between
    the steps that compare it costs next to nothing.

    Args:
        variables: Of any type and shape, in the same order on all ranks. In a graph, by default, all global variables.
            Include the optimizer's; leave out what is each rank's own: the moving averages of batch normalization, or
            the states of random number generators.
        step: The number of this step, the same on all ranks; an integer, or outside graphs also a tensor or variable.
            In a graph it is given to what is returned.
        every: Variables are compared if `step` is a multiple of it.
        name: What ranks match the allgather by; needed only if two threads check at the same time.

    Returns:
        In a graph, a callable that takes a session and the step. Else None.

    Raises:
        tf.errors.FailedPreconditionError: on every rank, when it compares. Values differ: the text names the variables,
            the ranks that differ from most others, and the step. The bits count: 0.0 and -0.0 differ, and a NaN is the
            same as itself. Or the lists differ, in names (not if only by numbers that Keras gives, `dense_3`), types,
            shapes or order: the text says which rank has what. Or the steps differ. Afterwards all operations still
            work. In a `tf.function` TensorFlow makes it a tf.errors.UnknownError with the same text.
        RuntimeError: in eager mode without `variables`.
        ValueError: `every` is below 1, or not 1 without `step`; or before `init()`.
    """
    _check_every(every)
    name = name or _NAME
    if not tf.inside_function() and not tf.executing_eagerly():
        return _GraphCheck(variables, every, name)
    if variables is None:
        raise RuntimeError(
            "hvd.check_consistency() needs the variables outside of a graph, where there is no list of all: "
            "hvd.check_consistency(model.variables + optimizer.variables)"
        )
    variables = list(variables)
    if step is None:
        _is_due(step, every)
    if size() == 1:
        return None
    if tf.inside_function():
        _check_in_function(variables, step, every, name)
        return None
    at = None if step is None else int(tf.convert_to_tensor(step))
    if _is_due(at, every):
        described = [_described(variable) for variable in variables]
        _compare(described, _fingerprints(variables).numpy(), _NO_STEP if at is None else at, name)
    return None


def _moved_global_step() -> Any:
    """The default graph's global step if something in it adds to it, else None."""
    step = tf.compat.v1.train.get_global_step()
    if step is None:
        return None
    read = [tensor for output in step.op.outputs for tensor in output.consumers()]
    return step if any(operation.type in _MOVES for operation in read) else None


class ConsistencyHook(tf.compat.v1.train.SessionRunHook):
    """Raises an error on every rank if not all ranks have the same variables, as `check_consistency` does.

    After the session's first step, so that a variable that was not broadcast is found at once, and after each
    `every`-th. A step is a run that changes the global step, where the graph adds to it: one rank may run something
    else meanwhile, a summary or an evaluation. It is read after each run. In other graphs a step is every run, and all
    ranks must run the session equally often.
    """

    def __init__(self, every: int = 100, variables: Iterable[Any] | None = None) -> None:
        """Nothing is built yet.

        Args:
            every: How many steps of a session one comparison is for; the same on all ranks.
            variables: As for `check_consistency`. By default all global variables, also those that other hooks create.

        Raises:
            ValueError: `every` is below 1.
        """
        super().__init__()
        _check_every(every)
        self._every = every
        self._variables = None if variables is None else list(variables)
        self._check: _GraphCheck | None = None
        self._global_step: Any = None
        self._last: Any = None
        self._steps = 0

    def begin(self) -> None:
        """Builds what reads the variables; again if the default graph is another one than last time."""
        if self._check is None or self._check.graph is not tf.compat.v1.get_default_graph():
            self._check = _GraphCheck(self._variables, 1, _NAME)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Begins to count."""
        with session.graph.as_default():
            self._global_step = _moved_global_step()
        self._last = None
        self._steps = 0

    def before_run(self, run_context: Any) -> None:
        """Reads the global step once; not before other hooks have restored and broadcast it."""
        if self._global_step is not None and self._last is None:
            self._last = run_context.session.run(self._global_step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Compares the variables if it is time.

        Raises:
            tf.errors.FailedPreconditionError: on every rank, as `check_consistency` says.
        """
        if self._global_step is not None:
            before, self._last = self._last, run_context.session.run(self._global_step)
            if self._last == before:
                return
        self._steps += 1
        if self._check is not None and (self._steps == 1 or self._steps % self._every == 0):
            self._check(run_context.session, self._steps, " of this session")
