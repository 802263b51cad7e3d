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
import ctypes, random, resource
KINDS = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter")
TYPES = [tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64, tf.complex128,
         tf.uint8, tf.int8, tf.uint16, tf.int16, tf.uint32, tf.int32, tf.uint64, tf.int64]
PAIRS = [(kind, dtype) for kind in KINDS for dtype in TYPES]

def operation(i):
    kind, dtype = PAIRS[i]
    fed = v1.placeholder(dtype, (None, 2), name="x%d" % i)
    if kind == "alltoall":
        splits = v1.placeholder(tf.int32, (size,), name="splits%d" % i)
        return (fed, splits), hvd.alltoall(fed, splits)[0]
    if kind == "broadcast":
        return (fed,), hvd.broadcast(fed, i % size)
    return (fed,), hvd.allgather(fed) if kind == "allgather" else getattr(hvd, kind)(fed, op=hvd.Sum)

OPERATIONS = [operation(i) for i in range(len(PAIRS))]

def rows(dice):
    return int(2 ** dice.uniform(0, 18)) if dice.random() < 0.1 else dice.randrange(0, 300)

def value(i, of_rank, count):
    # Small integers: exact in all types, also added up over all ranks.
    return (np.arange(count * 2).reshape(count, 2) % 7 + of_rank + i % 3).astype(PAIRS[i][1].as_numpy_dtype)

def splits(i, step):
    # How many rows each rank has for each.
    dice = random.Random(1000 * step + i)
    if PAIRS[i][0] == "alltoall":
        return [[rows(dice) // 16 for _ in range(size)] for _ in range(size)]
    if PAIRS[i][0] == "allgather":
        return [[rows(dice) // 4] for _ in range(size)]
    return [[rows(dice)]] * size

def values(i, step):
    return [value(i, one, sum(counts)) for one, counts in enumerate(splits(i, step))]

def feeds(i, step):
    return dict(zip(OPERATIONS[i][0], (values(i, step)[rank], splits(i, step)[rank])))

def expected(i, step):
    kind, of = PAIRS[i][0], values(i, step)
    if kind == "broadcast":
        return of[i % size]
    if kind == "allgather":
        return np.concatenate(of)
    if kind == "alltoall":
        cuts = [np.cumsum(counts)[:-1] for counts in splits(i, step)]
        return np.concatenate([np.split(one, at)[rank] for one, at in zip(of, cuts)])
    total = np.sum(of, axis=0, dtype=of[0].dtype)
    return np.array_split(total, size)[rank] if kind == "reducescatter" else total

def memory():
    # Without what the allocator keeps for later, which depends on the largest values so far.
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

def others():
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

# So many and no more: TensorFlow keeps what it makes for each set of fetches.
CHOICES = [[i for i in range(len(PAIRS)) if random.Random(101 * n + i).random() < 0.2] for n in range(30)]
assert set().union(*CHOICES) == set(range(len(PAIRS)))

own = random.Random(4711 + rank)
begin, step, bad, warm, resident = time.time(), 0, 0, None, []
end_wanted = hvd.allreduce(v1.placeholder_with_default(np.float32(0), (), name="end"), average=False)
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    while True:
        chosen = random.Random(step).choice(CHOICES)
        if own.random() < 0.1:
            time.sleep(own.expovariate(20))
        fed = {key: one for i in chosen for key, one in feeds(i, step).items()}
        got = dict(zip(chosen, session.run([OPERATIONS[i][1] for i in chosen], fed)))
        for i in chosen:
            want = expected(i, step)
            if got[i].dtype != want.dtype or got[i].shape != want.shape or not np.array_equal(got[i], want):
                bad += 1
                say("wrong", step, PAIRS[i], got[i].shape, want.shape)
        step += 1
        seconds = time.time() - begin
        if warm is None and seconds > SECONDS / 3:
            warm = others()
        if step % 20 == 0:
            resident.append(memory())
            if session.run(end_wanted, {"end:0": float(seconds > SECONDS)}) > 0:
                break
# What is held grows the least of many values; what is in use for a moment does not.
third = len(resident) // 3
grown = (min(resident[-third:]) - min(resident[third : 2 * third])) / 2**20
say("steps", step, "wrong", bad, "grown", round(grown, 1), "MiB")
say("resident MiB", [one >> 20 for one in resident[:: max(1, len(resident) // 30)]])
say("threads and files", "stay" if all(now <= then for now, then in zip(others(), warm)) else others())
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
