"""`BroadcastGlobalVariablesHook` among sessions, savers and other hooks; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod_tf.tensorflow as hvd
from tensorflow_support import RANK, SIZE, assert_same, several_ranks, v1, values


def variable_of_rank(name: str, offset: float = 0.0) -> Any:
    """A variable that starts with other values on every rank."""
    return v1.get_variable(name, initializer=values((5,), tf.float32) + np.float32(offset))


def of_root(root: int, offset: float = 0.0) -> Any:
    return values((5,), tf.float32, root) + np.float32(offset)


def test_what_rank_0_has_restored_wins_over_what_others_have_initialized(tmp_path: Path) -> None:
    folder = str(tmp_path) if RANK == 0 else None  # only one rank has a checkpoint, as users do it
    for start in (0, 3):
        with tf.Graph().as_default():
            variable = variable_of_rank("v", offset=100.0 * start)
            step = v1.train.get_or_create_global_step()
            count = v1.assign_add(step, 1)
            add = v1.assign_add(variable, tf.ones(5))
            hooks = [hvd.BroadcastGlobalVariablesHook(0)]
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=folder, hooks=hooks, save_checkpoint_steps=1000, log_step_count_steps=0
            ) as session:
                assert session.run(step) == start
                assert_same(session.run(variable), of_root(0, start))
                for _ in range(3):
                    session.run([count, add])


def test_hook_gives_what_a_saver_restored_on_the_root_only(tmp_path: Path) -> None:
    root = SIZE - 1
    with tf.Graph().as_default(), v1.Session() as session:
        saved = variable_of_rank("v", offset=50.0)
        session.run(saved.initializer)
        path = v1.train.Saver([saved]).save(session, str(tmp_path / "model"))

    class Restore(v1.train.SessionRunHook):
        """As user code does: sessions run hooks in their order."""

        def begin(self) -> None:
            self.saver = v1.train.Saver()

        def after_create_session(self, session: Any, coord: Any) -> None:
            if root == RANK:
                self.saver.restore(session, path)

    with tf.Graph().as_default():
        variable = variable_of_rank("v")
        with v1.train.MonitoredSession(hooks=[Restore(), hvd.BroadcastGlobalVariablesHook(root)]) as session:
            assert_same(session.run(variable), of_root(root, 50.0))


def test_variable_created_after_the_hook_but_before_the_session() -> None:
    with tf.Graph().as_default():
        hook = hvd.BroadcastGlobalVariablesHook(0)
        late = variable_of_rank("late")
        with v1.train.MonitoredSession(hooks=[hook]) as session:
            assert_same(session.run(late), of_root(0))
        # The same graph and hook again, with one more variable, of which TensorFlow's own initializer knows nothing.
        later = variable_of_rank("later")
        scaffold = v1.train.Scaffold(init_op=v1.global_variables_initializer())
        with v1.train.MonitoredSession(v1.train.ChiefSessionCreator(scaffold), hooks=[hook]) as session:
            assert_same(session.run(late), of_root(0))
            assert_same(session.run(later), of_root(0))


class Creator(v1.train.SessionRunHook):
    """Two variables that have one tensor for a start."""

    def begin(self) -> None:
        start = tf.zeros(5)
        self.variables = [v1.Variable(start, name=f"made_by_a_hook_{i}") for i in range(2)]

    def restore(self, scaffold: Any, session: Any) -> None:
        """What a checkpoint has for them is different."""
        for i, variable in enumerate(self.variables):
            start = variable.initializer.inputs[1]
            session.run(variable.initializer, {start: of_root(RANK, 10.0 * i)})


@pytest.mark.parametrize("ours_first", [True, False], ids=["ours_first", "ours_last"])
def test_variables_of_another_hook_with_one_start(ours_first: bool) -> None:
    with tf.Graph().as_default():
        present = variable_of_rank("present")
        creator = Creator()
        hooks = [hvd.BroadcastGlobalVariablesHook(0), creator]
        sessions = v1.train.ChiefSessionCreator(v1.train.Scaffold(init_fn=creator.restore))
        with v1.train.MonitoredSession(sessions, hooks=hooks if ours_first else hooks[::-1]) as session:
            assert_same(session.run(present), of_root(0))
            for i, variable in enumerate(creator.variables):
                assert_same(session.run(variable), of_root(0, 10.0 * i))


def test_variable_created_after_the_session_is_an_error() -> None:
    with tf.Graph().as_default():
        variable = variable_of_rank("v")
        with v1.train.MonitoredSession(hooks=[hvd.BroadcastGlobalVariablesHook(0)]) as session:
            with pytest.raises(RuntimeError, match="finalized"):
                variable_of_rank("too_late")
            assert_same(session.run(variable), of_root(0))


def test_root_of_the_hook_and_device() -> None:
    for root in range(SIZE):
        with tf.Graph().as_default():
            variable = variable_of_rank("v")
            hook = hvd.BroadcastGlobalVariablesHook(root, device="/cpu:0")
            with v1.train.MonitoredSession(hooks=[hook]) as session:
                assert_same(session.run(variable), of_root(root))
            assert "CPU:0" in hook.bcast_op.device


@several_ranks
def test_root_that_differs_between_ranks_is_an_error_everywhere() -> None:
    with tf.Graph().as_default():
        variable_of_rank("v")
        hook = hvd.BroadcastGlobalVariablesHook(1 if RANK == SIZE - 1 else 0)
        with pytest.raises(tf.errors.FailedPreconditionError, match=r"root rank 0.*root rank 1"):
            v1.train.MonitoredSession(hooks=[hook])
