"""Session hooks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod_tf.tensorflow.functions import broadcast_global_variables, broadcast_late_variables


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Gives all ranks the root's variables once the session exists, restored or freshly initialized.

    Also those that other hooks create in their `begin`, after this one's.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        """Nothing is built yet.

        Args:
            root_rank: Whose values; the same on all ranks.
            device: Where the operations are placed; '' leaves that to TensorFlow.
        """
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.bcast_op: Any = None
        self._included: set[str] = set()

    def begin(self) -> None:
        """Builds the operation; again if the default graph is another one than last time."""
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            self._included = {variable.name for variable in tf.compat.v1.global_variables()}
            with tf.device(self.device):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs it, and then gives all ranks what has been created since it was built."""
        session.run(self.bcast_op)
        with session.graph.as_default():
            late = [one for one in tf.compat.v1.global_variables() if one.name not in self._included]
        broadcast_late_variables(session, late, self.root_rank)
