"""Trains a small convolution net on handwritten digits with Keras' `fit`, on as many processes as there are.

    python examples/digits_keras.py
    mpirun -np 2 python examples/digits_keras.py --epochs 5

Keras 2 and Keras 3. Each rank trains on a part of the images; gradients are averaged over all ranks, and the learning
rate rises in the first epochs to what fits so many images at once. Rank 0 writes the model. At the end it says how
well the net does on images it has not seen; the exit status is not 0 if any two ranks hold different weights.
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

import horovod_tf.tensorflow.keras as hvd

LEARNING_RATE = 0.002
BATCH = 32  # images of each rank in a step
# XLA, which Keras 3 compiles with, knows no collectives.
WITHOUT_XLA: dict[str, Any] = {"jit_compile": False}


def build() -> Any:
    """The same weights on all ranks or not: the callback that broadcasts sees to it."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPool2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )


def callbacks(rate: float, path: str | None) -> list[Any]:
    """Averages before whoever looks at them; what writes, on one rank."""
    found = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(rate, warmup_epochs=2),
    ]
    if path and hvd.rank() == 0:
        found.append(tf.keras.callbacks.ModelCheckpoint(path))
    return found


def main() -> int:
    """Trains, tests, compares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--model", help="a file that ends with .keras; one that is there goes on from where it stopped")
    arguments = parser.parse_args()
    hvd.init()
    train, test = digits.load()
    mine = slice(hvd.rank(), len(train.labels) // hvd.size() * hvd.size(), hvd.size())  # as many steps on all ranks
    if arguments.model and os.path.exists(arguments.model):
        model = hvd.load_model(arguments.model)
    else:
        model = build()
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(LEARNING_RATE))
        model.compile(optimizer, loss, metrics=["accuracy"], **WITHOUT_XLA)
    model.fit(
        train.pixels[mine],
        train.labels[mine],
        BATCH,
        arguments.epochs,
        verbose=2 if hvd.rank() == 0 else 0,
        callbacks=callbacks(LEARNING_RATE, arguments.model),
    )
    equal = all(
        all(np.array_equal(ours, theirs) for ours, theirs in zip(model.get_weights(), other))
        for other in hvd.allgather_object(model.get_weights())
    )
    if hvd.rank() == 0:
        found = model.predict(test.pixels, verbose=0).argmax(axis=1)
        print(f"test accuracy: {np.mean(found == test.labels):.3f}")
        print(f"weights of all {hvd.size()} ranks: {'bitwise equal' if equal else 'DIFFERENT'}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
