"""Whether two ranks' names are those of the same variables."""

from __future__ import annotations

import pytest

from horovod_tf.tensorflow.variable_names import first_difference


@pytest.mark.parametrize(
    ("names", "others", "place"),
    [
        ([], [], None),
        (["dense/kernel:0", "dense/bias:0"], ["dense_6/kernel:0", "dense_6/bias:0"], None),
        (["sequential/dense/kernel"], ["sequential_3/dense_6/kernel"], None),
        (["adam/dense_kernel_momentum"], ["adam/dense_12_kernel_momentum"], None),
        (["dense/kernel", "dense_1/kernel"], ["dense_1/kernel", "dense_2/kernel"], None),
        (["dense/kernel", "dense_1/kernel"], ["dense_1/kernel", "dense/kernel"], 0),
        (["a", "w_1", "w_2"], ["a", "w_2", "w_1"], 1),
        (["a", "b"], ["a", "c"], 1),
        (["a", "b"], ["a"], 1),
        (["conv2d/kernel"], ["conv3d/kernel"], 0),
        (["layer1"], ["layer2"], 0),
    ],
)
def test_first_difference(names: list[str], others: list[str], place: int | None) -> None:
    assert first_difference(names, others) == place
    assert first_difference(others, names) == place
