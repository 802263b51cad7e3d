"""Trains a small convolution net on handwritten digits in a loop of its own, on as many processes as there are.

    python examples/digits_tape.py
    mpirun -np 2 python examples/digits_tape.py --compression fp16

TensorFlow 2's way: a tf.function, a gradient tape, and tf.Variable. Each rank trains on a part of the images. At the
end rank 0 says how well the net does on images it has not seen; the exit status is not 0 if any two ranks hold
different weights.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

# TensorFlow says much when it starts; what goes wrong comes as an exception.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import digits
import numpy as np
import tensorflow as tf

import horovod_tf.tensorflow as hvd

RATE, MOMENTUM = 0.02, 0.9
BATCH = 32  # images of each rank in a step
COMPRESSIONS = {"none": hvd.Compression.none, "fp16": hvd.Compression.fp16, "bf16": hvd.Compression.bf16}


class Net(tf.Module):
    """Two layers."""

    def __init__(self) -> None:
        """Weights of this process's own drawing; they are broadcast."""
        super().__init__()
        self.wide = tf.Variable(tf.random.normal([64, 128], stddev=0.1), name="wide")
        self.bias = tf.Variable(tf.zeros([128]), name="bias")
        self.out = tf.Variable(tf.random.normal([128, 10], stddev=0.1), name="out")

    def __call__(self, pixels: Any) -> Any:
        """float32 [n, 10] of float32 [n, 8, 8, 1]."""
        return tf.nn.relu(tf.reshape(pixels, [-1, 64]) @ self.wide + self.bias) @ self.out


def main() -> int:
    """Trains, tests, compares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--compression", choices=COMPRESSIONS, default="none")
    arguments = parser.parse_args()
    hvd.init()
    train, test = digits.load()
    data = tf.data.Dataset.from_tensor_slices(tuple(train)).shard(hvd.size(), hvd.rank())
    data = data.shuffle(len(train.labels)).repeat().batch(BATCH, drop_remainder=True)
    net = Net()
    left = [tf.Variable(tf.zeros_like(one), name="momentum") for one in net.trainable_variables]
    hvd.broadcast_variables(net.variables, root_rank=0)

    @tf.function
    def step(pixels: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=net(pixels)))
        tape = hvd.DistributedGradientTape(tape, compression=COMPRESSIONS[arguments.compression])
        for weight, moment, gradient in zip(
            net.trainable_variables, left, tape.gradient(loss, net.trainable_variables)
        ):
            weight.assign_sub(RATE * moment.assign(MOMENTUM * moment + gradient))
        return loss

    for number, (pixels, labels) in enumerate(data.take(arguments.steps), start=1):
        loss = step(pixels, labels)
        if number % 100 == 0 and hvd.rank() == 0:
            print(f"step {number:4}/{arguments.steps}  loss {loss:.4f}", flush=True)
    weights = [one.numpy() for one in net.trainable_variables]
    equal = all(
        all(np.array_equal(ours, theirs) for ours, theirs in zip(weights, other))
        for other in hvd.allgather_object(weights)
    )
    if hvd.rank() == 0:
        print(f"test accuracy: {np.mean(net(test.pixels).numpy().argmax(axis=1) == test.labels):.3f}")
        print(f"weights of all {hvd.size()} ranks: {'bitwise equal' if equal else 'DIFFERENT'}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
