"""Trains a small convolution net on handwritten digits, in graph mode, on as many processes as there are.

    python examples/digits_graph.py
    mpirun -np 2 python examples/digits_graph.py --checkpoints /tmp/digits

Each rank trains on a part of the images; gradients are averaged over all ranks. Rank 0 writes checkpoints. Started
again with the same --checkpoints and more --steps, it continues where it stopped. At the end rank 0 says how well the
net does on images it has not seen, and how fast it was; the exit status is not 0 if any two ranks hold different
weights. Set HOROVOD_TIMELINE=file.json to record what every tensor waited for.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import sys
import time
from typing import Any

# TensorFlow says much when it starts; what goes wrong comes as an exception.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import digits
import numpy as np
import tensorflow as tf

import horovod_tf.tensorflow as hvd

v1 = tf.compat.v1
LEARNING_RATE = 0.001
WINDOW = 50  # steps between two lines of progress
# One thread per rank: what a rank computes then does not slow down another one, as long as there are enough cores.
ONE_THREAD = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)


class Progress(v1.train.SessionRunHook):
    """Prints a line every WINDOW steps and keeps the speed of each window."""

    def __init__(self, loss: Any, images_per_step: int, last_step: int) -> None:
        """What to watch."""
        self.loss = loss
        self.images_per_step = images_per_step
        self.last_step = last_step
        self.speeds: list[float] = []  # images per second

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Sees where training starts; comes after the hook that broadcasts."""
        self.step = session.run(v1.train.get_global_step())
        if self.step and hvd.rank() == 0:
            print(f"continuing after step {self.step}")
        self.begin_of_window = time.monotonic()

    def before_run(self, run_context: Any) -> Any:
        """Asks for the loss of the step."""
        return v1.train.SessionRunArgs(self.loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Counts, and prints."""
        self.step += 1
        if self.step % WINDOW:
            return
        now = time.monotonic()
        self.speeds.append(WINDOW * self.images_per_step / (now - self.begin_of_window))
        self.begin_of_window = now
        if hvd.rank() == 0:
            print(
                f"step {self.step:4}/{self.last_step}  loss {run_values.results:.4f}  {self.speeds[-1]:.0f} images/s",
                flush=True,
            )


def batches(train: digits.Images, part: int, parts: int, size: int) -> Any:
    """Endless batches of this part of the images, in an order of its own."""
    data = tf.data.Dataset.from_tensor_slices(train).shard(parts, part)
    data = data.shuffle(len(train.labels), seed=part).repeat().batch(size, drop_remainder=True).prefetch(1)
    return v1.data.make_one_shot_iterator(data).get_next()


def typical(speeds: list[float]) -> float:
    """Images per second: the median, without the first window, in which all is done for the first time."""
    return statistics.median(speeds[1:] or speeds or [0])


def speed_alone(train: digits.Images, batch: int) -> float:
    """Images per second of one process that trains while the others wait; the same on all ranks."""
    speed = np.float64(0)
    if hvd.rank() == 0:
        with tf.Graph().as_default(), v1.Session(config=ONE_THREAD) as session:
            step = v1.train.AdamOptimizer(LEARNING_RATE).minimize(digits.loss_of(*batches(train, 0, 1, batch)))
            session.run(v1.global_variables_initializer())
            speeds = []
            for _ in range(5):
                begin = time.monotonic()
                for _ in range(WINDOW):
                    session.run(step)
                speeds.append(WINDOW * batch / (time.monotonic() - begin))
            speed = np.float64(typical(speeds))
    with tf.Graph().as_default(), v1.Session() as session:
        return float(session.run(hvd.broadcast(tf.constant(speed), 0)))


def digest(weights: list[Any]) -> Any:
    """SHA-256 over the bits of all weights: uint8 [1, 32]."""
    return np.frombuffer(hashlib.sha256(b"".join(each.tobytes() for each in weights)).digest(), np.uint8)[np.newaxis]


def train_and_test(arguments: argparse.Namespace) -> tuple[float, bool, float]:
    """Trains up to the last step; test accuracy, whether all weights are equal, and images per second of all ranks."""
    train, test = digits.load()
    loss = digits.loss_of(*batches(train, hvd.rank(), hvd.size(), arguments.batch))
    accuracy = digits.accuracy_of(*test)

    # As many ranks see as many images per step: the step may be as much longer.
    optimizer = hvd.DistributedOptimizer(v1.train.AdamOptimizer(LEARNING_RATE * hvd.size()))
    train_step = optimizer.minimize(loss, global_step=v1.train.get_or_create_global_step())

    my_digest = v1.placeholder(tf.uint8, [1, 32])
    all_digests = hvd.allgather(my_digest)

    progress = Progress(loss, arguments.batch * hvd.size(), arguments.steps)
    with v1.train.MonitoredTrainingSession(
        # One rank writes; the others get what it has restored from the hook.
        checkpoint_dir=arguments.checkpoints if hvd.rank() == 0 else None,
        hooks=[hvd.BroadcastGlobalVariablesHook(0), progress],
        save_checkpoint_steps=arguments.save_every,
        save_summaries_steps=0,
        log_step_count_steps=0,
        config=ONE_THREAD,
    ) as session:
        while progress.step < arguments.steps:
            session.run(train_step)

        # Past the hooks: these are no training steps.
        raw = session.run_step_fn(lambda step_context: step_context.session)
        mine = digest(raw.run(v1.trainable_variables()))
        equal = bool((raw.run(all_digests, {my_digest: mine}) == mine).all())
        return float(raw.run(accuracy)), equal, typical(progress.speeds)


def main() -> int:
    """Runs the job; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500, help="train up to this step (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="images per rank and step (default: %(default)s)")
    parser.add_argument("--checkpoints", metavar="FOLDER", help="where rank 0 writes them (default: nowhere)")
    parser.add_argument("--save-every", type=int, default=200, metavar="STEPS", help="default: %(default)s")
    parser.add_argument(
        "--baseline", type=float, metavar="IMAGES/S", help="speed of one process (default: measured before training)"
    )
    arguments = parser.parse_args()

    v1.disable_eager_execution()
    v1.logging.set_verbosity(v1.logging.ERROR)
    hvd.init()
    v1.set_random_seed(0)  # the weights before the first step: run again, it says the same
    first = hvd.rank() == 0
    if first:
        print(f"{hvd.size()} ranks, {arguments.batch} images per rank and step", flush=True)

    alone = arguments.baseline
    if alone is None and hvd.size() > 1:
        alone = speed_alone(digits.load()[0], arguments.batch)
    accuracy, equal, speed = train_and_test(arguments)

    if first:
        print(f"test accuracy: {accuracy:.4f}")
        if speed:
            print(f"images per second: {speed:.0f}")
        if speed and alone:
            print(
                f"speed-up over one process: {speed / alone:.2f} (one process: {alone:.0f} images/s; "
                f"{hvd.size()} ranks with one thread each on {len(os.sched_getaffinity(0))} cores)"
            )
        print(f"weights of all {hvd.size()} ranks: {'bitwise equal' if equal else 'DIFFERENT'}", flush=True)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
