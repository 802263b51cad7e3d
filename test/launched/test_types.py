"""docs/types.md says which collective takes which types, on which backend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from launching import launch_script, needs_mpirun
from support import ROOT

DOCUMENT = ROOT / "docs/types.md"
# What runs where: a job of one process, ranks of one host, and the same without shared memory.
BACKENDS: dict[str, tuple[int, dict[str, Any]]] = {
    "local": (1, {}),
    "shm": (2, {}),
    "mpi": (2, {"HOROVOD_TF_SHM_DISABLE": "1"}),
}
TYPES = [
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
]
TRY_ALL = """
import json
collectives = {
    f"{call.__name__}: {op.name.title()}": lambda one, call=call, op=op: call(one, op=op)
    for call in (hvd.allreduce, hvd.reducescatter)
    for op in (hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product)
}
collectives["allgather"] = hvd.allgather
collectives["broadcast"] = lambda one: hvd.broadcast(one, 0)
collectives["alltoall"] = hvd.alltoall


def runs(call, name):
    try:
        call(tf.zeros([4, 3], name))
    except (TypeError, tf.errors.InvalidArgumentError):
        return False
    return True


say(json.dumps({what: [name for name in TYPES if runs(call, name)] for what, call in collectives.items()}))
"""


def types_that_run(ranks: int, variables: dict[str, Any]) -> dict[str, list[str]]:
    """By collective, as rank 0 has found out."""
    job = launch_script(ranks, f"TYPES = {TYPES}\n{TRY_ALL}", **variables)
    assert job.status == 0, job
    found: dict[str, list[str]] = json.loads(job.of(0).partition(": ")[2])
    return found


def table() -> str:
    """What really runs."""
    runs = {name: types_that_run(ranks, variables) for name, (ranks, variables) in BACKENDS.items()}

    def cell(collective: str, dtype: str) -> str:
        able = [name for name, found in runs.items() if dtype in found[collective]]
        return {0: "-", len(runs): "all"}.get(len(able), " ".join(able))

    lines = [f"| | {' | '.join(TYPES)} |", f"|---{'|---' * len(TYPES)}|"]
    for collective in runs["local"]:
        lines.append(f"| {collective} | {' | '.join(cell(collective, dtype) for dtype in TYPES)} |")
    return "\n".join(lines) + "\n"


@needs_mpirun
def test_table_is_what_really_runs() -> None:
    assert table() in DOCUMENT.read_text()


if __name__ == "__main__":
    before, mark, rest = DOCUMENT.read_text().partition("<!-- types -->\n")
    after = rest[rest.index("<!-- end of types -->") :]
    Path(DOCUMENT).write_text(before + mark + table() + after)
