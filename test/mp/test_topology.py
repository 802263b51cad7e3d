"""Operations that say who and how many there are; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import horovod_tf.tensorflow as hvd
from horovod_tf.common.process_sets import id_of
from tensorflow_support import RANK, SIZE, graph_session

QUERIES = [
    (hvd.size_op, SIZE),
    (hvd.rank_op, RANK),
    (hvd.local_size_op, hvd.local_size()),
    (hvd.local_rank_op, hvd.local_rank()),
    (hvd.process_set_included_op, 1),
]
every_query = pytest.mark.parametrize(("query", "expected"), QUERIES, ids=lambda one: getattr(one, "__name__", ""))


@every_query
def test_scalar_in_every_mode(query: Any, expected: int) -> None:
    assert query().dtype == tf.int32
    assert query().shape == ()
    assert query(name="asked").numpy() == expected
    assert tf.function(query)().numpy() == expected
    with graph_session() as session:
        assert session.run(query()) == expected
        assert tf.gradients(tf.cast(query(), tf.float32), tf.constant(1.0)) == [None]


def test_process_sets() -> None:
    if SIZE == 1:
        return
    one = hvd.add_process_set([0])
    number = id_of(one)
    size = tf.function(lambda: hvd.size_op(number))
    assert size().numpy() == 1
    assert hvd.process_set_included_op(number).numpy() == int(RANK == 0)
    hvd.remove_process_set(one)
    for call in (size, lambda: hvd.process_set_included_op(number)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="does not exist or has not been registered"):
            call()


@every_query
def test_without_a_job(query: Any, expected: int) -> None:
    ask = tf.function(query)
    assert ask().numpy() == expected
    hvd.barrier()
    hvd.shutdown()
    with pytest.raises(tf.errors.FailedPreconditionError, match="has not been initialized"):
        ask()
    hvd.init()
    assert ask().numpy() == expected
