"""Values whose collectives have a known result: they differ with the rank, the tensor and the place in it."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import MANTISSA_BITS


def whole(rank: int, tensor: int, elements: int, shift: int) -> Any:
    """Whole numbers from 0 to 4: sums over up to 64 ranks are exact even in bfloat16."""
    place: Any = np.arange(elements, dtype=np.int32)
    return (place * 2 + place // 251 + rank + 3 * tensor + shift) % 5


def fractions(rank: int, tensor: int, elements: int) -> Any:
    """Numbers from 1/1009 to 1 that no binary type holds exactly, so that sums are rounded."""
    place: Any = np.arange(elements, dtype=np.int32)
    return ((place * 37 + 11 * rank + tensor) % 1009 + 1) / 1009


def expected(kind: str, values: list[Any], root: int) -> Any:
    """The exact result of a collective of one tensor: `values` are all ranks' inputs, as vectors."""
    if kind == "allreduce":
        return np.sum(np.stack(values), axis=0, dtype=np.float64)
    return np.concatenate(values) if kind == "allgather" else values[root]


def roundings(result: Any, exact: Any, dtype: str) -> float:
    """The largest error in units of what one rounding of the exact result may change at most (half a last place)."""
    if not exact.size:
        return 0.0
    _, exponent = np.frexp(exact)
    half_last_place = np.ldexp(0.5, exponent - 1 - MANTISSA_BITS[dtype])
    return float(np.max(np.abs(np.asarray(result, dtype=np.float64) - exact) / half_last_place))
