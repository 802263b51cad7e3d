"""`broadcast_variables` of lists that ranks have made differently; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.tensorflow as hvd
from tensorflow_support import RANK, SIZE

ROOT = SIZE - 1
needs_others = pytest.mark.skipif(SIZE == 1, reason="one rank has no other")


def variables(*names: str) -> list[Any]:
    return [tf.Variable(tf.fill([2], 10.0 * RANK + place), name=name) for place, name in enumerate(names)]


def assert_from_root(found: list[Any], ranks: list[int] | None = None) -> None:
    root = ROOT if ranks is None else ranks[-1]
    for place, one in enumerate(found):
        np.testing.assert_array_equal(one, [10.0 * root + place] * 2)


@pytest.mark.parametrize("named_by_path", [True, False], ids=["path", "name"])
def test_numbers_of_what_a_rank_has_built_before_do_not_matter(named_by_path: bool) -> None:
    layers = [f"dense_{RANK + place}" if RANK + place else "dense" for place in range(3)]
    mine = variables(*(f"{layer}/kernel" if named_by_path else layer for layer in layers))
    hvd.broadcast_variables(mine, ROOT)
    assert_from_root(mine)


def test_model_of_a_rank_that_has_built_others() -> None:
    for _ in range(RANK):
        tf.keras.layers.Dense(3)
    layer = tf.keras.layers.Dense(3)
    layer.build((None, 2))
    layer.set_weights([np.full((2, 3), float(RANK)), np.full(3, float(RANK))])
    hvd.broadcast_variables(layer.variables, ROOT)
    hvd.check_consistency(layer.variables)
    for one in layer.get_weights():
        np.testing.assert_array_equal(one, np.full(one.shape, float(ROOT)))


@needs_others
@pytest.mark.parametrize(
    ("of_root", "of_others", "text"),
    [
        (["a", "b"], ["b", "a"], "number 1 is 'a:0' on the root and 'b:0' on rank 0"),
        (["w_1", "w_2"], ["w_2", "w_1"], "number 1 is 'w_1:0' on the root and 'w_2:0' on rank 0"),
        (["a", "b"], ["a", "c"], "number 2 is 'b:0' on the root and 'c:0' on rank 0"),
        (["a", "b"], ["a"], "number 2 is 'b:0' on the root and missing on rank 0"),
        (["a"], ["a", "b"], "number 2 is missing on the root and 'b:0' on rank 0"),
    ],
)
def test_other_variables_are_an_error_on_all_ranks(of_root: list[str], of_others: list[str], text: str) -> None:
    mine = variables(*(of_root if RANK == ROOT else of_others))
    with pytest.raises(ValueError, match=text):
        hvd.broadcast_variables(mine, ROOT)
    mine = variables("a", "b")
    hvd.broadcast_variables(mine, ROOT)
    assert_from_root(mine)


@needs_others
def test_in_sets_at_the_same_time() -> None:
    parities = [[rank for rank in range(SIZE) if rank % 2 == parity] for parity in range(2)]
    sets = [hvd.add_process_set(ranks) for ranks in parities]
    mine = variables(*(f"of_{RANK}/w_{place}" for place in range(2 + RANK % 2)))
    hvd.broadcast_variables(mine, parities[RANK % 2][-1], process_set=sets[RANK % 2])
    assert_from_root(mine, parities[RANK % 2])
    for one in sets:
        hvd.remove_process_set(one)


def test_generator() -> None:
    mine = variables("a", "b")
    hvd.broadcast_variables(iter(mine), ROOT)
    assert_from_root(mine)
