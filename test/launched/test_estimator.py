"""An Estimator's job on several ranks: train, evaluate, predict, and training that goes on from a checkpoint."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

import pytest

from launching import launch_script, needs_mpirun

pytestmark = [
    needs_mpirun,
    pytest.mark.skipif(
        importlib.util.find_spec("tensorflow_estimator") is None, reason="TensorFlow 2.15 is the last with Estimators"
    ),
]

STEPS: Final = 20
JOB: Final = """
import logging
v1.logging.set_verbosity(v1.logging.ERROR)

def model(features, labels, mode, params):
    weight = v1.get_variable("weight", initializer=np.full((2, 1), 10.0 * rank, np.float32))
    found = tf.matmul(features["x"], weight)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"y": found})
    loss = tf.reduce_mean(tf.square(found - labels))
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss)
    optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(params["rate"] * size))
    train = optimizer.minimize(loss, global_step=v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

# y = 3 a - 2 b; every rank sees its own half of the rows, which alone does not determine both weights.
rows = np.array([[1.0, 0.0], [0.0, 1.0]] * 50, np.float32)
targets = rows @ np.array([[3.0], [-2.0]], np.float32)

def shard():
    data = tf.data.Dataset.from_tensor_slices(({"x": rows}, targets))
    return data.shard(size, rank).repeat().batch(10)

def everything():
    return tf.data.Dataset.from_tensor_slices(({"x": rows}, targets)).batch(20)

# Only one rank writes.
estimator = tf.estimator.Estimator(
    model, model_dir=folder if rank == 0 else None, params={"rate": 0.25},
    config=tf.estimator.RunConfig(save_summary_steps=None, log_step_count_steps=None))
hook = hvd.BroadcastGlobalVariablesHook(0)
for goal in (steps, 2 * steps):
    estimator.train(shard, steps=steps, hooks=[hook])
    weight = estimator.get_variable_value("weight")
    say("trained to", estimator.get_variable_value("global_step"), weight.tobytes().hex())
result = estimator.evaluate(everything)
say("evaluated", result["global_step"], result["loss"] < 1e-3)
first, second = list(estimator.predict(lambda: everything().take(1)))[:2]
say("predicted", round(float(first["y"][0]), 2), round(float(second["y"][0]), 2))
"""


def test_estimator_trains_evaluates_and_predicts(tmp_path: Path) -> None:
    job = launch_script(2, f"folder, steps = {str(tmp_path / 'model')!r}, {STEPS}\n" + JOB, seconds=120)
    assert job.status == 0, job
    for rank in range(2):
        assert not job.lacks(rank, f"trained to {STEPS} ", f"trained to {2 * STEPS} ", "predicted 3.0 -2.0"), job
        assert f"evaluated {2 * STEPS} True" in job.of(rank), job
    said = [[line.split(": ")[1] for line in job.of(rank).splitlines()] for rank in range(2)]
    assert said[0] == said[1], job  # weights too, bit by bit
    assert list((tmp_path / "model").glob(f"model.ckpt-{2 * STEPS}.*"))
