"""Eager calls without a name: from one thread at a time they are paired in their order, from two they are an error."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import horovod_tf.tensorflow as hvd
from horovod_tf.tensorflow import nameless
from tensorflow_support import RANK, SIZE

RANKS = SIZE * (SIZE - 1) / 2  # the sum of all


def in_a_thread(work: Callable[[], Any], name: str) -> tuple[threading.Thread, list[Any]]:
    """Starts it; what it returns or raises is put into the list."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run, name=name)
    thread.start()
    return thread, results


def test_second_thread_is_told_both_and_what_to_do_and_the_first_goes_on() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def waits() -> str:
        inside.set()
        assert go_on.wait(60)
        return "done"

    thread, results = in_a_thread(lambda: nameless.call("HorovodAllreduce", waits), "first")
    assert inside.wait(60)

    def call_of_the_module(value: tf.Tensor) -> object:
        return nameless.call("HorovodAllreduce", lambda: value)

    for call in (hvd.allreduce, call_of_the_module):
        with pytest.raises(ValueError, match=r"thread 'MainThread' calls HorovodAllreduce .* thread 'first' .*name="):
            call(tf.ones([2]))
    # Of another kind, and with a name, there is nothing to be mixed up.
    assert float(hvd.allreduce(tf.constant(RANK + 0.0), average=False, name="named")) == RANKS
    assert hvd.allgather(tf.constant([RANK])).numpy().tolist() == list(range(SIZE))
    assert float(tf.function(lambda: hvd.allreduce(tf.ones([]), average=False))()) == SIZE
    go_on.set()
    thread.join(60)
    assert results == ["done"]
    assert float(hvd.allreduce(tf.constant(RANK + 0.0), average=False)) == RANKS


def test_call_that_fails_leaves_the_next_thread_free() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"no such rank|root"):
        hvd.broadcast(tf.ones([2]), SIZE)
    thread, results = in_a_thread(lambda: hvd.broadcast(tf.fill([2], RANK + 1.0), 0).numpy().tolist(), "worker")
    thread.join(60)
    assert results == [[1.0, 1.0]]


def test_worker_threads_one_after_the_other_have_right_values() -> None:
    for step in range(20):
        value = tf.constant(RANK + 0.0 + step)
        thread, results = in_a_thread(functools.partial(hvd.allreduce, value), "worker")
        thread.join(60)
        assert [float(one) for one in results] == [pytest.approx(RANKS / SIZE + step)]


def test_python_inside_of_a_function_needs_no_name_either() -> None:
    @tf.function
    def program(value: Any) -> Any:
        return tf.py_function(lambda one: hvd.allreduce(one, average=False), [value], tf.float32)

    assert float(program(tf.constant(RANK + 0.0))) == RANKS


def test_gradient_of_an_eager_call_has_no_name_of_its_own() -> None:
    value = tf.constant(RANK + 1.0)
    with tf.GradientTape() as tape:
        tape.watch(value)
        total = hvd.allreduce(value, average=False)
    assert float(tape.gradient(total, value)) == SIZE
