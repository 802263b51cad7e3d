"""The job that a benchmark is one rank of: the module that is measured, time over all ranks, and lines of JSON.

Imports TensorFlow for graph mode. The ranks of a job meet through mpi4py, so that what is measured does not measure
itself.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import time
from collections.abc import Callable
from typing import Any

# TensorFlow says much when it starts; what goes wrong comes as an exception.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow

from figures import calls_for, median_of_slowest

tf: Any = tensorflow
v1: Any = tf.compat.v1
REPETITIONS = 5
WARM_UP = 3
INTER_THREADS = 2  # operations that wait for each other must not be alone on a thread


def sum_arguments(allreduce: Callable[..., Any], module: Any) -> dict[str, Any]:
    """How this module is told to add: by `op`, or by the older `average`."""
    if "op" in inspect.signature(allreduce).parameters and hasattr(module, "Sum"):
        return {"op": module.Sum}
    return {"average": False}


def version_of(module: str) -> str:
    """Of the package that the module is in."""
    package = importlib.import_module(module.partition(".")[0])
    return str(getattr(package, "__version__", "unknown"))


class World:
    """All ranks of the job, and the module under test, which has been initialised."""

    def __init__(self, module: str, threads: int) -> None:
        """Starts the module, or only MPI if the module is `none`; `threads` work inside one operation."""
        v1.disable_eager_execution()
        self.module = module
        self.threads = threads
        self.hvd: Any = None
        if module != "none":
            self.hvd = importlib.import_module(module)
            self.hvd.init()
        # After init(): a module may want to start MPI in its own way.
        from mpi4py import MPI

        self.mpi = MPI
        self.comm: Any = MPI.COMM_WORLD
        self.rank, self.size = int(self.comm.rank), int(self.comm.size)
        self._said = {
            "tensorflow": tf.__version__,
            "module_version": "" if module == "none" else version_of(module),
            "mpi": MPI.Get_library_version().splitlines()[0].split(",")[0].strip(),
            "threads": [threads, INTER_THREADS],
            "ranks": self.size,
        }

    def session(self) -> Any:
        """A session of the default graph."""
        config = v1.ConfigProto(intra_op_parallelism_threads=self.threads, inter_op_parallelism_threads=INTER_THREADS)
        return v1.Session(config=config)

    def allreduce(self, tensor: Any) -> Any:
        """The module's sum over all ranks."""
        return self.hvd.allreduce(tensor, **sum_arguments(self.hvd.allreduce, self.hvd))

    def seconds(self, call: Callable[[], Any], seconds: float) -> float:
        """Of one call: the slowest rank's, the median of REPETITIONS that take about `seconds` together."""
        for _ in range(WARM_UP):
            call()
        once = [self._timed(call, 1) for _ in range(2)]
        calls = calls_for(seconds, REPETITIONS, self.largest(min(once)))
        repetitions = [self._timed(call, calls) for _ in range(REPETITIONS)]
        return median_of_slowest(self.comm.allgather(repetitions))

    def _timed(self, call: Callable[[], Any], calls: int) -> float:
        """Seconds of one of so many calls, back to back as in a training loop."""
        self.comm.Barrier()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - begin) / calls

    def largest(self, value: float) -> float:
        """Over all ranks."""
        return float(self.comm.allreduce(value, op=self.mpi.MAX))

    def total(self, value: int) -> int:
        """Over all ranks."""
        return int(self.comm.allreduce(value, op=self.mpi.SUM))

    def say(self, **what: Any) -> None:
        """One line of JSON, from rank 0."""
        if self.rank == 0:
            print(json.dumps({"module": self.module, **self._said, **what}), flush=True)
