"""Times TensorFlow's own way: MultiWorkerMirroredStrategy between workers on this host, which it starts itself.

    python benchmarks/tf_distribute.py [--ranks 2] [--cases 1x4,resnet50,1000x1KiB] [--limit 120]

One JSON line for each case, as benchmarks/collectives.py writes them: `time_us` of a step that sums the values of
variables over all workers, the slowest worker's, the median of five repetitions; `wrong` counts elements. After `limit`
seconds the workers are ended and the exit status is not 0.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cases import Case, elements_of, parse_cases
from figures import algorithm_bandwidth, bus_bandwidth, digits, median_of_slowest

REPETITIONS = 5
WARM_UP = 3
DEFAULT_CASES = "1x4,resnet50,1000x1KiB"


def free_ports(count: int) -> list[int]:
    """Ports of the loopback device that nobody listens on; all are held until all are found."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def calls_of(case: Case, seconds: float) -> int:
    """Calls in a repetition, by a guess: workers cannot agree on what they have measured."""
    guess = 2e-3 + 20e-6 * len(case.shapes) + 5e-9 * case.bytes
    return max(1, min(100, int(seconds / REPETITIONS / guess)))


def make_step(tf: Any, strategy: Any, variables: list[Any]) -> Any:
    """A function that sums all variables over all workers; its results are this worker's."""

    @tf.function  # type: ignore[untyped-decorator]
    def step() -> Any:
        def replica() -> Any:
            values = [variable.read_value() * 1.0 for variable in variables]
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, values)

        return strategy.run(replica)

    return step


def measure(tf: Any, strategy: Any, case: Case, rank: int, ranks: int, seconds: float) -> dict[str, Any]:
    """This worker's part of a line."""
    import numpy as np

    from values import expected, whole

    sizes = [elements_of(shape) for shape in case.shapes]
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(shape), trainable=False) for shape in case.shapes]
    for tensor, variable in enumerate(variables):
        value = whole(rank, tensor, sizes[tensor], 0).astype(np.float32).reshape(case.shapes[tensor])
        # Assigned to this worker's own copy: the strategy would want the same everywhere.
        strategy.experimental_local_results(variable)[0].assign(value)
    step = make_step(tf, strategy, variables)
    wrong = 0
    for tensor, result in enumerate(step()):
        right = expected("allreduce", [whole(other, tensor, sizes[tensor], 0) for other in range(ranks)], 0)
        wrong += int(np.count_nonzero(result.numpy().reshape(-1) != right))
    for _ in range(WARM_UP):
        step()
    calls = calls_of(case, seconds)
    repetitions = []
    for _ in range(REPETITIONS):
        begin = time.perf_counter()
        for _ in range(calls):
            results = step()
        results[0].numpy()
        repetitions.append((time.perf_counter() - begin) / calls)
    return {"repetitions": repetitions, "wrong": wrong}


def work(arguments: argparse.Namespace, cases: list[Case]) -> None:
    """One worker: a line for each case, for the process that has started it."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    for case in cases:
        part = measure(tf, strategy, case, arguments.worker, arguments.ranks, arguments.seconds)
        print(json.dumps({**part, "tensorflow": tf.__version__}), flush=True)


def start(rank: int, ports: list[int], folder: Path) -> subprocess.Popen[bytes]:
    """A worker in a process group of its own, with the arguments of this process."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}}),
    }
    command = [sys.executable, __file__, *sys.argv[1:], "--worker", str(rank)]
    with (folder / f"{rank}.out").open("wb") as output, (folder / f"{rank}.err").open("wb") as errors:
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
        )


def wait(workers: list[subprocess.Popen[bytes]], limit: float) -> bool:
    """Whether all workers end well in time; the first that fails, or the limit, ends the others."""
    until = time.monotonic() + limit
    try:
        while any(worker.poll() is None for worker in workers):
            if time.monotonic() > until or any(worker.poll() not in (None, 0) for worker in workers):
                return False
            time.sleep(0.05)
        return all(worker.returncode == 0 for worker in workers)
    finally:
        for worker in workers:
            if worker.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()


def lines_of(path: Path) -> list[dict[str, Any]]:
    """What a worker has measured so far."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{") and line.endswith("}")]


def say(case: Case, parts: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    """The line of a case, of all workers' parts."""
    seconds = median_of_slowest([part["repetitions"] for part in parts])
    line = {
        "benchmark": "tf_distribute",
        "module": "tf.distribute",
        "tensorflow": parts[0]["tensorflow"],
        "threads": [arguments.threads, 2],
        "ranks": arguments.ranks,
        "kind": "allreduce",
        "case": case.name,
        "dtype": case.dtype,
        "bytes": case.bytes,
        "count": len(case.shapes),
        "time_us": round(seconds * 1e6, 2),
        "algbw": digits(algorithm_bandwidth("allreduce", case.bytes, arguments.ranks, seconds)),
        "busbw": digits(bus_bandwidth("allreduce", case.bytes, arguments.ranks, seconds)),
        "wrong": sum(part["wrong"] for part in parts),
    }
    print(json.dumps(line), flush=True)


def lead(arguments: argparse.Namespace, cases: list[Case]) -> int:
    """Starts the workers and says what all have measured; the exit status."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ports = free_ports(arguments.ranks)
        good = wait([start(rank, ports, folder) for rank in range(arguments.ranks)], arguments.limit)
        measured = [lines_of(folder / f"{rank}.out") for rank in range(arguments.ranks)]
        for case, *parts in zip(cases, *measured):
            say(case, parts, arguments)
        if not good:
            for rank in range(arguments.ranks):
                text = (folder / f"{rank}.err").read_text(errors="replace")
                print(f"worker {rank} failed or was ended:", *text.splitlines()[-15:], sep="\n", file=sys.stderr)
    return 0 if good else 1


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2, help="workers (default: %(default)s)")
    parser.add_argument("--cases", default=DEFAULT_CASES, help="resnet50, COUNTxSIZE (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.5, help="about, for each case (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="inside one operation (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for all (default: %(default)s)")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    try:
        cases = parse_cases(arguments.cases, "", "1", "float32")
    except ValueError as error:
        parser.error(str(error))
    if arguments.worker is None:
        return lead(arguments, cases)
    work(arguments, cases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
