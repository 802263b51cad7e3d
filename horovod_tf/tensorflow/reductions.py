"""What a reduction does: the numbers of the operations' reduce_op attribute, by their public names."""

from __future__ import annotations

import enum
from typing import Final


class ReduceOp(enum.IntEnum):
    """Of the elements that all ranks have at one place."""

    AVERAGE = 0
    SUM = 1
    ADASUM = 2
    MIN = 3
    MAX = 4
    PRODUCT = 5


Average: Final = ReduceOp.AVERAGE
Sum: Final = ReduceOp.SUM
Adasum: Final = ReduceOp.ADASUM
Min: Final = ReduceOp.MIN
Max: Final = ReduceOp.MAX
Product: Final = ReduceOp.PRODUCT


def reduction(average: bool | None, op: int | None) -> ReduceOp:
    """What `average=` and `op=` of one call mean together: the average, if neither is given.

    Raises:
        ValueError: both are given, or there is no such reduction.
        NotImplementedError: Adasum, which is not offered.
    """
    if op is None:
        return Average if average is None or average else Sum
    if average is not None:
        raise ValueError("the op parameter supersedes average: give one of them, op=hvd.Average or op=hvd.Sum, say")
    if op not in set(ReduceOp):
        raise ValueError(f"op is {op!r}, which is none of hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product")
    if op == Adasum:
        raise NotImplementedError("Adasum is not offered: use op=hvd.Average")
    return ReduceOp(op)
