"""Times training steps of small nets with DistributedOptimizer.

    mpirun -np 2 python benchmarks/training.py [MODULE] [--models cnn,mlp,deep] [--seconds 1.5]

MODULE `none`: as many processes with nothing between them, which is what efficiency is measured against. One JSON line
for each model: `time_ms` (one step: the slowest rank's, the median of five repetitions), `parameters`, and `wrong`, the
number of weights that are not bitwise equal on all ranks after the last step (-1 for `none`).
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from cases import words
from models import MODELS, loss_of
from world import World, tf, v1

LEARNING_RATE = 0.01


def different(world: World, weights: list[Any]) -> int:
    """How many of rank 0's weights some rank has another value of, bit by bit."""
    bits = np.concatenate([weight.reshape(-1).view(np.int32) for weight in weights])
    largest, smallest = np.empty_like(bits), np.empty_like(bits)
    world.comm.Allreduce(bits, largest, op=world.mpi.MAX)
    world.comm.Allreduce(bits, smallest, op=world.mpi.MIN)
    return int(np.count_nonzero(largest != smallest))


def measure(world: World, model: str, seconds: float) -> None:
    """Trains for about `seconds` and says how long a step took."""
    with tf.Graph().as_default(), world.session() as session:
        loss = loss_of(model, world.rank)
        optimizer = v1.train.GradientDescentOptimizer(LEARNING_RATE)
        if world.hvd is not None:
            optimizer = world.hvd.DistributedOptimizer(optimizer)
        train = optimizer.minimize(loss)
        weights = v1.trainable_variables()
        session.run(v1.global_variables_initializer())
        if world.hvd is not None:
            session.run(world.hvd.broadcast_global_variables(0))
        time = world.seconds(session.make_callable(train), seconds)
        wrong = -1 if world.hvd is None else different(world, session.run(weights))
        parameters = sum(int(np.prod(weight.shape.as_list())) for weight in weights)
    world.say(benchmark="training", model=model, time_ms=round(time * 1e3, 4), parameters=parameters, wrong=wrong)


def main() -> None:
    """Measures one model after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", nargs="?", default="horovod_tf.tensorflow", help="or none")
    parser.add_argument("--models", default=",".join(MODELS), help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=1.5, help="about, for each model (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="inside one operation (default: %(default)s)")
    arguments = parser.parse_args()
    models = words(arguments.models)
    if not set(models) <= set(MODELS):
        parser.error(f"models are {', '.join(MODELS)}")
    world = World(arguments.module, arguments.threads)
    for model in models:
        measure(world, model, arguments.seconds)


if __name__ == "__main__":
    main()
