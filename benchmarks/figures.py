"""The arithmetic of the benchmarks: medians, slowest ranks and bandwidths. Needs the standard library only."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def median_of_slowest(repetitions: Sequence[Sequence[float]]) -> float:
    """Of one list for each rank, with a number for each repetition: the slowest rank counts, then the median."""
    return float(statistics.median(max(ranks) for ranks in zip(*repetitions)))


def calls_for(seconds: float, repetitions: int, once: float, most: int = 2000) -> int:
    """Calls in one repetition, so that all repetitions of a call of `once` seconds take about `seconds`."""
    return max(1, min(most, int(seconds / repetitions / max(once, 1e-9))))


def digits(value: float, count: int = 4) -> float:
    """The value with so many digits that count: small bandwidths must not become zero."""
    return float(f"{value:.{count}g}")


def algorithm_bandwidth(kind: str, size: int, ranks: int, seconds: float) -> float:
    """GB/s: bytes of the result by the time. `size` is one rank's input; an allgather's result has all inputs."""
    return size * (ranks if kind == "allgather" else 1) / seconds * 1e-9


def bus_factor(kind: str, ranks: int) -> float:
    """What one rank must send, or receive, at least, as a part of the result."""
    if kind == "allreduce":
        return 2 * (ranks - 1) / ranks
    if kind == "allgather":
        return (ranks - 1) / ranks
    return 1.0


def bus_bandwidth(kind: str, size: int, ranks: int, seconds: float) -> float:
    """GB/s through one rank's connection: comparable over numbers of ranks, and 0 on a single one."""
    if ranks == 1:
        return 0.0
    return algorithm_bandwidth(kind, size, ranks, seconds) * bus_factor(kind, ranks)
