"""Session hooks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod_tf.tensorflow.functions import broadcast_global_variables


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Gives all ranks the root's variables once the session exists, restored or freshly initialized.

    Variables that are created after the hooks' `begin` are not included.
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

    def begin(self) -> None:
        """Builds the operation; again if the default graph is another one than last time."""
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            with tf.device(self.device):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs it."""
        session.run(self.bcast_op)
