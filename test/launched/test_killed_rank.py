"""A rank that is killed in the middle of a large reduction."""

from __future__ import annotations

from pathlib import Path

from launching import GRAPH_MODE, launch_script, needs_mpirun

pytestmark = needs_mpirun

VICTIM = 1
# The launcher ends the other ranks too; what they say before is what is tested.
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
    # As the timer of the other rank: from here on it may be dead.
    begin = time.monotonic()
    try:
        while True:
            session.run(total.op)
    except Exception as error:
        say("%.1f" % (time.monotonic() - begin), type(error).__name__, error)
os._exit(3)
"""
)


def shared_memory() -> set[str]:
    return {entry.name for entry in Path("/dev/shm").iterdir() if "horovod" in entry.name.lower()}


def test_the_others_name_it_within_seconds_and_the_next_job_works() -> None:
    before = shared_memory()
    job = launch_script(3, KILLED, seconds=120)
    assert job.status != 0
    told = [job.of(rank) for rank in range(3) if rank != VICTIM]
    for text in told:
        seconds = float(text.split(": ", 1)[1].split()[0])
        assert seconds < 5.5, text
        assert f"rank {VICTIM} ended in the middle of an operation over shared memory" in text
    assert shared_memory() == before
    after = launch_script(3, "say(hvd.allreduce(tf.ones([3]), average=False).numpy().tolist())", seconds=120)
    assert after.status == 0, after
    assert all("[3.0, 3.0, 3.0]" in after.of(rank) for rank in range(3)), after
