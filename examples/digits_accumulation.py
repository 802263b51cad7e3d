"""Trains on large batches that are taken in several passes, in graph mode, on as many processes as there are.

    python examples/digits_accumulation.py
    mpirun -np 2 python examples/digits_accumulation.py --passes 4 --mixed

Each rank adds up the gradients of --passes small batches; in the last pass the sums are averaged over all ranks, once,
and applied. The global step counts these steps, not the passes. With --mixed, the net computes in float16 and its loss
is scaled, so that small gradients are not lost. At the end rank 0 says how well the net does on images it has not
seen; the exit status is not 0 if any two ranks hold different weights.
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

v1 = tf.compat.v1
BATCH = 16  # images of each rank in a pass
SCALE = 128.0


def batches(train: digits.Images) -> Any:
    """Endless batches of this rank's part of the images."""
    data = tf.data.Dataset.from_tensor_slices(train).shard(hvd.size(), hvd.rank())
    data = data.shuffle(len(train.labels), seed=hvd.rank()).repeat().batch(BATCH, drop_remainder=True)
    return v1.data.make_one_shot_iterator(data).get_next()


def weight(name: str, shape: list[int]) -> Any:
    """A float32 variable."""
    return v1.get_variable(name, shape, initializer=v1.glorot_uniform_initializer())


def scores(pixels: Any, dtype: Any) -> Any:
    """float32 [n, 10] of float32 [n, 8, 8, 1], computed in `dtype`."""
    with v1.variable_scope("net", reuse=v1.AUTO_REUSE):
        wide, out = (tf.cast(one, dtype) for one in (weight("wide", [64, 128]), weight("out", [128, 10])))
    hidden = tf.nn.relu(tf.matmul(tf.cast(tf.reshape(pixels, [-1, 64]), dtype), wide))
    return tf.cast(tf.matmul(hidden, out), tf.float32)


def main() -> int:
    """Trains, tests, compares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--passes", type=int, default=4, help="of each step")
    parser.add_argument("--mixed", action="store_true", help="compute in float16")
    arguments = parser.parse_args()
    v1.disable_eager_execution()
    v1.logging.set_verbosity(v1.logging.ERROR)
    hvd.init()
    train, test = digits.load()
    pixels, labels = batches(train)
    dtype = tf.float16 if arguments.mixed else tf.float32
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores(pixels, dtype))
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(scores(test.pixels, dtype), 1), test.labels), tf.float32))

    optimizer = v1.train.AdamOptimizer(0.003)
    if arguments.mixed:
        # Inside: a rank whose float16 overflow then leaves the step out together with all others.
        optimizer = v1.mixed_precision.MixedPrecisionLossScaleOptimizer(optimizer, SCALE)
    optimizer = hvd.DistributedOptimizer(
        optimizer, backward_passes_per_step=arguments.passes, average_aggregated_gradients=True
    )
    step = v1.train.get_or_create_global_step()
    one_pass = optimizer.minimize(tf.reduce_mean(losses), global_step=step)

    passes = arguments.steps * arguments.passes
    with v1.train.MonitoredTrainingSession(hooks=[hvd.BroadcastGlobalVariablesHook(0)]) as session:
        for _ in range(passes):
            session.run(one_pass)
        # Past the hooks: these are no training steps.
        raw = session.run_step_fn(lambda step_context: step_context.session)
        weights, found, count = raw.run([v1.trainable_variables(), accuracy, step])
    equal = all(
        all(np.array_equal(ours, theirs) for ours, theirs in zip(weights, other))
        for other in hvd.allgather_object(weights)
    )
    if hvd.rank() == 0:
        print(f"{passes} passes, {count} steps of {BATCH * arguments.passes * hvd.size()} images")
        print(f"test accuracy: {found:.3f}")
        print(f"weights of all {hvd.size()} ranks: {'bitwise equal' if equal else 'DIFFERENT'}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
