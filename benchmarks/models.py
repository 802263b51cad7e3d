"""Nets that the benchmark of training trains, in graph mode: their loss, on random data of this rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from world import tf, v1

BATCH = 32
CLASSES = 10


def variable(name: str, shape: list[int], deviation: float) -> Any:
    """A weight with normally distributed values of its own on each rank, or zeros."""
    return v1.get_variable(name, shape, initializer=v1.random_normal_initializer(stddev=deviation))


def dense(inputs: Any, width: int, name: str) -> Any:
    """A layer where everything is connected, without its activation."""
    weights = variable(f"{name}_w", [int(inputs.shape[-1]), width], 0.05)
    return tf.matmul(inputs, weights) + variable(f"{name}_b", [width], 0.0)


def convolution(inputs: Any, channels: int, name: str) -> Any:
    """3 x 3, halved in both directions afterwards."""
    weights = variable(f"{name}_w", [3, 3, int(inputs.shape[-1]), channels], 0.05)
    outputs = tf.nn.relu(tf.nn.conv2d(inputs, weights, strides=1, padding="SAME"))
    return tf.nn.max_pool2d(outputs, 2, 2, "SAME")


def cnn(random: Any) -> Any:
    """0.4 M parameters: more to compute than to send."""
    images = tf.constant(random.rand(BATCH, 28, 28, 1).astype(np.float32))
    hidden = convolution(convolution(images, 16, "c1"), 32, "c2")
    hidden = tf.nn.relu(dense(tf.reshape(hidden, [BATCH, 7 * 7 * 32]), 256, "d1"))
    return dense(hidden, CLASSES, "out")


def mlp(random: Any) -> Any:
    """15 M parameters: much to send."""
    hidden = tf.constant(random.rand(BATCH, 1024).astype(np.float32))
    for layer in range(4):
        hidden = tf.nn.relu(dense(hidden, 2048, f"d{layer}"))
    return dense(hidden, CLASSES, "out")


def deep(random: Any) -> Any:
    """200 layers of 64: many small tensors, one after the other."""
    hidden = tf.constant(random.rand(BATCH, 64).astype(np.float32))
    for layer in range(200):
        hidden = tf.nn.relu(dense(hidden, 64, f"d{layer}"))
    return dense(hidden, CLASSES, "out")


MODELS: dict[str, Callable[[Any], Any]] = {"cnn": cnn, "mlp": mlp, "deep": deep}


def loss_of(model: str, rank: int) -> Any:
    """Cross entropy on data and weights that differ from rank to rank."""
    v1.set_random_seed(1 + rank)
    random = np.random.RandomState(rank)
    logits = MODELS[model](random)
    labels = tf.constant(random.randint(0, CLASSES, BATCH))
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
