"""T13: children that are forked after init(), and what becomes of them and of their parents."""

from __future__ import annotations

import pytest

from fault_jobs import PROMPT, at_most, gives, launch_fault, says, succeeds
from launching import needs_mpirun

pytestmark = needs_mpirun

# Children that leave the library alone: what they do, and their status.
CHILDREN = {
    "np.dot(np.ones((50, 50)), np.ones((50, 50))).sum()": 0,
    "sys.exit(7)": 7,
    "1 / 0": 1,
}
FORKED = """
import signal
def forked(work):
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # ends one that hangs
        exec(work, globals())
        sys.exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

hvd.allreduce(tf.ones([3]), average=False)
"""
PARENT = """
say("parent", hvd.allreduce(tf.ones([3]), average=False).numpy())
say("fault at", time.time())
"""


def test_t13_children_that_leave_the_library_alone_end() -> None:
    job = launch_fault(2, FORKED + f"say('children', [forked(work) for work in {list(CHILDREN)!r}])\n" + PARENT)
    succeeds(job)
    at_most(job, job.after_fault, PROMPT)
    for rank in range(2):
        gives(job, rank, f"children {list(CHILDREN.values())}", "parent [2. 2. 2.]")


# No tf.function: TensorFlow waits there for threads of its own, which a child does not have either.
CALLS = {
    "question": "hvd.size()",
    "collective": "hvd.allreduce(tf.ones([3]), average=False)",
    "init": "hvd.init()",
}


@pytest.mark.parametrize("call", CALLS)
def test_t13_child_that_uses_the_library_is_told(call: str) -> None:
    child = f"""
try:
    {CALLS[call]}
except Exception as error:
    say("in the child:", error)
os._exit(0)
"""
    job = launch_fault(2, FORKED + f"say('child', forked({child!r}))\n" + PARENT)
    succeeds(job)
    for rank in range(2):
        says(job, rank, "in the child:", "forked after hvd.init()")
        gives(job, rank, "child 0", "parent [2. 2. 2.]")


def test_t13_workers_of_a_data_loader_do_their_work() -> None:
    job = launch_fault(
        2,
        """
import multiprocessing, subprocess
hvd.allreduce(tf.ones([3]), average=False)
with multiprocessing.get_context("fork").Pool(2) as pool:
    say("pool", pool.map(abs, [-1, -2]))
say("command", subprocess.run(["echo", "done"], capture_output=True, text=True).stdout)
"""
        + PARENT,
    )
    succeeds(job)
    for rank in range(2):
        gives(job, rank, "pool [1, 2]", "command done", "parent [2. 2. 2.]")
