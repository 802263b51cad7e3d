"""Which gradients are reduced together: what the caller asks for, or small ones, since each operation has its price."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Final, Union

import tensorflow as tf

# A number of groups, or the variables of each group.
Groups = Union[int, Sequence[Sequence[Any]], None]

# Larger gradients are reduced alone, so that they travel while others are computed. A group is not there before its
# last gradient, so groups end somewhere, too.
SMALL_BYTES: Final = 64 * 1024
GROUP_BYTES: Final = 256 * 1024


def key_of(variable: Any) -> int:
    """What a variable is found by, whichever of the objects that stand for it is at hand.

    A variable of Keras 3 and one that casts itself are not the object that an optimizer or a tape is given, but they
    have its handle.
    """
    return id(getattr(variable, "handle", variable))


def groups_argument(groups: Groups, num_groups: int = 0) -> Groups:
    """What `groups=` and its older name `num_groups=` mean together; None: no groups are asked for.

    Raises:
        ValueError: groups is neither a number nor lists of variables.
    """
    if num_groups:
        warnings.warn("num_groups is the older name of groups: use groups", DeprecationWarning, stacklevel=3)
        groups = num_groups if groups is None else groups
    if groups is None or groups == 0:
        return None
    is_number = isinstance(groups, int) and not isinstance(groups, bool) and groups > 0
    if not is_number and not (
        isinstance(groups, (list, tuple)) and all(isinstance(one, (list, tuple)) for one in groups)
    ):
        raise ValueError(
            f"groups should be a non-negative integer or a list of list of tf.Variable, and this is {groups!r}"
        )
    return groups


def _bytes_if_small(gradient: Any) -> int | None:
    """None: it is large, or nobody knows before it is there."""
    if not isinstance(gradient, tf.Tensor) or gradient.shape.num_elements() is None:
        return None
    count: int = gradient.shape.num_elements() * gradient.dtype.size
    return count if count <= SMALL_BYTES else None


def small_together(gradients: Sequence[Any], places: Sequence[int]) -> list[list[int]]:
    """Groups of small gradients; a large one is a group of its own.

    From the last to the first: gradients of the last layers are there first.
    """
    groups: list[list[int]] = []
    open_group: list[int] = []
    room = 0
    for place in reversed(places):
        count = _bytes_if_small(gradients[place])
        if count is None:
            groups.append([place])
            continue
        if not open_group or count > room:
            open_group, room = [], GROUP_BYTES
            groups.append(open_group)
        open_group.append(place)
        room -= count
    return groups


def _evenly(places: Sequence[int], count: int) -> list[list[int]]:
    """So many groups of as equal numbers as can be; none is empty."""
    count = min(count, len(places))
    ends = [len(places) * (number + 1) // count for number in range(count)]
    return [list(places[begin:end]) for begin, end in zip([0, *ends], ends)]


def _as_listed(places: Sequence[int], variables: Sequence[Any], groups: Sequence[Sequence[Any]]) -> list[list[int]]:
    number_of = {key_of(variable): number for number, group in enumerate(groups) for variable in group}
    found: list[list[int]] = [[] for _ in groups]
    for place in places:
        number = number_of.get(key_of(variables[place]))
        if number is not None:
            found[number].append(place)
    return [group for group in found if group]


def groups_of(
    gradients: Sequence[Any], variables: Sequence[Any] | None = None, groups: Groups = None
) -> list[list[int]]:
    """Where the gradients are that are reduced together; alone is a group of one, and None is in no group.

    Args:
        gradients: None, dense or sparse.
        variables: Theirs, if `groups` lists variables.
        groups: As `groups_argument` gives it. What no list has is grouped as without lists.
    """
    places = [place for place, gradient in enumerate(gradients) if gradient is not None]
    if groups is None or not places:
        return small_together(gradients, places)
    if isinstance(groups, int):
        return _evenly(places, groups)
    listed = _as_listed(places, variables or [], groups) if variables is not None else []
    taken = {place for group in listed for place in group}
    return listed + small_together(gradients, [place for place in places if place not in taken])
