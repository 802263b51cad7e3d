"""Collectives of all kinds, types and sizes with random delays, for long: right results, and memory that stays."""

from __future__ import annotations

import os
from typing import Final

import pytest

from launching import GRAPH_MODE, launch_script, needs_mpirun

pytestmark = needs_mpirun

SECONDS: Final = float(os.environ.get("SOAK_SECONDS", "1800"))
SOAK: Final = (
    GRAPH_MODE
    + """
import random, resource
TYPES = [tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64, tf.uint8, tf.int8]
OPERATIONS = 24
fed, results = [], []
for i in range(OPERATIONS):
    dtype = TYPES[i % len(TYPES)]
    kind = ("allreduce", "allgather", "broadcast")[i // len(TYPES)]
    fed.append(v1.placeholder(dtype, (None, 2), name="x%d" % i))
    if kind == "allreduce":
        results.append(hvd.allreduce(fed[-1], average=False))
    else:
        results.append(getattr(hvd, kind)(fed[-1], *([i % size] if kind == "broadcast" else [])))

def rows(dice):
    return int(2 ** dice.uniform(0, 18)) if dice.random() < 0.1 else dice.randrange(0, 300)

def value(i, of_rank, count):
    # Small integers: exact in all types, also added up over all ranks.
    return (np.arange(count * 2).reshape(count, 2) % 7 + of_rank + i % 3).astype(TYPES[i % len(TYPES)].as_numpy_dtype)

def counts(i, step):
    dice = random.Random(1000 * step + i)
    if i // len(TYPES) == 1:
        return [rows(dice) // 4 for _ in range(size)]
    return [rows(dice)] * size

def expected(i, step):
    of = [value(i, one, count) for one, count in enumerate(counts(i, step))]
    kind = i // len(TYPES)
    return np.sum(of, axis=0, dtype=of[0].dtype) if kind == 0 else np.concatenate(of) if kind == 1 else of[i % size]

def memory():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

def others():
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

own = random.Random(4711 + rank)
begin, step, bad, warm = time.time(), 0, 0, None
end_wanted = hvd.allreduce(v1.placeholder_with_default(np.float32(0), (), name="end"), average=False)
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    while True:
        chosen = [i for i in range(OPERATIONS) if random.Random(31 * step + i).random() < 0.4]
        if own.random() < 0.1:
            time.sleep(own.expovariate(20))
        feeds = {fed[i]: value(i, rank, counts(i, step)[rank]) for i in chosen}
        order = own.sample(chosen, len(chosen))
        got = dict(zip(order, session.run([results[i] for i in order], feeds)))
        for i in chosen:
            want = expected(i, step)
            if got[i].dtype != want.dtype or got[i].shape != want.shape or not np.array_equal(got[i], want):
                bad += 1
                say("wrong", step, i, got[i].shape, want.shape)
        step += 1
        seconds = time.time() - begin
        if warm is None and seconds > SECONDS / 3:
            warm = (memory(), *others())
        over = float(seconds > SECONDS)
        if step % 20 == 0 and session.run(end_wanted, {"end:0": over}) > 0:
            break
grown = (memory() - warm[0]) / 2**20
say("steps", step, "wrong", bad, "grown", round(grown, 1), "MiB")
say("threads and files", "stay" if all(now <= then for now, then in zip(others(), warm[1:])) else others())
assert bad == 0 and grown < 20, "see above"
"""
)


@pytest.mark.parametrize("ranks", [4])
def test_all_kinds_of_collectives_for_long(ranks: int) -> None:
    job = launch_script(ranks, f"SECONDS = {SECONDS}\n" + SOAK, seconds=SECONDS + 300)
    print(job.output)
    assert job.status == 0, job
    for rank in range(ranks):
        assert not job.lacks(rank, "wrong 0", "threads and files stay"), job
