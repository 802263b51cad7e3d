"""What a job costs beside its work: processor time while it does nothing or waits, and memory.

    mpirun -np 2 python benchmarks/idle.py [MODULE] [--seconds 2] [--late 2] [--memory-cases 1000x1KiB,resnet50]

JSON lines, each the worst rank's:
`kind: idle`     `core`: processor seconds for each second of a process that is initialised and has nothing to do
`kind: waiting`  `core`: the same of ranks inside `session.run` whose last peer comes `late` seconds later
`kind: memory`   `anonymous_mib`, `shared_mib`: how much more of it is resident after `stage` than before: `init`, and
                 allreduces of each case. Before a case TensorFlow has already copied the same tensors once, so that
                 what grows is not its own. What MPI takes is in it.
"""

from __future__ import annotations

import argparse
import importlib
import time
from typing import Any

from cases import Case, parse_case, words
from memory import Memory, memory_now
from world import WARM_UP, World, tf, v1


def copy_and_allreduce(world: World, case: Case) -> tuple[list[Any], list[Any]]:
    """Two steps of the default graph: copies of its variables, and allreduces of them."""
    variables = [
        v1.get_variable(f"v{i}", shape, initializer=v1.ones_initializer(), use_resource=True)
        for i, shape in enumerate(case.shapes)
    ]
    values = [variable.read_value() for variable in variables]
    copies = [value * 2.0 for value in values]
    # All copies are alive at once, as all results are.
    with tf.control_dependencies([tf.group(*copies)]):
        held = [copy[tuple([0] * len(shape))] for copy, shape in zip(copies, case.shapes)]
    # Fetched one by one: of what only a group depends on, TensorFlow leaves out what it takes for pure.
    return [one.op for one in held], [world.allreduce(value).op for value in values]


def measure_memory(world: World, case: Case) -> None:
    """What allreduces of a case add."""
    with tf.Graph().as_default(), world.session() as session:
        copy, reduce = copy_and_allreduce(world, case)
        session.run(v1.global_variables_initializer())
        for _ in range(WARM_UP):
            session.run(copy)
        before = memory_now()
        for _ in range(WARM_UP):
            session.run(reduce)
        grown = memory_now().since(before)
    say_memory(world, case.name, len(case.shapes), case.bytes, grown)


def say_memory(world: World, stage: str, count: int, size: int, grown: Memory) -> None:
    """The line of one stage."""
    anonymous, shared = (round(world.largest(part), 2) for part in grown)
    world.say(
        benchmark="idle",
        kind="memory",
        stage=stage,
        count=count,
        bytes=size,
        anonymous_mib=anonymous,
        shared_mib=shared,
    )


def measure_idle(world: World, seconds: float) -> None:
    """Sleeps, and says what that cost."""
    world.comm.Barrier()
    begin = time.process_time(), time.perf_counter()
    time.sleep(seconds)
    core = (time.process_time() - begin[0]) / (time.perf_counter() - begin[1])
    world.say(benchmark="idle", kind="idle", seconds=seconds, core=round(world.largest(core), 5))


def measure_waiting(world: World, late: float) -> None:
    """The last rank comes late; what do the others spend meanwhile?"""
    if world.size == 1:
        return
    with tf.Graph().as_default(), world.session() as session:
        value = v1.get_variable("v", [256], initializer=v1.ones_initializer(), use_resource=True)
        run = session.make_callable(world.allreduce(value.read_value()).op)
        session.run(v1.global_variables_initializer())
        for _ in range(WARM_UP):
            run()
        world.comm.Barrier()
        if world.rank == world.size - 1:
            time.sleep(late)
        begin = time.process_time(), time.perf_counter()
        run()
        core = (time.process_time() - begin[0]) / (time.perf_counter() - begin[1])
    # The one that is late does not wait.
    waiting = core if world.rank != world.size - 1 else 0.0
    world.say(benchmark="idle", kind="waiting", late=late, core=round(world.largest(waiting), 5))


def main() -> None:
    """Memory first: it is what a process has before anything else has been done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", nargs="?", default="horovod_tf.tensorflow")
    parser.add_argument("--seconds", type=float, default=2.0, help="of doing nothing (default: %(default)s)")
    parser.add_argument("--late", type=float, default=2.0, help="seconds (default: %(default)s)")
    parser.add_argument("--memory-cases", default="1000x1KiB,resnet50", help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=1, help="inside one operation (default: %(default)s)")
    arguments = parser.parse_args()
    try:
        cases = [parse_case(name, "float32") for name in words(arguments.memory_cases)]
    except ValueError as error:
        parser.error(str(error))

    importlib.import_module(arguments.module)  # code is not what init() adds
    before = memory_now()
    world = World(arguments.module, arguments.threads)
    say_memory(world, "init", 0, 0, memory_now().since(before))
    for case in cases:
        measure_memory(world, case)
    measure_idle(world, arguments.seconds)
    measure_waiting(world, arguments.late)


if __name__ == "__main__":
    main()
