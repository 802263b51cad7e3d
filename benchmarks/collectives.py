"""Times collectives in graph mode, beside MPI's own on one buffer of as many bytes.

    mpirun -np 2 python benchmarks/collectives.py [MODULE] [--sizes 4,1MiB] [--counts 1,100] [--cases resnet50] ...

MODULE is anything with the interface of horovod_tf.tensorflow. A step moves `count` tensors, each the value of a
variable. One JSON line for each measurement: `bytes` (all tensors of one rank), `count`, `time_us` (one step: the
slowest rank's, the median of five repetitions), `algbw` and `busbw` (GB/s), `noop_us` (a step that only reads the
variables), `wrong` (elements over all ranks, before and after the timing; -1: not verified), and `roundings` (16-bit
types: the largest error of a sum, 1.0 being one rounding of the exact one).
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from cases import Case, elements_of, parse_cases
from figures import algorithm_bandwidth, bus_bandwidth, digits
from values import expected, fractions, roundings, whole
from world import World, tf, v1

KINDS = ("allreduce", "allgather", "broadcast")
DEFAULT_SIZES = "4,1KiB,64KiB,1MiB,16MiB"
DEFAULT_CASES = "resnet50,1000x1KiB"
ROOT = 0


class Step:
    """A graph with variables, a collective of each of them, and one that only reads them."""

    def __init__(self, world: World, kind: str, case: Case) -> None:
        """Builds it; its session is the default one until `close`.

        Raises:
            TypeError, ValueError: the module has no such collective of this type.
        """
        self.world, self.kind, self.case = world, kind, case
        self.type = getattr(tf, case.dtype)
        with tf.Graph().as_default() as graph:
            self.feeds = [v1.placeholder(self.type, shape) for shape in case.shapes]
            variables = [
                v1.get_variable(f"v{i}", shape, self.type, v1.zeros_initializer(), use_resource=True)
                for i, shape in enumerate(case.shapes)
            ]
            assign = [variable.assign(feed).op for variable, feed in zip(variables, self.feeds)]
            self.assign = tf.group(*assign)
            self.results = [self._collective(variable.read_value()) for variable in variables]
            # Fetched one by one: of what only a group depends on, TensorFlow leaves out what it takes for pure.
            step = [result.op for result in self.results]
            read = [variable.read_value().op for variable in variables]
            self.session = world.session()
            self.session.run(v1.global_variables_initializer())
            graph.finalize()
        self.run = self.session.make_callable(step)
        self.read = self.session.make_callable(read)

    def _collective(self, value: Any) -> Any:
        if self.kind == "allreduce":
            return self.world.allreduce(value)
        if self.kind == "allgather":
            return self.world.hvd.allgather(value)
        return self.world.hvd.broadcast(value, ROOT)

    def _set(self, values: list[Any]) -> None:
        """Gives the variables values: a vector for each."""
        numpy_type = self.type.as_numpy_dtype
        shaped = [value.astype(numpy_type).reshape(shape) for value, shape in zip(values, self.case.shapes)]
        self.session.run(self.assign, dict(zip(self.feeds, shaped)))

    def _check_whole(self, shift: int) -> int:
        """The number of wrong elements on this rank, of whole numbers."""
        sizes = [elements_of(shape) for shape in self.case.shapes]
        self._set([whole(self.world.rank, tensor, size, shift) for tensor, size in enumerate(sizes)])
        wrong = 0
        for tensor, result in enumerate(self.session.run(self.results)):
            inputs = [whole(rank, tensor, sizes[tensor], shift) for rank in range(self.world.size)]
            right = expected(self.kind, inputs, ROOT)
            got = np.asarray(result, dtype=np.float64).reshape(-1)
            wrong += int(np.count_nonzero(got != right)) if got.shape == right.shape else right.size
        return wrong

    def wrong(self, shift: int) -> int:
        """The number of wrong elements on all ranks; another `shift` gives other values."""
        return self.world.total(self._check_whole(shift))

    def roundings(self) -> float:
        """The largest error of a sum of fractions on any rank, in roundings."""
        sizes = [elements_of(shape) for shape in self.case.shapes]
        numpy_type = self.type.as_numpy_dtype
        self._set([fractions(self.world.rank, tensor, size) for tensor, size in enumerate(sizes)])
        worst = 0.0
        for tensor, result in enumerate(self.session.run(self.results)):
            inputs = [
                fractions(rank, tensor, sizes[tensor]).astype(numpy_type).astype(np.float64)
                for rank in range(self.world.size)
            ]
            exact = expected(self.kind, inputs, ROOT)
            worst = max(worst, roundings(np.reshape(result, -1).astype(np.float64), exact, self.case.dtype))
        return self.world.largest(worst)

    def close(self) -> None:
        """Gives the memory back."""
        self.session.close()


def say(world: World, kind: str, case: Case, seconds: float, **what: Any) -> None:
    """The line of one measurement."""
    world.say(
        benchmark="collectives",
        kind=kind,
        case=case.name,
        dtype=case.dtype,
        bytes=case.bytes,
        count=len(case.shapes),
        time_us=round(seconds * 1e6, 2),
        algbw=digits(algorithm_bandwidth(kind, case.bytes, world.size, seconds)),
        busbw=digits(bus_bandwidth(kind, case.bytes, world.size, seconds)),
        **what,
    )


def measure(world: World, kind: str, case: Case, seconds: float, verify: bool) -> None:
    """Measures the module's collective and says what came out."""
    try:
        step = Step(world, kind, case)
    except (TypeError, ValueError) as error:
        # The same on all ranks: it is about the type, and nothing has been sent.
        text = f"{type(error).__name__}: {str(error)[:200]}"
        world.say(benchmark="collectives", kind=kind, case=case.name, dtype=case.dtype, error=text)
        return
    wrong = step.wrong(0) if verify else -1
    time = world.seconds(step.run, seconds)
    noop = world.seconds(step.read, seconds / 4)
    # Once more: the first step takes another way through the library than those that repeat it.
    wrong += step.wrong(1) if verify else 0
    halves = verify and kind == "allreduce" and case.dtype != "float32"
    worst = step.roundings() if halves else None
    step.close()
    say(world, kind, case, time, wrong=wrong, noop_us=round(noop * 1e6, 2), roundings=worst)


