"""Variables that differ between ranks end a job that does not catch the error, and nothing stands still."""

from __future__ import annotations

import pytest

from launching import GRAPH_MODE, PATIENT, launch_script, needs_mpirun

pytestmark = needs_mpirun

# The launcher ends the other ranks when one has failed; what they say before is what is tested.
SAYING = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)

def run(job):
    try:
        job()
    except Exception as error:
        say(type(error).__name__, error)
        raise
    say("came to its end")
"""
# 20 steps; after the 7th, rank 1 changes one weight by a thousandth.
HOOK = (
    GRAPH_MODE
    + SAYING
    + """
weight = v1.get_variable("w", initializer=np.full(3, 1.0 + rank, np.float32))
optimizer = hvd.DistributedOptimizer(v1.train.AdamOptimizer(0.1))
train = optimizer.minimize(tf.reduce_sum(weight * weight), global_step=v1.train.get_or_create_global_step())
change = v1.assign_add(weight, [0.0, 1e-3, 0.0])

def job():
    hooks = [hvd.BroadcastGlobalVariablesHook(0), hvd.ConsistencyHook(every=5)]
    with v1.train.MonitoredTrainingSession(hooks=hooks, log_step_count_steps=0) as session:
        for step in range(1, 21):
            session.run(train)
            if step == 7 and rank == 1:
                session.run_step_fn(lambda step_context: step_context.session.run(change))
run(job)
"""
)
EAGER = (
    SAYING
    + """
weight = tf.Variable([1.0, 2.0, 3.0], name="w")

def job():
    for step in range(1, 21):
        weight.assign_sub(0.1 * hvd.allreduce(weight * (rank + 1.0)))
        if step == 7 and rank == 1:
            weight.assign_add([0.0, 1e-3, 0.0])
        hvd.check_consistency([weight], step=step, every=5)
run(job)
"""
)


@pytest.mark.parametrize("script", [HOOK, EAGER], ids=["hook", "eager"])
def test_a_weight_that_one_rank_has_changed_ends_the_job_on_every_rank(script: str) -> None:
    job = launch_script(3, script, seconds=180, **PATIENT)
    assert job.status != 0
    for rank in range(3):
        expected = ("FailedPreconditionError Variables differ between ranks at step 10", "w:0 (float32 [3]) on rank 1 ")
        assert not job.lacks(rank, *expected), job


LEAVES = (
    SAYING
    + """
weight = tf.Variable([1.0], name="w")

def job():
    for step in range(1, 11):
        if rank == 1 and step == 10:
            raise ValueError("boom-17")
        hvd.check_consistency([weight], step=step, every=5)
run(job)
"""
)


def test_a_rank_that_fails_before_it_compares_does_not_leave_the_others_waiting() -> None:
    job = launch_script(3, LEAVES, seconds=180, **PATIENT)
    assert job.status != 0
    for rank in (0, 2):
        assert not job.lacks(rank, "rank 1 asked for it", "boom-17"), job


# The one thread that TensorFlow runs operations on waits in the comparison, while collectives are in flight.
ONE_THREAD = """
tf.config.threading.set_inter_op_parallelism_threads(1)
weight, step = tf.Variable(tf.ones([1000])), tf.Variable(0, dtype=tf.int64)

@tf.function
def train():
    step.assign_add(1)
    sums = [hvd.allreduce(tf.ones([1000]) * (rank + i), average=False) for i in range(20)]
    weight.assign_add(tf.add_n(sums[:10]))
    hvd.check_consistency([weight], step=step, every=2)
    return tf.reduce_sum(sums[10])

for _ in range(50):
    train()
say("came to its end at", int(step))
"""


def test_inside_a_function_one_thread_is_enough() -> None:
    job = launch_script(3, ONE_THREAD, seconds=180)
    assert job.status == 0, job
    assert all("came to its end at 50" in job.of(rank) for rank in range(3)), job
