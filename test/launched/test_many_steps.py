"""Training for long, and with more ranks than cores."""

from __future__ import annotations

import json
import sys

import pytest

from launching import GRAPH_MODE, PROLOGUE, Job, launch_script, needs_mpirun

pytestmark = needs_mpirun

STEPS = 10000
MIB = 1024 * 1024

MEASURED = (
    GRAPH_MODE
    + """
import gc, json, threading
def used():
    gc.collect()
    resident = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {
        "memory": resident,
        "threads": len(os.listdir("/proc/self/task")),
        "files": len(os.listdir("/proc/self/fd")),
    }

tensors = [tf.ones([100 + 10 * i]) * (rank + 1.0) for i in range(50)]
total = tf.group(*[hvd.allreduce(one, average=False) for one in tensors])
with v1.Session() as session:
    for _ in range(warm_up):
        session.run(total)
    before = used()
    for _ in range(steps):
        session.run(total)
    after = used()
say(json.dumps({"before": before, "after": after}))
"""
)


def test_memory_threads_and_files_do_not_grow() -> None:
    job = launch_script(2, f"steps = {STEPS}\nwarm_up = {STEPS // 10}\n" + MEASURED, seconds=300)
    assert job.status == 0, job
    for rank in range(2):
        used = json.loads(job.of(rank).split(": ", 1)[1])
        grown = {what: used["after"][what] - used["before"][what] for what in used["before"]}
        assert grown["memory"] < 10 * MIB, grown
        # TensorFlow's own pools may give threads back.
        assert grown["threads"] <= 0, grown
        assert grown["files"] <= 0, grown


@pytest.mark.parametrize("ranks", [8])
def test_more_ranks_than_cores_train_without_stalls(ranks: int) -> None:
    job = launch_script(
        ranks,
        GRAPH_MODE
        + """
step = v1.train.get_or_create_global_step()
weights = v1.get_variable("weights", initializer=tf.zeros([1000]))
optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0))
train = optimizer.minimize(tf.reduce_sum(weights) * (rank + 1.0), global_step=step)
longest = 0.0
with v1.train.MonitoredTrainingSession(hooks=[hvd.BroadcastGlobalVariablesHook(0)]) as session:
    for _ in range(100):
        begin = time.monotonic()
        _, value = session.run([train, step])
        longest = max(longest, time.monotonic() - begin)
    final = session.run(weights)
assert np.allclose(final, -100 * (size + 1) / 2), final
say("right", longest)
""",
        seconds=150,
        HOROVOD_STALL_CHECK_TIME_SECONDS="10",
    )
    assert job.status == 0, job
    for rank in range(ranks):
        assert not job.lacks(rank, "right"), job
    assert "missing ranks" not in job.errors, job


def test_plain_python_is_a_job_of_one() -> None:
    job = Job(
        [sys.executable, "-c", PROLOGUE + "say(size, hvd.local_size(), hvd.allreduce(tf.ones([2])).numpy())"],
        [],
        60,
        {},
    )
    assert job.output == "rank 0: 1 1 [1. 1.]\n", job
    assert job.status == 0, job
