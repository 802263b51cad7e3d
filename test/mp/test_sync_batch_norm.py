"""`SyncBatchNormalization` beside one process that has the whole batch; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.keras as hvd_keras
import horovod_tf.tensorflow as hvd
from tensorflow_support import RANK, SIZE, graph_session, only_rank_0, v1

KERAS_3 = hasattr(tf.keras.optimizers.SGD, "apply")
MODES = {"eager": lambda function: function, "function": tf.function}
every_mode = pytest.mark.parametrize("mode", MODES)
# Of each rank: equal, different, and none at all on rank 0.
ROWS: dict[str, Any] = {
    "equal": lambda rank: 4,
    "different": lambda rank: 2 + 3 * rank,
    "none": lambda rank: 5 * rank if SIZE > 1 else 5,
}
every_size = pytest.mark.parametrize("rows", ROWS)
SHAPES = {"vector": (3,), "image": (4, 5, 3)}
every_shape = pytest.mark.parametrize("shape", SHAPES)
layers = tf.keras.layers


def parts(rows: str, shape: str, offset: float = 0.0) -> list[Any]:
    random = np.random.RandomState(11)
    return [
        (offset + random.randn(ROWS[rows](rank), *SHAPES[shape]) * [1.0, 2.0, 3.0]).astype(np.float32)
        for rank in range(SIZE)
    ]


def plain_layer(**options: Any) -> Any:
    return layers.BatchNormalization(**options, **({} if KERAS_3 else {"fused": False}))


def loss_of(y: Any, x: Any) -> Any:
    """A sum over elements that is not symmetric, so that no gradient is 0."""
    return tf.reduce_sum(tf.sin(y) * tf.cast(x, y.dtype))


def run(layer: Any, x: Any, mode: str) -> Any:
    """Outputs and gradients for the inputs, and for gamma and beta."""

    way: Any = MODES[mode]

    @way
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
            loss = loss_of(y, x)
        return y, tape.gradient(loss, [x, *layer.trainable_weights])

    return step(tf.constant(x))


@every_mode
@every_size
@every_shape
@pytest.mark.parametrize("offset", [0.0, 1000.0], ids=["centered", "far_away"])
def test_as_one_process_with_the_whole_batch(mode: str, rows: str, shape: str, offset: float) -> None:
    """Far away, a variance that is made of sums of squares has no right digit."""
    data = parts(rows, shape, offset)
    whole: Any = np.concatenate(data)
    layer, plain = hvd.SyncBatchNormalization(momentum=0.5), plain_layer(momentum=0.5)
    wide = plain_layer(momentum=0.5, dtype="float64")
    for _ in range(2):
        y, (of_x, of_gamma, of_beta) = run(layer, data[RANK], mode)
        expected, (all_of_x, all_of_gamma, all_of_beta) = run(plain, whole, "eager")
        exact, _ = run(wide, whole.astype(np.float64), "eager")
    begin = sum(len(one) for one in data[:RANK])
    mine = slice(begin, begin + len(data[RANK]))
    tolerance = 1e-5 if offset == 0 else 2e-3  # float32 itself has no more digits there
    np.testing.assert_allclose(y, exact[mine], atol=tolerance)
    if offset:
        return
    np.testing.assert_allclose(y, expected[mine], atol=1e-5)
    np.testing.assert_allclose(of_x, all_of_x[mine], atol=1e-5)
    for found, total in ((of_gamma, all_of_gamma), (of_beta, all_of_beta)):
        summed = hvd.allreduce(found, op=hvd.Sum, name="of_weights")
        # Of the mean of the loss: sums of hundreds of terms have fewer digits.
        np.testing.assert_allclose(summed / whole.size, total / whole.size, atol=1e-5)
    for moving, theirs in zip(layer.non_trainable_weights, plain.non_trainable_weights):
        np.testing.assert_allclose(tf.convert_to_tensor(moving), tf.convert_to_tensor(theirs), rtol=1e-5, atol=1e-6)
        everywhere = hvd.allgather(tf.convert_to_tensor(moving)[tf.newaxis], name="moving").numpy()
        assert all(one.tobytes() == everywhere[0].tobytes() for one in everywhere)


def test_other_layers_of_one_rank_do_not_matter() -> None:
    """Keras numbers layers as they are built, and another rank has not built these."""
    for _ in range(RANK):
        hvd.SyncBatchNormalization()
    model = model_of(hvd.SyncBatchNormalization)
    step = tf.function(lambda x: model(x, training=True))
    assert step(tf.fill((2, 3), float(RANK + 1))).shape == (2, 1)


def test_other_axes_and_no_weights() -> None:
    data = parts("different", "image")
    layer = hvd.SyncBatchNormalization(axis=1, center=False, scale=False)
    plain = plain_layer(axis=1, center=False, scale=False)
    begin = sum(len(one) for one in data[:RANK])
    expected = plain(np.concatenate(data), training=True)[begin : begin + len(data[RANK])]
    np.testing.assert_allclose(layer(data[RANK], training=True), expected, atol=1e-5)


def test_mask() -> None:
    """What does not count on one rank does not count on another, and a rank may have nothing that does."""
    random = np.random.RandomState(5)
    x = random.randn(SIZE, 4, 6, 3).astype(np.float32)
    mask = random.rand(SIZE, 4, 6) > 0.5
    mask[0] = SIZE == 1
    layer = hvd.SyncBatchNormalization(momentum=0.0)
    layer(x[RANK], training=True, mask=mask[RANK])
    counted = x[mask]
    moving = [tf.convert_to_tensor(one).numpy() for one in layer.non_trainable_weights]
    np.testing.assert_allclose(moving[0], counted.mean(0), atol=1e-5)
    np.testing.assert_allclose(moving[1], counted.var(0), rtol=1e-4)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "float64"])
def test_precision(policy: str) -> None:
    data = parts("different", "vector")
    layer, plain = hvd.SyncBatchNormalization(dtype=policy), plain_layer(dtype=policy)
    y = layer(data[RANK], training=True)
    assert y.dtype == tf.as_dtype(layer.compute_dtype)
    begin = sum(len(one) for one in data[:RANK])
    whole = plain(np.concatenate(data), training=True)[begin : begin + len(data[RANK])]
    np.testing.assert_allclose(
        tf.cast(y, tf.float64), tf.cast(whole, tf.float64), atol=2e-2 if "mixed" in policy else 1e-6
    )
    variable = "float64" if policy == "float64" else "float32"
    assert all(tf.as_dtype(one.dtype).name == variable for one in layer.weights)


def test_not_trained_it_is_the_plain_layer() -> None:
    layer = hvd.SyncBatchNormalization()
    x = parts("equal", "vector")[RANK]
    y = layer(x, training=False)  # moving averages are 0 and 1
    np.testing.assert_allclose(y, x / np.sqrt(1.001), rtol=1e-5)
    np.testing.assert_array_equal(layer(x), y)
    layer.trainable = False
    np.testing.assert_array_equal(layer(x, training=True), y)


def model_of(make: Any) -> Any:
    return tf.keras.Sequential(
        [
            layers.Input((3,)),
            layers.Dense(4, kernel_initializer="ones"),
            make(),
            layers.Dense(1, kernel_initializer="ones"),
        ]
    )


def test_training_with_fit_is_training_on_the_whole_batch() -> None:
    """Under Keras 3, also that Keras itself finds that XLA cannot compile it."""
    random = np.random.RandomState(2)
    x, y = random.randn(3, SIZE, 4, 3).astype(np.float32), random.randn(3, SIZE, 4, 1).astype(np.float32)
    model, plain = model_of(hvd.SyncBatchNormalization), model_of(plain_layer)
    model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.05)), loss="mse")
    plain.compile(tf.keras.optimizers.SGD(0.05), loss="mse")
    assert not KERAS_3 or not model.jit_compile
    model.fit(x[:, RANK].reshape(-1, 3), y[:, RANK].reshape(-1, 1), 4, 2, verbose=0, shuffle=False)
    plain.fit(x.reshape(-1, 3), y.reshape(-1, 1), 4 * SIZE, 2, verbose=0, shuffle=False)
    for mine, theirs in zip(model.get_weights(), plain.get_weights()):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


LOAD = """
import sys
import tensorflow as tf
model = tf.keras.models.load_model(sys.argv[1])
assert type(model.layers[-2]) is tf.keras.layers.BatchNormalization
assert "horovod_tf" not in sys.modules
print(model(tf.ones((2, 3))).numpy().tolist())
"""


@only_rank_0
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras with a newer NumPy
@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5")
def test_saved_model_has_a_plain_layer(suffix: str, tmp_path: Path) -> None:
    model = model_of(lambda: hvd.SyncBatchNormalization(momentum=0.75))
    path = str(tmp_path / f"model{suffix}")
    model.save(path)
    outside = subprocess.run(
        [sys.executable, "-c", LOAD, path], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert outside.returncode == 0, outside.stderr
    np.testing.assert_allclose(eval(outside.stdout.splitlines()[-1]), model(tf.ones((2, 3))), rtol=1e-5)
    again = tf.keras.models.load_model(path, custom_objects={"BatchNormalization": hvd.SyncBatchNormalization})
    layer = again.layers[-2]
    assert isinstance(layer, hvd.SyncBatchNormalization)
    assert layer.momentum == 0.75


@pytest.mark.skipif(SIZE == 1, reason="two sets need two ranks")
@every_mode
def test_batches_of_a_process_set(mode: str) -> None:
    """Of two that share no rank, at the same time, with other numbers of batches."""
    parities = [[rank for rank in range(SIZE) if rank % 2 == parity] for parity in range(2)]
    sets = [hvd.add_process_set(ranks) for ranks in parities]
    mine, data = parities[RANK % 2], parts("different", "vector")
    whole: Any = np.concatenate([data[rank] for rank in mine])
    layer, plain = hvd.SyncBatchNormalization(process_set=sets[RANK % 2]), plain_layer()
    for _ in range(1 + RANK % 2):
        y, of = run(layer, tf.constant(data[RANK]), mode)
        all_y, all_of = run(plain, tf.constant(whole), "eager")
    start = sum(len(data[rank]) for rank in mine if rank < RANK)
    rows = slice(start, start + len(data[RANK]))
    np.testing.assert_allclose(y, all_y[rows], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(of[0], all_of[0][rows], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layer.moving_variance, plain.moving_variance, rtol=1e-5)
    for one in sets:
        hvd.remove_process_set(one)


def test_process_set_that_is_not_registered_is_refused() -> None:
    with pytest.raises(ValueError, match="has not been registered"):
        hvd.SyncBatchNormalization(process_set=hvd.ProcessSet([0]))(tf.ones([2, 3]), training=True)


def test_settings() -> None:
    layer = hvd.SyncBatchNormalization(momentum=0.5, epsilon=0.25)
    again = hvd.SyncBatchNormalization.from_config(layer.get_config())
    assert (again.momentum, again.epsilon) == (0.5, 0.25)
    for wrong in ({"fused": True}, {"fused": None}, {"renorm": True}, {"synchronized": True}):
        with pytest.raises(ValueError, match="SyncBatchNormalization does not support"):
            hvd.SyncBatchNormalization(**wrong)


@pytest.mark.skipif(KERAS_3, reason="Keras 3 has no graph mode")
@pytest.mark.parametrize("learning_phase", [True, False], ids=["learning_phase", "training"])
def test_graph(learning_phase: bool) -> None:
    data = parts("different", "vector")
    whole: Any = np.concatenate(data)
    with graph_session() as session:
        v1.keras.backend.set_session(session)
        layer = hvd.SyncBatchNormalization(momentum=0.5)
        x = v1.placeholder(tf.float32, (None, 3))
        phase = v1.keras.backend.learning_phase() if learning_phase else None
        y = layer(x) if learning_phase else layer(x, training=True)
        of_x = v1.gradients(loss_of(y, x), x)[0]
        session.run(v1.global_variables_initializer())
        updates = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
        assert SIZE == 1 or len(updates) == 2
        feed = {x: data[RANK], **({phase: True} if learning_phase else {})}
        found, gradient, _ = session.run([y, of_x, layer.updates], feed)
        moving = session.run(layer.non_trainable_weights)
        if learning_phase:
            session.run([y, layer.updates], {x: data[RANK], phase: False})
            np.testing.assert_array_equal(session.run(layer.non_trainable_weights), moving)
    expected, (all_of_x, *_) = run(plain_layer(), whole, "eager")
    begin = sum(len(one) for one in data[:RANK])
    mine = slice(begin, begin + len(data[RANK]))
    np.testing.assert_allclose(found, expected[mine], atol=1e-5)
    np.testing.assert_allclose(gradient, all_of_x[mine], atol=1e-5)
    np.testing.assert_allclose(moving[0], whole.mean(0) / 2, rtol=1e-5, atol=1e-6)
