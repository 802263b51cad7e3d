"""Steps that end early on one rank: no rank hangs, and what the others are told names the rank and the reason.

Each test starts its own job.
"""

from __future__ import annotations

from launching import GRAPH_MODE, Job, launch_script, needs_mpirun

pytestmark = needs_mpirun

HELPERS = (
    GRAPH_MODE
    + """
def failing_after(seconds):
    '''An operation that fails, when others of its step have been started.'''
    def fail():
        time.sleep(seconds)
        raise ValueError("a bad batch")
    return v1.py_func(fail, [], tf.float32)

def pipeline(elements):
    '''The next of so many elements.'''
    return v1.data.make_one_shot_iterator(tf.data.Dataset.range(elements)).get_next()
"""
)


def run(ranks: int, script: str, grace: str = "4") -> Job:
    return launch_script(ranks, HELPERS + script, HOROVOD_TF_WITHDRAWAL_GRACE_SECONDS=grace)


ENDS_EARLY = """
value = hvd.allreduce(tf.cast(pipeline(3 if rank == 1 else 100), tf.float32), average=False)
with v1.Session() as session:
    for step in range(100):
        try:
            assert session.run(value) == step * size
        except tf.errors.OutOfRangeError:
            say("out of data after", step)
            raise
        except tf.errors.UnknownError as error:
            say("told", type(error).__name__, error.message)
            break
"""


def test_pipeline_that_ends_early_ends_the_others_with_the_exception() -> None:
    job = run(2, ENDS_EARLY)
    assert "out of data after 3" in job.of(1), job
    assert not job.lacks(0, "told UnknownError", "rank 1", "its program ended with OutOfRangeError"), job


def test_monitored_session_that_ends_early_ends_the_others() -> None:
    job = run(
        3,
        """
value = hvd.allreduce(tf.cast(pipeline(3 if rank == 1 else 100), tf.float32), average=False)
v1.train.get_or_create_global_step()
with v1.train.MonitoredTrainingSession(hooks=[hvd.BroadcastGlobalVariablesHook(0)]) as session:
    while not session.should_stop():
        try:
            session.run(value)
        except tf.errors.UnknownError as error:
            say("told", type(error).__name__, error.message)
            break
say("the end")
""",
    )
    for rank in (0, 2):
        assert not job.lacks(rank, "told UnknownError", "rank 1", "its program has ended"), job
    assert "told" not in job.of(1), job
    assert not job.lacks(1, "the end"), job
    assert job.status == 0, job


# Rank 1 lives on after its step: nobody but the library can tell rank 0.
CANCELLED = """
waits = hvd.allreduce(tf.ones([2]), average=False)
good = hvd.allreduce(tf.ones([2]) * (rank + 1), average=False)
bad = failing_after(0.5)
with v1.Session() as session:
    begin = time.monotonic()
    if rank == 1:
        try:
            session.run([waits, bad])
        except tf.errors.OpError as error:
            say("failed", "a bad batch" in str(error), "after", time.monotonic() - begin)
    elif rank == 0:
        try:
            session.run(waits)
        except tf.errors.UnknownError as error:
            say("told after", time.monotonic() - begin, error.message)
    time.sleep(max(0, begin + 6 - time.monotonic()))
    say("good", session.run(good))
"""


def test_cancelled_step_is_not_held_up_and_its_peers_are_told() -> None:
    job = run(3, CANCELLED, grace="1")
    assert job.status == 0, job
    assert "failed True" in job.of(1), job
    assert float(job.of(1).split("after ")[1].split()[0]) < 3, job
    assert not job.lacks(0, "told after", "rank 1", "its step was cancelled"), job
    for rank in range(3):
        assert "good [6. 6.]" in job.of(rank), job


def test_time_limit_of_a_run_ends_it_and_the_next_run_is_right() -> None:
    job = run(
        2,
        """
total = hvd.allreduce(tf.ones([3]), average=False)
with v1.Session() as session:
    if rank == 0:
        begin = time.monotonic()
        try:
            session.run(total, options=v1.RunOptions(timeout_in_ms=500))
        except tf.errors.DeadlineExceededError:
            say("its time was over after", time.monotonic() - begin)
        time.sleep(1)
    else:
        time.sleep(3)
    say("then", session.run(total))
""",
    )
    assert job.status == 0, job
    assert 0.4 < float(job.of(0).split("over after ")[1].split()[0]) < 3, job
    for rank in range(2):
        assert "then [2. 2. 2.]" in job.of(rank), job


