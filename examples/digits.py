"""What the digits examples share: the data and the network. Nothing here knows that there are several processes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

v1 = tf.compat.v1


class Images(NamedTuple):
    """Pictures of handwritten digits, in the same shuffled order in every process."""

    pixels: Any  # float32 [n, 8, 8, 1], from 0 to 1
    labels: Any  # int64 [n]


def load() -> tuple[Images, Images]:
    """1437 images to train with and 360 others to test with, as they come with scikit-learn."""
    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))
    pixels = (digits.images[order, :, :, np.newaxis] / 16).astype(np.float32)
    labels = digits.target[order].astype(np.int64)
    return Images(pixels[:1437], labels[:1437]), Images(pixels[1437:], labels[1437:])


def logits(pixels: Any) -> Any:
    """Two convolutions, one hidden layer: float32 [n, 10]. Called again, it uses the same variables."""
    with v1.variable_scope("net", reuse=v1.AUTO_REUSE):
        wide = tf.nn.relu(_convolution("conv1", pixels, 1, 32))
        wide = tf.nn.max_pool2d(tf.nn.relu(_convolution("conv2", wide, 32, 64)), 2, 2, "SAME")
        hidden = tf.nn.relu(_dense("hidden", tf.reshape(wide, [-1, 4 * 4 * 64]), 4 * 4 * 64, 64))
        return _dense("out", hidden, 64, 10)


def loss_of(pixels: Any, labels: Any) -> Any:
    """Mean cross entropy: float32, a scalar."""
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits(pixels)))


def accuracy_of(pixels: Any, labels: Any) -> Any:
    """Share of the images that are recognised: float32, a scalar."""
    return tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits(pixels), 1), labels), tf.float32))


def _convolution(name: str, pixels: Any, inputs: int, outputs: int) -> Any:
    with v1.variable_scope(name):
        kernel = v1.get_variable("kernel", [3, 3, inputs, outputs])
        return tf.nn.conv2d(pixels, kernel, 1, "SAME") + v1.get_variable("bias", [outputs])


def _dense(name: str, values: Any, inputs: int, outputs: int) -> Any:
    with v1.variable_scope(name):
        return values @ v1.get_variable("kernel", [inputs, outputs]) + v1.get_variable("bias", [outputs])
