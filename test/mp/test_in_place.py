"""`broadcast_`; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.tensorflow as hvd
from tensorflow_support import RANK, SIZE, TYPES, assert_same, graph_session, v1, values

SHAPE = (3, 2)


def check(found: Any, root: int) -> None:
    for one, dtype in zip(found, TYPES):
        assert_same(np.asarray(one), values(SHAPE, dtype, root))


@pytest.mark.parametrize("root", range(SIZE))
@pytest.mark.parametrize("name", [None, "mine"])
@pytest.mark.parametrize("mode", ["eager", "function"])
def test_all_types(mode: str, name: str | None, root: int) -> None:
    variables = [tf.Variable(values(SHAPE, dtype)) for dtype in TYPES]

    def program() -> Any:
        assert hvd.broadcast_(variables, root, name=name) == variables
        return [tf.convert_to_tensor(variable) for variable in variables]

    run = tf.function(program) if mode == "function" else program
    for _ in range(2):
        check(run(), root)
        check([variable.numpy() for variable in variables], root)
        for variable, dtype in zip(variables, TYPES):
            variable.assign(values(SHAPE, dtype))


@pytest.mark.parametrize("root", range(SIZE))
@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "ref"])
def test_graph(use_resource: bool, root: int) -> None:
    with graph_session() as session:
        variables = [
            v1.get_variable(f"v_{dtype.name}", initializer=values(SHAPE, dtype), use_resource=use_resource)
            for dtype in TYPES
        ]
        assigned = hvd.broadcast_(variables, root_rank=root)
        assert len(assigned) == len(variables)
        session.run(v1.global_variables_initializer())
        check(session.run([tf.identity(one) for one in assigned]), root)
        check(session.run(variables), root)


def test_none_and_keras_variables() -> None:
    assert hvd.broadcast_([], 0) == []
    layer = tf.keras.layers.Dense(2, kernel_initializer=tf.keras.initializers.Constant(RANK))
    layer.build((None, 3))
    hvd.broadcast_(layer.weights, SIZE - 1)
    assert_same(layer.get_weights()[0], np.full((3, 2), SIZE - 1, np.float32))


def test_mixed_kinds() -> None:
    with graph_session():
        kinds = [v1.get_variable(f"v{kind}", initializer=0.0, use_resource=kind) for kind in (True, False)]
        with pytest.raises(ValueError, match="these are mixed"):
            hvd.broadcast_(kinds, 0)
