"""Python objects between ranks; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import horovod_tf.tensorflow as hvd
from tensorflow_support import RANK, SIZE, v1

MODES = ["eager", "graph"]


def in_mode(mode: str, call: Any) -> Any:
    if mode == "eager":
        return call()
    with tf.Graph().as_default(), v1.Session() as session:
        found = call()
        assert not session.graph.get_operations()  # it has a graph of its own
        return found


def thing(rank: int) -> Any:
    return {"rank": rank, "text": "ä" * 1000 * rank, "nested": [(rank, None), {1.5}]}


@pytest.mark.parametrize("root", range(SIZE))
@pytest.mark.parametrize("mode", MODES)
def test_object_of_the_root(mode: str, root: int) -> None:
    mine = thing(RANK)
    found = in_mode(mode, lambda: hvd.broadcast_object(mine, root_rank=root))
    assert found == thing(root)
    assert (found is mine) == (root == RANK)
    assert in_mode(mode, lambda: hvd.broadcast_object_fn(root, name="a.name")(mine)) == thing(root)


@pytest.mark.parametrize("mode", MODES)
def test_what_only_the_root_can_pickle(mode: str) -> None:
    mine = [1, 2] if RANK == 0 else (number for number in range(3))
    assert in_mode(mode, lambda: hvd.broadcast_object(mine)) == [1, 2]


@pytest.mark.parametrize("mode", MODES)
def test_objects_of_all(mode: str) -> None:
    for name in (None, "all"):
        found = in_mode(mode, lambda name=name: hvd.allgather_object(thing(RANK), name=name))
        assert found == [thing(rank) for rank in range(SIZE)]


def test_a_root_that_is_no_rank() -> None:
    with pytest.raises(tf.errors.OpError, match=str(SIZE)):
        hvd.broadcast_object(1, root_rank=SIZE)
    assert hvd.broadcast_object(RANK) == 0