def test_all_ranks_out_of_data_together_is_nobodys_error() -> None:
    """Three epochs; one collective of each step does not need the data, so that it is submitted and cancelled.

    Between epochs ranks meet, or one could ask for it again while another one's last step is still to be cancelled.
    """
    job = run(
        3,
        """
iterator = v1.data.make_initializable_iterator(tf.data.Dataset.range(5))
data = hvd.allreduce(tf.cast(iterator.get_next(), tf.float32), average=False)
free = hvd.allreduce(tf.constant(rank + 1.0), average=False)
meet = hvd.allreduce(tf.constant(0.0), name="meet")
with v1.Session() as session:
    for epoch in range(3):
        session.run(iterator.initializer)
        steps = 0
        while True:
            try:
                assert session.run([data, free]) == [steps * size, size * (size + 1) / 2]
            except tf.errors.OutOfRangeError:
                break
            steps += 1
        session.run(meet)
        say("epoch", epoch, "steps", steps)
""",
        grace="60",  # however late one of them gets there
    )
    assert job.status == 0, job
    for rank in range(3):
        assert job.of(rank).count("steps 5") == 3, job


def test_closed_session_ends_what_waits_in_it() -> None:
    job = run(
        2,
        """
import threading
total = hvd.allreduce(tf.ones([3]), average=False)
if rank == 0:
    session = v1.Session()
    def run():
        try:
            session.run(total)
        except tf.errors.OpError as error:
            say("ended with", type(error).__name__)
    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(1)
    session.close()
    thread.join(10)
    say("alive", thread.is_alive())
""",
    )
    assert "alive False" in job.of(0), job


def test_who_retries_a_failed_step_gets_its_result() -> None:
    job = run(
        2,
        """
waits = hvd.allreduce(tf.ones([2]), average=False)
bad = failing_after(0.3)
with v1.Session() as session:
    if rank == 0:
        try:
            session.run([waits, bad])
        except tf.errors.OpError as error:
            say("failed", "a bad batch" in str(error))
    else:
        time.sleep(1)
    say("then", session.run(waits))
""",
    )
    assert job.status == 0, job
    assert "failed True" in job.of(0), job
    for rank in range(2):
        assert "then [2. 2.]" in job.of(rank), job


# Rank 1 asks for one of the two tensors only, so that the group is partly answered when its step is cancelled.
PART_OF_A_GROUP = """
a, b = tf.identity(tf.ones([2]) * (rank + 1), name="a"), tf.identity(tf.ones([3]) * (rank + 1), name="b")
good = hvd.allreduce(tf.ones([2]) * (rank + 1), average=False)
asked = hvd.grouped_allreduce([a, b], average=False) if rank == 0 else [hvd.allreduce(a, average=False)]
bad = failing_after(1.5)
with v1.Session() as session:
    begin = time.monotonic()
    if rank == 0:
        try:
            session.run([asked, bad])
        except tf.errors.OpError as error:
            say("failed", "a bad batch" in str(error), "after", time.monotonic() - begin)
    else:
        say("part", session.run(asked[0]))
    say("good", session.run(good))
    say("then", session.run(hvd.grouped_allreduce([a, b], average=False, name="then")))
"""


def test_cancelled_step_ends_a_group_that_is_partly_answered() -> None:
    job = run(2, PART_OF_A_GROUP)
    assert job.status == 0, job
    assert "failed True" in job.of(0), job
    assert float(job.of(0).split("after ")[1].split()[0]) < 4, job
    assert "part [3. 3.]" in job.of(1), job
    for rank in range(2):
        assert "good [3. 3.]" in job.of(rank), job
        assert "then [array([3., 3.], dtype=float32), array([3., 3., 3.], dtype=float32)]" in job.of(rank), job
