"""T39, T45, T46, T47: processor time, memory, large counts, and the timeline of a job that is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fault_jobs import LIMIT, FaultError, fails, gives, launch_fault, seconds_said, succeeds
from launching import launch_script, needs_mpirun

pytestmark = needs_mpirun

IDLE = 5  # seconds


def test_t39_idle_library_uses_no_processor() -> None:
    """Less than a hundredth of a core, TensorFlow's own threads with it."""
    job = launch_script(
        2,
        f"""
hvd.allreduce(tf.ones([3]))
time.sleep(1)
before = time.process_time()
time.sleep({IDLE})
say("used", "%.4f" % (time.process_time() - before))
hvd.allreduce(tf.ones([3]))
""",
        seconds=LIMIT,
    )
    succeeds(job)
    for rank in range(2):
        used = seconds_said(job, rank, "used")
        if used > 0.01 * IDLE:
            raise FaultError(f"uses {100 * used / IDLE:.1f} %", job)


def test_t39_processors_that_a_rank_may_use_are_left_as_they_were() -> None:
    job = launch_script(
        2, "hvd.allreduce(tf.ones([3]))\nsay('cores', len(os.sched_getaffinity(0)) == os.cpu_count())\n", seconds=LIMIT
    )
    succeeds(job)
    for rank in range(2):
        gives(job, rank, "cores True")


# What a step does, and whose memory must not grow.
STEPS = """
def eager(step):
    hvd.allreduce(values[0], average=False)
    hvd.grouped_allreduce(values)
    hvd.allreduce(tf.ones([1 + step % 100]))
    hvd.allgather(values[0][: step % 7], name="rows")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(hvd.allreduce(weight * values[0]))
    weight.assign_sub(0.001 * tape.gradient(loss, weight))
def graph(step):
    session.run(total)
"""


@pytest.mark.parametrize("kind", ["eager", "graph"])
def test_t45_memory_does_not_grow_over_3000_steps(kind: str) -> None:
    job = launch_script(
        2,
        """
import gc
def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2 ** 20
values = [tf.ones([1000]) * (rank + 1.0 + i) for i in range(3)]
weight = tf.Variable(tf.ones([1000]))
with tf.Graph().as_default():
    total = hvd.allreduce(tf.ones([1000]), average=False)
    session = v1.Session()
"""
        + STEPS
        + f"""
for step in range(1000):
    {kind}(step)
before = resident()
for step in range(3000):
    {kind}(step)
say("grown", "%.2f" % max(0.0, resident() - before))
""",
        seconds=2 * LIMIT,
    )
    succeeds(job)
    for rank in range(2):
        grown = seconds_said(job, rank, "grown")
        if grown > 10:
            raise FaultError(f"grows {grown:.0f} MiB", job)


@pytest.mark.parametrize("path", ["shared_memory", "mpi"])
def test_t46_tensors_that_do_not_fit_into_one_piece(path: str) -> None:
    variables = {"HOROVOD_TF_SHM_CHUNK_BYTES": "4096"} if path == "shared_memory" else {"HOROVOD_TF_SHM_DISABLE": "1"}
    job = launch_script(
        2,
        """
for count in (1023, 1024, 1025, 2501, 100003):
    mine = np.arange(count, dtype=np.float32) + rank
    base = np.arange(count, dtype=np.float32)
    assert np.array_equal(hvd.allreduce(mine, average=False).numpy(), 2 * base + 1), count
    assert np.array_equal(hvd.broadcast(mine, 1, name="b").numpy(), base + 1), count
    assert np.array_equal(hvd.allgather(mine, name="g").numpy(), np.concatenate([base, base + 1])), count
say("right")
""",
        seconds=LIMIT,
        **variables,
    )
    succeeds(job)
    for rank in range(2):
        gives(job, rank, "right")


@pytest.mark.parametrize("end", ["killed", "exception", "good"])
def test_t47_timeline_is_json_however_the_job_ends(end: str, tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    endings = {
        "killed": "import signal; os.kill(os.getpid(), signal.SIGKILL)",
        "exception": "raise ValueError('boom-17')",
        "good": "pass",
    }
    job = launch_fault(
        2,
        f"""
for i in range(200):
    hvd.allreduce(tf.ones([100]))
time.sleep(1)
if rank == 0:
    {endings[end]}
""",
        HOROVOD_TIMELINE=str(path),
    )
    (succeeds if end == "good" else fails)(job)
    try:
        events = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise FaultError(f"no JSON ({error})", job) from error
    if len(events) < 200:
        raise FaultError(f"{len(events)} events", job)
