"""A rank that is killed: in the middle of a large reduction, and while the others wait for it to begin one."""

from __future__ import annotations

from pathlib import Path

import pytest

from launching import GRAPH_MODE, PATIENT, launch_script, launcher_is_open_mpi, needs_mpirun

pytestmark = needs_mpirun

VICTIM = 1
KILLED = (
    GRAPH_MODE
    + f"""
import signal, threading
signal.signal(signal.SIGTERM, signal.SIG_IGN)
total = hvd.allreduce(tf.Variable(tf.ones([16 << 20])), average=False)
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    session.run(total.op)
    if rank == {VICTIM}:
        threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGKILL]).start()
        %s
    # As the timer of the other rank: from here on it may be dead.
    begin = time.monotonic()
    try:
        while True:
            session.run(total.op)
    except Exception as error:
        say("%%.1f" %% (time.monotonic() - begin), type(error).__name__, error)
os._exit(3)
"""
)
AT_WORK = KILLED % "pass"
ABSENT = KILLED % "time.sleep(60)"


def shared_memory() -> set[str]:
    return {entry.name for entry in Path("/dev/shm").iterdir() if "horovod" in entry.name.lower()}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (AT_WORK, (" ended in the middle of an operation over shared memory", " ended without hvd.shutdown()")),
        (ABSENT, (" ended without hvd.shutdown() while others wait for it",)),
    ],
    ids=["at work", "absent"],
)
def test_the_others_name_it_within_seconds_and_the_next_job_works(script: str, said: tuple[str, ...]) -> None:
    before = shared_memory()
    job = launch_script(3, script, seconds=120, **PATIENT)
    assert job.status != 0
    for rank in {0, 1, 2} - {VICTIM}:
        text = job.of(rank)
        if not text and not launcher_is_open_mpi():
            continue  # killed by the launcher before it could say a word
        assert any(f"rank {VICTIM}{what}" in text for what in said), job
        assert float(text.split(": ", 1)[1].split()[0]) < 5.5, text
    assert shared_memory() == before
    after = launch_script(3, "say(hvd.allreduce(tf.ones([3]), average=False).numpy().tolist())", seconds=120)
    assert after.status == 0, after
    assert all("[3.0, 3.0, 3.0]" in after.of(rank) for rank in range(3)), after
