"""Sums are the same bits on every rank and in every run, in whatever order tensors become ready."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import numpy as np
import tensorflow as tf

import horovod_tf.tensorflow as hvd
from tensorflow_support import RANK, SIZE, graph_session, v1

GRADIENTS = 50
REPEATS = 10
LONGEST_DELAY = 0.004  # seconds


def gradient(i: int, rank: int) -> np.ndarray[Any, Any]:
    """Of 1 to about 30,000 elements, so different in magnitude that every order of adding has its own bits."""
    random = np.random.default_rng(1000 * rank + i)
    size = int(1.23**i) + i
    return (random.standard_normal(size) * 10.0 ** random.integers(-6, 6, size)).astype(np.float32)


def delayed(value: Any, i: int, delays: Any) -> Any:
    """`value`, later: after so many seconds as `delays` has for it."""

    def wait(given: Any, seconds: Any) -> Any:
        time.sleep(float(seconds))
        return given

    output = v1.numpy_function(wait, [value, delays[i]], tf.float32)
    output.set_shape(value.shape)
    return output


def digests_of_repeats() -> list[str]:
    mine = [gradient(i, RANK) for i in range(GRADIENTS)]
    random = np.random.default_rng(RANK)
    digests = []
    with graph_session() as session:
        delays = v1.placeholder(tf.float64, [GRADIENTS])
        sums = [hvd.allreduce(delayed(tf.constant(one), i, delays), average=False) for i, one in enumerate(mine)]
        for _ in range(REPEATS):
            results = session.run(sums, {delays: random.uniform(0, LONGEST_DELAY, GRADIENTS)})
            digests.append(hashlib.sha256(b"".join(one.tobytes() for one in results)).hexdigest())
    return digests


def test_random_delays_change_no_bit_on_any_rank() -> None:
    inputs = [[gradient(i, rank) for rank in range(SIZE)] for i in range(GRADIENTS)]
    # In rank order; and to know that order matters here, in the opposite one.
    in_order = [np.add.reduce(one) for one in inputs]
    expected = hashlib.sha256(b"".join(one.tobytes() for one in in_order)).hexdigest()
    if SIZE > 2:
        assert any(np.any(sums != np.add.reduce(one[::-1])) for sums, one in zip(in_order, inputs))
    assert digests_of_repeats() == [expected] * REPEATS
