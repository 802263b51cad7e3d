"""Ranks with a part of a batch each end with the weights of one process with all; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.keras as hvd_keras
import horovod_tf.tensorflow as hvd
from horovod_tf.tensorflow.sparse import merged
from tensorflow_support import RANK, SIZE, graph_session, v1

KERAS_3 = hasattr(tf.keras.optimizers.SGD, "apply")
STEPS, ROWS, WORDS = 6, 4, 20
MAKERS = {
    "sgd": lambda module: module.SGD(0.05),
    "adam": lambda module: module.Adam(0.05, epsilon=1e-3),
}
V1_MAKERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.05),
    "adam": lambda: v1.train.AdamOptimizer(0.05, epsilon=1e-3),
}
every_optimizer = pytest.mark.parametrize("kind", MAKERS)
every_sparse = pytest.mark.parametrize("as_dense", [False, True, "auto"], ids=["rows", "dense", "auto"])
every_passes = pytest.mark.parametrize("passes", [1, 3], ids=["one_pass", "accumulated"])


def data(passes: int) -> tuple[Any, Any]:
    """Words and targets: [step, pass, rank, row]."""
    random = np.random.RandomState(23)
    shape = (STEPS, passes, SIZE, ROWS)
    return random.randint(0, WORDS, (*shape, 3)), random.randn(*shape, 1)


def start() -> list[Any]:
    random = np.random.RandomState(29)
    return [random.randn(WORDS, 4), random.randn(4, 1), np.zeros(1)]


def loss_of(weights: list[Any], words: Any, targets: Any) -> Any:
    table, kernel, bias = weights
    mean = tf.reduce_mean(tf.gather(table, words), 1)
    return tf.reduce_mean(tf.square(tf.matmul(tf.tanh(mean), kernel) + bias - targets))


def check(mine: list[Any], theirs: list[Any]) -> None:
    for one, other in zip(mine, theirs):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
        everywhere = hvd.allgather(tf.constant(one)[tf.newaxis], name="weights").numpy()
        assert all(rank.tobytes() == everywhere[0].tobytes() for rank in everywhere)


# ---- Keras optimizers ----------------------------------------------------------------------------


def train(optimizer: Any, batches: list[Any], sparse_rows: bool) -> list[Any]:
    weights = [tf.Variable(one) for one in start()]

    @tf.function
    def step(words: Any, targets: Any) -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(weights, words, targets)
        gradients = tape.gradient(loss, weights)
        # Keras 3 does not add up rows of one index by itself, and squares them one by one then.
        gradients[0] = merged(gradients[0]) if sparse_rows else tf.convert_to_tensor(gradients[0])
        optimizer.apply_gradients(zip(gradients, weights))

    for words, targets in batches:
        step(tf.constant(words), tf.constant(targets))
    return [weight.numpy() for weight in weights]


@every_optimizer
@every_sparse
@every_passes
def test_keras(kind: str, as_dense: Any, passes: int) -> None:
    words, targets = data(passes)
    mine = [(words[s, p, RANK], targets[s, p, RANK]) for s in range(STEPS) for p in range(passes)]
    whole = [(words[s].reshape(-1, 3), targets[s].reshape(-1, 1)) for s in range(STEPS)]
    optimizer = hvd_keras.DistributedOptimizer(
        MAKERS[kind](tf.keras.optimizers),
        sparse_as_dense=as_dense,
        backward_passes_per_step=passes,
        average_aggregated_gradients=True,
    )
    # Adam moves all rows of a table that has a dense gradient, and of a sparse one only those that are there.
    sparse_rows = kind == "sgd" or as_dense is False
    alone = train(MAKERS[kind](tf.keras.optimizers), whole, sparse_rows and as_dense is not True)
    if kind == "adam" and as_dense == "auto":
        pytest.skip("whether a row is there without a gradient depends on the way that is chosen")
    check(train(optimizer, mine, True), alone)


# ---- optimizers of graphs ------------------------------------------------------------------------


def train_in_graph(optimizer: Any, batches: list[Any], as_dense: Any) -> list[Any]:
    with graph_session() as session:
        weights = [v1.get_variable(f"w{i}", initializer=one) for i, one in enumerate(start())]
        words, targets = v1.placeholder(tf.int64, (None, 3)), v1.placeholder(tf.float64, (None, 1))
        pairs = optimizer.compute_gradients(loss_of(weights, words, targets), weights)
        if as_dense is True:
            pairs = [(tf.convert_to_tensor(gradient), weight) for gradient, weight in pairs]
        step = optimizer.apply_gradients(pairs)
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        for one, other in batches:
            session.run(step, {words: one, targets: other})
        return list(session.run(weights))


@pytest.mark.parametrize("kind", V1_MAKERS)
@every_sparse
@every_passes
def test_graph(kind: str, as_dense: Any, passes: int) -> None:
    """The Adam of graphs lets a row's momentum go on without a gradient, so that all ways are one."""
    words, targets = data(passes)
    mine = [(words[s, p, RANK], targets[s, p, RANK]) for s in range(STEPS) for p in range(passes)]
    whole = [(words[s].reshape(-1, 3), targets[s].reshape(-1, 1)) for s in range(STEPS)]
    optimizer = hvd.DistributedOptimizer(
        V1_MAKERS[kind](),
        sparse_as_dense=as_dense,
        backward_passes_per_step=passes,
        average_aggregated_gradients=True,
    )
    check(train_in_graph(optimizer, mine, as_dense), train_in_graph(V1_MAKERS[kind](), whole, as_dense))


# ---- models --------------------------------------------------------------------------------------


@every_optimizer
def test_fit(kind: str) -> None:
    """One epoch of batches, in the order that is given."""
    words, targets = data(1)
    words = words / WORDS

    def model_of(optimizer: Any) -> Any:
        layers = tf.keras.layers
        model = tf.keras.Sequential(
            [
                layers.Input((3,), dtype="float64"),
                layers.Dense(4, "tanh", dtype="float64"),
                layers.Dense(1, dtype="float64"),
            ]
        )
        random = np.random.RandomState(31)
        model.set_weights([random.randn(*one.shape) for one in model.get_weights()])
        model.compile(optimizer, loss="mse", **({"jit_compile": False} if KERAS_3 else {}))
        return model

    def fit(model: Any, words: Any, targets: Any, batch: int) -> Any:
        model.fit(words.reshape(-1, 3), targets.reshape(-1, 1), batch, 1, verbose=0, shuffle=False)
        return model.get_weights()

    mine = model_of(hvd_keras.DistributedOptimizer(MAKERS[kind](tf.keras.optimizers)))
    found = fit(mine, words[:, 0, RANK], targets[:, 0, RANK], ROWS)
    alone = fit(model_of(MAKERS[kind](tf.keras.optimizers)), words, targets, ROWS * SIZE)
    for one, other in zip(found, alone):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)  # the loss is a float32
