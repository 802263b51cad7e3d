"""Processes that are forked after the library has used MPI: they end, and their parents' job is unharmed."""

from __future__ import annotations

from launching import launch_script, needs_mpirun

pytestmark = needs_mpirun


def test_child_forked_after_shutdown_leaves_its_parents_mpi_alone() -> None:
    job = launch_script(
        2,
        """
import signal
hvd.shutdown()
def forked(work):
    '''The exit status of a child that does this; a signal ends one that hangs.'''
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        work()
        sys.exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def init():
    try:
        hvd.init()
    except ValueError as error:
        assert "is a fork" in str(error), error
    else:
        os._exit(9)

assert forked(lambda: None) == 7
assert forked(init) == 7
hvd.init()
say(hvd.allreduce(tf.ones([2]), average=False).numpy())
""",
    )
    assert job.status == 0, job
    for rank in range(2):
        assert job.of(rank) == f"rank {rank}: [2. 2.]", job
