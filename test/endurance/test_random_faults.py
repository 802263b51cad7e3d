"""A job of training that is hit at a random moment: its end is as documented, and nothing is left of it."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Final

import pytest

from fault_jobs import FaultError, at_most, ends_promptly, fails, launch_fault, succeeds
from launching import GRAPH_MODE, PATIENT, needs_mpirun

pytestmark = needs_mpirun

RANKS: Final = 3
TIMES: Final = int(os.environ.get("RANDOM_FAULTS", "50"))
STOPPED_SECONDS: Final = 20
TRAINING: Final = (
    GRAPH_MODE
    + """
import random, signal, subprocess, threading
VICTIM, KIND, MOMENT, STOPPED = {victim}, {kind!r}, {moment}, {stopped}
# The launcher ends the others as soon as the first is gone, perhaps before they have said what they were told.
signal.signal(signal.SIGTERM, signal.SIG_IGN)

def hit():
    say("fault at", time.time())
    if KIND == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif KIND == "stop":
        subprocess.Popen(["sh", "-c", f"sleep {{STOPPED}}; kill -CONT {{os.getpid()}}"])
        os.kill(os.getpid(), signal.SIGSTOP)

x = v1.placeholder(tf.float32, (None, 32))
hidden = x
for i in range(4):
    weight = v1.get_variable(f"w{{i}}", (32, 32), initializer=v1.glorot_uniform_initializer(seed=i))
    hidden = tf.nn.tanh(hidden @ weight)
big = v1.get_variable("big", (300000,), initializer=v1.zeros_initializer())
loss = tf.reduce_mean(tf.square(hidden - tf.reverse(x, [1]))) + 1e-6 * tf.reduce_sum(tf.square(big - 1.0))
optimizer = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(0.1, 0.9))
step = optimizer.minimize(loss, v1.train.get_or_create_global_step())
checksum = tf.reduce_sum(big) + tf.reduce_sum(weight)
numbers = np.random.RandomState(rank)
try:
    with v1.train.MonitoredTrainingSession(hooks=[hvd.BroadcastGlobalVariablesHook(0)]) as session:
        begin = time.time()
        if rank == VICTIM and KIND != "raise":
            threading.Timer(MOMENT, hit).start()
        for i in range(1500):
            if rank == VICTIM and KIND == "raise" and time.time() - begin > MOMENT:
                hit()
                raise RuntimeError("boom-17")
            session.run(step, {{x: numbers.uniform(-1, 1, (16, 32)).astype(np.float32)}})
            time.sleep(0.001)
        say("weights", float(session.run(checksum)))
except Exception as error:
    say("told", type(error).__name__, error)
    raise
"""
)


def files(folders: list[Path]) -> set[str]:
    """What there is but for TensorFlow's own."""
    found = [path for folder in folders for path in folder.iterdir()]
    return {str(path) for path in found if not path.name.startswith("__autograph_generated")}


def in_use(paths: set[str]) -> set[str]:
    """Those that a living process has mapped: another job's on this machine."""
    used: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            lines = maps.read_text().splitlines()
        except OSError:
            continue  # has ended meanwhile
        used.update(path for path in paths if any(line.endswith(path) for line in lines))
    return used


@pytest.mark.parametrize("number", range(TIMES))
def test_job_that_is_hit_at_a_random_moment(number: int, tmp_path: Path) -> None:
    dice = random.Random(number)
    kind = ["kill", "stop", "raise"][number % 3]
    victim, moment = dice.randrange(RANKS), dice.uniform(0, 2)
    script = TRAINING.format(victim=victim, kind=kind, moment=moment, stopped=STOPPED_SECONDS)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    folders = [temporary, Path("/dev/shm")]
    before = files(folders)
    job = launch_fault(RANKS, script, TMPDIR=str(temporary), **PATIENT)
    if kind == "stop":
        succeeds(job)
        weights = {job.of(rank).rpartition("weights ")[2] for rank in range(RANKS)}
        if len(weights) != 1 or not next(iter(weights)):
            raise FaultError("weights differ", job)
        at_most(job, job.after_fault, STOPPED_SECONDS + 40)
    else:
        fails(job)
        ends_promptly(job)
        cause = "boom-17" if kind == "raise" else "ended"
        for rank in set(range(RANKS)) - {victim}:
            if job.lacks(rank, "told", f"rank {victim}", cause):
                raise FaultError("wrong text", job)
    left = files(folders) - before
    if left := left - in_use(left):
        raise FaultError(f"left behind {sorted(left)}", job)
