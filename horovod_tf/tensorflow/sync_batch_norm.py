"""Batch normalization by the batches of all ranks together."""

from __future__ import annotations

import weakref
from typing import Any, Final

import tensorflow as tf

from horovod_tf.common.process_sets import ProcessSet, global_process_set, id_of
from horovod_tf.tensorflow.mpi_ops import _allreduce, allgather

_BatchNormalization: Any = tf.keras.layers.BatchNormalization
_KERAS_3: Final = hasattr(tf.keras.optimizers.SGD, "apply")

_SCOPE: Final = "HorovodSyncBatchNormalization/"  # of the graph, not in the layer's: that has Keras' number for a name

# Of the layers that have been trained: the number that ranks know each by.
_numbers: Final[weakref.WeakKeyDictionary[Any, int]] = weakref.WeakKeyDictionary()
_numbers_given: Final[dict[int, int]] = {}  # in each process set


def _number_of(layer: Any, process_set: int) -> int:
    """This process set's first to be trained is 1. Keras' own numbers count also what one rank alone has built."""
    if layer not in _numbers:
        _numbers[layer] = _numbers_given[process_set] = _numbers_given.get(process_set, 0) + 1
    return _numbers[layer]


def moments_of_all(
    count: Any, mean: Any, squares: Any, name: str | None, process_set: ProcessSet = global_process_set
) -> tuple[Any, Any, Any]:
    """Mean and variance of the numbers of all ranks, from what each knows of its own.

    Not from sums of squares, of which nothing is left where the mean is large: ranks exchange means and sums of squared
    distances from them, and every rank puts the same table together in the same way. So ranks may have any number of
    rows, also none, and have bitwise the same results.

    Args:
        count: How many numbers this rank has for each channel, as floating point; a scalar.
        mean: Theirs, for each channel: [channels].
        squares: The sums of their squared distances from the mean: [channels].
        name: What ranks match the exchange by, whatever scope it is in; its gradient by "<name>_gradient".
        process_set: Whose numbers; this rank is one of them.

    Returns:
        The count of all ranks, and mean and variance for each channel. No gradient goes through the count.
    """
    channels = tf.size(mean)
    counts: list[Any] = []

    # Of its own: the sum over all ranks whatever the gradients of allgather are, and one exchange of two vectors.
    @tf.custom_gradient
    def combined(mean: Any, squares: Any) -> Any:
        row = tf.concat([tf.reshape(count, [1]), mean, squares], 0)
        with tf.name_scope(_SCOPE):
            table = allgather(row[tf.newaxis], name, process_set=process_set)
        of_rank = table[:, :1]
        total = tf.reduce_sum(of_rank)
        means = table[:, 1 : 1 + channels]
        mean_of_all = tf.math.divide_no_nan(tf.reduce_sum(of_rank * means, 0), total)
        distances = of_rank * tf.square(means - mean_of_all)
        variance = tf.math.divide_no_nan(tf.reduce_sum(table[:, 1 + channels :] + distances, 0), total)
        counts.append(total)

        def gradient(of_mean: Any, of_variance: Any) -> Any:
            gradients = tf.stack([of_mean, of_variance])
            with tf.name_scope(_SCOPE):
                sums = _allreduce(gradients, name and f"{name}_gradient", process_set_id=id_of(process_set))
            share = tf.math.divide_no_nan(count, total)
            toward = 2.0 * share * (mean - mean_of_all)
            return share * sums[0] + toward * sums[1], tf.math.divide_no_nan(sums[1], total)

        return (mean_of_all, variance), gradient

    mean_of_all, variance = combined(mean, squares)
    return counts[0], mean_of_all, variance


def _own_moments(x: Any, axes: list[int], weights: Any) -> tuple[Any, Any, Any]:
    """Count, mean and sum of squared distances of this rank's numbers, the latter with their dimensions kept."""
    if weights is None:
        count = tf.cast(tf.reduce_prod(tf.gather(tf.shape(x, tf.int64), axes)), x.dtype)
        mean = tf.math.divide_no_nan(tf.reduce_sum(x, axes, keepdims=True), count)
        return count, mean, tf.reduce_sum(tf.square(x - mean), axes, keepdims=True)
    weights = tf.broadcast_to(tf.cast(weights, x.dtype), tf.shape(x))
    # Of all channels the same.
    counts = tf.reduce_sum(weights, axes, keepdims=True)
    mean = tf.math.divide_no_nan(tf.reduce_sum(x * weights, axes, keepdims=True), counts)
    return tf.reduce_max(counts), mean, tf.reduce_sum(tf.square(x - mean) * weights, axes, keepdims=True)