def measure_mpi(world: World, case: Case, seconds: float, verify: bool) -> None:
    """Measures MPI_Allreduce of one buffer with as many bytes."""
    source = whole(world.rank, 0, case.elements, 0).astype(np.float32)
    target = np.empty_like(source)
    time = world.seconds(lambda: world.comm.Allreduce(source, target), seconds)
    wrong = -1
    if verify:
        right = expected("allreduce", [whole(rank, 0, case.elements, 0) for rank in range(world.size)], ROOT)
        wrong = world.total(int(np.count_nonzero(target != right)))
    say(world, "allreduce", case, time, module="mpi", wrong=wrong, noop_us=None, roundings=None)


def parse_arguments() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", nargs="?", default="horovod_tf.tensorflow")
    parser.add_argument("--sizes", help=f"bytes of a tensor (default without --cases: {DEFAULT_SIZES})")
    parser.add_argument("--counts", default="1", help="tensors of each size in a step (default: %(default)s)")
    parser.add_argument("--cases", help=f"resnet50, COUNTxSIZE[:TYPE] (default without --sizes: {DEFAULT_CASES})")
    parser.add_argument("--types", default="float32", help="float32,float16,bfloat16 (default: %(default)s)")
    parser.add_argument("--kinds", default="allreduce", help=f"{','.join(KINDS)} (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.5, help="about, for each measurement (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="inside one operation (default: %(default)s)")
    parser.add_argument("--raw-mpi", action="store_true", help="MPI_Allreduce of float32 too, as module mpi")
    parser.add_argument("--no-verify", action="store_true", help="believe the results")
    arguments = parser.parse_args()
    if arguments.sizes is None and arguments.cases is None:
        arguments.sizes, arguments.cases = DEFAULT_SIZES, DEFAULT_CASES
    try:
        arguments.cases = parse_cases(arguments.cases or "", arguments.sizes or "", arguments.counts, arguments.types)
    except ValueError as error:
        parser.error(str(error))
    arguments.kinds = arguments.kinds.split(",")
    if not set(arguments.kinds) <= set(KINDS):
        parser.error(f"kinds are {', '.join(KINDS)}")
    return arguments


def main() -> None:
    """Measures one after the other."""
    arguments = parse_arguments()
    world = World(arguments.module, arguments.threads)
    verify = not arguments.no_verify
    for case in arguments.cases:
        for kind in arguments.kinds:
            measure(world, kind, case, arguments.seconds, verify)
        if arguments.raw_mpi and case.dtype == "float32" and "allreduce" in arguments.kinds:
            measure_mpi(world, case, arguments.seconds, verify)


if __name__ == "__main__":
    main()
