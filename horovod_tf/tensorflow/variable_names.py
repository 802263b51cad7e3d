"""Whether ranks list the same variables, by their names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence


def _without_numbers(name: str) -> str:
    return re.sub(r"_\d+(?=[_/:]|$)", "", name)


def first_difference(names: Sequence[str], others: Sequence[str]) -> int | None:
    """The first place where two ranks have different variables; None if they have the same.

    Keras numbers what it builds, `dense_3`: the same model has other names on a rank that has built something more. So
    numbers are left out, unless both have the same names, but in another order.
    """
    pairs = [names, others]
    if sorted(names) != sorted(others):
        pairs = [[_without_numbers(name) for name in one] for one in pairs]
    different = (place for place, (one, other) in enumerate(itertools.zip_longest(*pairs)) if one != other)
    return next(different, None)
