"""The targets P1 to P8, and the table of what has been measured against them. Pure: lines in, Markdown out.

Every row is a ratio: ours by a reference, which is the peer or a limit of this machine measured in the same run.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Optional

MOST_SHARED_MIB = 64.0
FIRST_TARGET_US = 60.0
HEADERS = (
    "id", "work", "ranks", "ours", "peer", "tf.distribute", "raw MPI", "limit", "ratio", "target", "met?",
)  # fmt: skip


class Results:
    """The lines of all jobs, and which jobs have failed."""

    def __init__(self, lines: Sequence[dict[str, Any]], failed: Collection[tuple[str, str]] = ()) -> None:
        """`failed` has the names of jobs and of sides."""
        self.lines = lines
        self.failed = set(failed)

    def median(self, field: str, **match: Any) -> float | None:
        """Of a field over the rounds, of the lines where all of `match` is so; None if there is none."""
        found = [
            float(line[field])
            for line in self.lines
            if line.get(field) is not None and all(line.get(name) == value for name, value in match.items())
        ]
        return statistics.median(found) if found else None


Reference = Callable[[Results, int], Optional[float]]


class Target(NamedTuple):
    """One row. `pick` says which lines and `field` what of them; `reference` None is the peer."""

    identity: str
    work: str
    job: str
    field: str
    pick: dict[str, Any]
    bound: float
    reference: Reference | None = None
    limit_name: str = ""
    at_least: bool = False
    unit: str = "us"
    other_ranks: bool = False  # measured on the further numbers of ranks, not on the first


class Row(NamedTuple):
    """What is printed of a target, as text."""

    cells: tuple[str, ...]
    met: bool | None


def verdict(ratio: float | None, bound: float, at_least: bool) -> bool | None:
    """Whether the target is met; None if that is not known."""
    if ratio is None:
        return None
    return ratio >= bound if at_least else ratio <= bound


def divide(above: float | None, below: float | None) -> float | None:
    """The ratio of two measurements, if both are there."""
    if above is None or below is None or below == 0:
        return None
    return above / below


def number(value: float) -> str:
    """Three digits that count."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"


def with_unit(value: float, unit: str) -> str:
    """A measurement for people: microseconds become milliseconds from 1000 on, and a part of a core percent."""
    if unit == "us":
        return f"{number(value / 1e3)} ms" if value >= 1e3 else f"{number(value)} us"
    if unit == "core":
        return f"{number(value * 100)} %"
    return f"{number(value)} {unit}".strip()


def same_step(field: str, extra: float = 0.0, **pick: Any) -> Reference:
    """Another field of our own measurement of the same work, and something added."""

    def find(results: Results, ranks: int) -> float | None:
        value = results.median(field, side="ours", ranks=ranks, **pick)
        return None if value is None else value + extra

    return find


def of_side(side: str, field: str, **pick: Any) -> Reference:
    """What another side has measured."""
    return lambda results, ranks: results.median(field, side=side, ranks=ranks, **pick)


def fixed(value: float) -> Reference:
    """A limit that is not measured."""
    return lambda results, ranks: value


def allreduce(case: str, dtype: str = "float32", job: str = "collectives") -> dict[str, Any]:
    """Which lines are about an allreduce of this case."""
    return {"job": job, "kind": "allreduce", "case": case, "dtype": dtype}


def latency_and_bandwidth() -> list[Target]:
    """P1 to P4."""
    small, resnet, many = allreduce("1x4"), allreduce("resnet50"), allreduce("1000x1KiB")
    job, field = "collectives", "time_us"
    names = "allreduce of 4 bytes", "ResNet-50's gradients", "1000 tensors of 1 KiB"
    empty = same_step("noop_us", FIRST_TARGET_US, **small)
    native = of_side("native", "us", benchmark="shm_backend", tensors=1)
    reading = same_step("noop_us", **many)
    return [
        Target("P1", names[0], job, field, small, 1 / 10),
        Target("P1", names[0], job, field, small, 1.0, empty, "empty step + 60 us"),
        Target("P2", names[1], job, field, resnet, 1 / 3),
        Target("P2", names[1], job, field, resnet, 1.6, native, "shared memory"),
        Target("P3", names[2], job, field, many, 1 / 4),
        Target("P3", names[2], job, field, many, 2.0, reading, "reading them"),
        Target("P4", names[1], "more_ranks", field, allreduce("resnet50", job="more_ranks"), 1 / 3, other_ranks=True),
    ]


def training() -> list[Target]:
    """P5: efficiency, which is the uncoupled processes' time by ours."""
    targets = []
    for model, bound in (("cnn", 0.85), ("mlp", 0.70), ("deep", 0.60)):
        pick = {"job": "training", "model": model}
        uncoupled = of_side("none", "time_ms", **pick)
        limit = "uncoupled"
        targets.append(
            Target("P5", f"training step: {model}", "training", "time_ms", pick, bound, uncoupled, limit, True, "ms")
        )
    return targets


