"""The job of digits_graph.py as an Estimator: trains, evaluates and predicts. Needs TensorFlow 2.15 or older.

    python examples/digits_estimator.py
    mpirun -np 2 python examples/digits_estimator.py --model-dir /tmp/digits-estimator

Rank 0 alone writes to the model folder and restores what is there; the hook gives that to the others. Started again
with more --steps, it continues where it stopped.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from typing import Any

# TensorFlow says much when it starts; what goes wrong comes as an exception.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import digits
import tensorflow as tf

import horovod_tf.tensorflow as hvd

v1 = tf.compat.v1
LEARNING_RATE = 0.001


def model(features: Any, labels: Any, mode: str) -> Any:
    """The function that an Estimator calls to build its graph: features float32 [n, 8, 8, 1], labels int64 [n]."""
    estimator = tf.compat.v1.estimator
    classes = tf.argmax(digits.logits(features), 1)
    if mode == estimator.ModeKeys.PREDICT:
        return estimator.EstimatorSpec(mode, predictions={"class": classes})
    loss = digits.loss_of(features, labels)
    if mode == estimator.ModeKeys.EVAL:
        return estimator.EstimatorSpec(
            mode, loss=loss, eval_metric_ops={"accuracy": v1.metrics.accuracy(labels, classes)}
        )
    # As many ranks see as many images per step: the step may be as much longer.
    optimizer = hvd.DistributedOptimizer(v1.train.AdamOptimizer(LEARNING_RATE * hvd.size()))
    return estimator.EstimatorSpec(
        mode, loss=loss, train_op=optimizer.minimize(loss, global_step=v1.train.get_global_step())
    )


def step_of_rank_0(model_dir: str) -> int:
    """The step that rank 0 would continue after; the same on all ranks, which cannot see its folder."""
    found = tf.train.latest_checkpoint(model_dir) if hvd.rank() == 0 else None
    step = v1.train.load_variable(found, "global_step") if found else 0
    with tf.Graph().as_default(), v1.Session() as session:
        return int(session.run(hvd.broadcast(tf.constant(step, tf.int64), 0)))


def run(steps: int, batch: int, model_dir: str) -> None:
    """Trains up to the given step; then rank 0 evaluates and predicts. All ranks but 0 have an empty folder."""
    estimator = tf.compat.v1.estimator
    train, test = digits.load()
    first = hvd.rank() == 0

    def batches() -> Any:
        data = tf.data.Dataset.from_tensor_slices(tuple(train)).shard(hvd.size(), hvd.rank())
        return data.shuffle(len(train.labels), seed=hvd.rank()).repeat().batch(batch, drop_remainder=True)

    def tests() -> Any:
        return tf.data.Dataset.from_tensor_slices(tuple(test)).batch(len(test.labels))

    job = estimator.Estimator(
        model,
        config=estimator.RunConfig(
            model_dir,
            tf_random_seed=0,  # run again, it says the same
            session_config=v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1),
            save_checkpoints_steps=200 if first else None,
            save_checkpoints_secs=None,
            save_summary_steps=None,
            log_step_count_steps=None,
        ),
    )
    # An Estimator that has reached the last step does not even begin: all ranks must know, or the others would wait.
    done = step_of_rank_0(model_dir)
    if first:
        print(f"{hvd.size()} ranks, training from step {done} to {steps}", flush=True)
    if done < steps:
        job.train(batches, max_steps=steps, hooks=[hvd.BroadcastGlobalVariablesHook(0)])
    if first:
        found = job.evaluate(tests)
        print(f"step {found['global_step']}: test accuracy: {found['accuracy']:.4f}")
        classes = [int(answer["class"]) for _, answer in zip(range(10), job.predict(tests))]
        print(f"first ten predictions: {classes}\nthey are:              {test.labels[:10].tolist()}", flush=True)


def main() -> int:
    """Runs the job; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500, help="train up to this step (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="images per rank and step (default: %(default)s)")
    parser.add_argument("--model-dir", help="rank 0's folder (default: one that is removed at the end)")
    arguments = parser.parse_args()
    if not hasattr(v1, "estimator"):
        print(f"TensorFlow {tf.__version__} has no Estimators: the last one that has is 2.15", file=sys.stderr)
        return 1

    v1.disable_eager_execution()
    v1.logging.set_verbosity(v1.logging.ERROR)
    hvd.init()
    with tempfile.TemporaryDirectory() as empty:
        model_dir = arguments.model_dir if hvd.rank() == 0 and arguments.model_dir else empty
        run(arguments.steps, arguments.batch, model_dir)
    return 0


if __name__ == "__main__":
    sys.exit(main())
