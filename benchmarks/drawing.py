"""Draws the latency and the bus bandwidth of allreduce against the size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

LABELS = {"ours": "ours", "peer": "peer", "mpi": "MPI_Allreduce"}


def curves(lines: Sequence[dict[str, Any]], field: str) -> dict[str, list[tuple[float, float]]]:
    """For each side and number of ranks: sizes in bytes with the value of `field`, in the order of size."""
    found: dict[str, dict[int, float]] = {}
    for line in lines:
        if line.get("job") == "sweep" and line.get("kind") == "allreduce" and line.get(field):
            name = f"{LABELS.get(line['side'], line['side'])}, {line['ranks']} ranks"
            found.setdefault(name, {})[int(line["bytes"])] = float(line[field])
    return {name: sorted(points.items()) for name, points in found.items()}


def draw(lines: Sequence[dict[str, Any]], path: Path) -> str:
    """Writes the picture and says where it is, or in one line why there is none."""
    if not curves(lines, "time_us"):
        return "No picture: no sizes were measured."
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return "No picture: it needs matplotlib (pip install --requirement tools/requirements-bench.txt)."
    figure, axes = pyplot.subplots(1, 2, figsize=(12, 5), constrained_layout=True)
    for axis, field, label in ((axes[0], "time_us", "time of a step (us)"), (axes[1], "busbw", "bus bandwidth (GB/s)")):
        for name, points in curves(lines, field).items():
            axis.loglog([size for size, _ in points], [value for _, value in points], marker="o", label=name)
        axis.set_xlabel("size of the tensor (bytes)")
        axis.set_ylabel(label)
        axis.grid(True, which="both", alpha=0.3)
        axis.legend()
    figure.suptitle("allreduce of one float32 tensor, graph mode")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return f"Picture: {path}"