def idleness() -> list[Target]:
    """P6: parts of a core."""
    targets = []
    for kind, work, bound in (("idle", "idle process", 0.01), ("waiting", "waiting for a late peer", 0.05)):
        pick = {"job": "idle", "kind": kind}
        targets.append(Target("P6", work, "idle", "core", pick, bound, fixed(1.0), "a core", unit="core"))
    return targets


def half_precision() -> list[Target]:
    """P7: as many elements as the float32 tensor has, and the error of their sums."""
    targets = []
    single = same_step("time_us", **allreduce("1x16MiB"))
    for dtype in ("float16", "bfloat16"):
        pick = allreduce("1x8MiB", dtype)
        work = f"4 Mi elements of {dtype}"
        targets.append(Target("P7", work, "collectives", "time_us", pick, 1.0, single, "as many of float32"))
        error = Target(
            "P7",
            f"largest error of {dtype}",
            "collectives",
            "roundings",
            pick,
            1.0,
            fixed(1.0),
            "one",
            unit="roundings",
        )
        targets.append(error)
    return targets


def memory() -> list[Target]:
    """P8: what the process holds more, beside what TensorFlow holds for the same tensors."""
    targets = []
    stages = (("init", "memory added by init()"), ("1000x1KiB", "by 1000 tensors"), ("resnet50", "by ResNet-50"))
    for stage, work in stages:
        pick = {"job": "idle", "kind": "memory", "stage": stage}
        targets.append(
            Target("P8", work, "idle", "added_mib", pick, 1.0, fixed(MOST_SHARED_MIB), "the buffers' limit", unit="MiB")
        )
    return targets


def all_targets() -> list[Target]:
    """In the order of the table."""
    return [*latency_and_bandwidth(), *training(), *idleness(), *half_precision(), *memory()]


def cell(results: Results, target: Target, side: str, ranks: int, pick: dict[str, Any]) -> str:
    """What one side has measured; `failed` if it should have and its job failed; else nothing."""
    value = results.median(target.field, side=side, ranks=ranks, **pick)
    if value is not None:
        return with_unit(value, target.unit)
    return "**failed**" if (pick.get("job", target.job), side) in results.failed else "-"


def row_of(results: Results, target: Target, ranks: int) -> Row:
    """A target's row on so many ranks."""
    ours = results.median(target.field, side="ours", ranks=ranks, **target.pick)
    peer = results.median(target.field, side="peer", ranks=ranks, **target.pick)
    limit = target.reference(results, ranks) if target.reference else None
    reference = limit if target.reference else peer
    ratio = divide(reference, ours) if target.at_least else divide(ours, reference)
    met = verdict(ratio, target.bound, target.at_least)
    limit_text = "-"
    if target.reference:
        limit_text = f"{target.limit_name}: " + ("not measured" if limit is None else with_unit(limit, target.unit))
    sense = ">=" if target.at_least else "<="
    against = "limit" if target.reference else "peer"
    about_time = target.field == "time_us"
    cells = (
        target.identity,
        target.work,
        str(ranks),
        cell(results, target, "ours", ranks, target.pick),
        cell(results, target, "peer", ranks, target.pick),
        cell(results, target, "tf.distribute", ranks, {**target.pick, "job": "tf_distribute"}) if about_time else "-",
        cell(results, target, "mpi", ranks, target.pick) if about_time else "-",
        limit_text,
        "-" if ratio is None else number(ratio),
        f"{sense} {number(target.bound)} x {against}",
        {None: "-", True: "yes", False: "**no**"}[met],
    )
    return Row(cells, met)


def rows_of(results: Results, wanted: Collection[str], ranks: Sequence[int]) -> list[Row]:
    """The rows of the wanted targets: on the first number of ranks, and P4 on the others."""
    rows = []
    for target in all_targets():
        if target.identity in wanted:
            rows += [row_of(results, target, count) for count in (ranks[1:] if target.other_ranks else ranks[:1])]
    return rows


def table(rows: Sequence[Row]) -> str:
    """In Markdown."""
    lines = [HEADERS, ("---",) * len(HEADERS), *(row.cells for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def wrong_lines(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Measurements whose results were not right: their times mean nothing."""
    return [line for line in lines if line.get("wrong", 0) > 0]


def describe(line: dict[str, Any]) -> str:
    """Which measurement a line is, in a few words."""
    names = ("side", "job", "kind", "model", "case", "dtype")
    return " ".join(str(line[name]) for name in names if name in line) + f" on {line.get('ranks', '?')} ranks"