class SyncBatchNormalization(_BatchNormalization):
    """`tf.keras.layers.BatchNormalization` by the batches of all ranks together, while it is trained.

    As if one process had the whole batch: outputs, gradients and moving averages, which are the same on all ranks. The
    ranks' batches may have different sizes; all ranks run the layer equally often. Where it is not trained - inference,
    `trainable=False`, a job of one - it is the plain layer. The variance is that of the batch (divided by its size), as
    the plain layer's with fused=False; statistics of half precision are computed in float32.

    A model saved with it has a plain BatchNormalization in it and loads without this package. To go on with it:
    `load_model(path, custom_objects={"BatchNormalization": hvd.SyncBatchNormalization})`. With Keras 3, compile the
    model with `jit_compile=False`, or leave that to Keras, which looks for layers that XLA cannot compile.
    """

    def __init__(
        self,
        *args: Any,
        fused: bool | None = False,
        process_set: ProcessSet = global_process_set,
        **kwargs: Any,
    ) -> None:
        """As the plain layer.

        Args:
            args: As of the plain layer.
            fused: False: nothing else is offered.
            process_set: Whose batches; this rank is one of them when the layer is trained. Not saved with the layer.
            kwargs: As of the plain layer.

        Raises:
            ValueError: fused is not False, or renorm, virtual_batch_size or synchronized are asked for.
        """
        if fused is None or fused:
            raise ValueError("SyncBatchNormalization does not support fused=True or None: leave fused out")
        for option in ("renorm", "virtual_batch_size", "synchronized"):
            if kwargs.get(option):
                raise ValueError(f"SyncBatchNormalization does not support {option}={kwargs[option]!r}: leave it out")
        super().__init__(*args, **kwargs, **({} if _KERAS_3 else {"fused": False}))
        self.supports_jit = False
        self._hvd_process_set = process_set

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """Normalized inputs, of the layer's compute type.

        Args:
            inputs: Any batch, of 0 rows or more.
            training: Whether the statistics are those of the batch; a bool or a tensor.
            mask: Which elements count: one dimension less than the inputs.

        Raises:
            ValueError: training before `hvd.init()`.
        """
        training = self._whether_training(training)
        if training is False or self._hvd_process_set.size() == 1:
            return super().call(inputs, training=training, mask=mask)
        x = tf.cast(inputs, self._wide_type(inputs))
        axes, shape = self._axes_and_shape(x)

        def of_batch() -> list[Any]:
            return list(self._moments_of_batch(x, axes, mask))

        def as_before() -> list[Any]:
            moving = (self.moving_mean, self.moving_variance)
            return [tf.zeros([], x.dtype), *(tf.reshape(tf.cast(one, x.dtype), [-1]) for one in moving)]

        is_known = training is True
        count, mean, variance = of_batch() if is_known else tf.cond(tf.cast(training, tf.bool), of_batch, as_before)
        self._move(self.moving_mean, mean, count)
        self._move(self.moving_variance, variance, count)
        scale = tf.reshape(tf.cast(self.gamma, x.dtype), shape) if self.scale else None
        offset = tf.reshape(tf.cast(self.beta, x.dtype), shape) if self.center else None
        outputs = tf.nn.batch_normalization(
            x, tf.reshape(mean, shape), tf.reshape(variance, shape), offset, scale, self.epsilon
        )
        return tf.cast(outputs, self.compute_dtype)

    def _whether_training(self, training: Any) -> Any:
        if not _KERAS_3 and training is None:
            training = self._get_training_value(training)  # in a graph, Keras' learning phase
        if not self.trainable or training is None:
            return False
        if tf.is_tensor(training):
            static = tf.get_static_value(training)
            return training if static is None else bool(static)
        return bool(training)

    def _wide_type(self, inputs: Any) -> Any:
        dtype = tf.as_dtype(self.compute_dtype or inputs.dtype)
        return dtype if dtype == tf.float64 else tf.float32

    def _axes_and_shape(self, x: Any) -> tuple[list[int], list[Any]]:
        """What is reduced, and a shape that fits the inputs beside it."""
        rank = len(x.shape)
        kept = [self.axis] if isinstance(self.axis, int) else list(self.axis)
        kept = [axis % rank for axis in kept]
        axes = [axis for axis in range(rank) if axis not in kept]
        return axes, [x.shape[axis] if axis in kept else 1 for axis in range(rank)]

    def _moments_of_batch(self, x: Any, axes: list[int], mask: Any) -> tuple[Any, Any, Any]:
        weights = None if mask is None else tf.expand_dims(tf.cast(mask, x.dtype), -1)
        count, mean, squares = _own_moments(x, axes, weights)
        number = _number_of(self, id_of(self._hvd_process_set))
        name = None if tf.executing_eagerly() else f"layer_{number}"
        return moments_of_all(count, tf.reshape(mean, [-1]), tf.reshape(squares, [-1]), name, self._hvd_process_set)

    def _move(self, variable: Any, value: Any, count: Any) -> None:
        """The moving average goes on by the batch's value, unless nothing has been counted."""
        now = tf.cast(variable, value.dtype)
        step = tf.where(count > 0, (tf.reshape(value, tf.shape(now)) - now) * (1.0 - self.momentum), 0.0)
        moved = variable.assign(tf.cast(now + step, variable.dtype))
        if not tf.compat.v1.executing_eagerly_outside_functions():
            self.add_update(moved)
            tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, moved)


# What is saved of it says so: it loads where this package is not.
for _attribute in ("__name__", "__qualname__", "__module__"):
    setattr(SyncBatchNormalization, _attribute, getattr(_BatchNormalization, _attribute))
