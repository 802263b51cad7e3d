"""Whether all ranks have the same variables, said in words: which variable, on which ranks.

No TensorFlow here: what the ranks have is given as text and numbers, of which `consistency` makes errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Final, NamedTuple

from horovod_tf.tensorflow.variable_names import first_difference

NAMED_AT_MOST: Final = 10
_MEND: Final = (
    "What can be the cause on some ranks only: an initial value, a checkpoint or a variable made later that was not "
    "broadcast (hvd.broadcast_variables), gradients that were not averaged, an assignment. Training that goes on from "
    "here has no meaning: give all ranks the same variables and begin again. Leave out what is each rank's own, as the "
    "moving averages of batch normalization (variables=...)"
)


class Variable(NamedTuple):
    """What ranks must agree on before values can be compared."""

    name: str
    kind: str  # type and shape, as text

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})"


class Contents(NamedTuple):
    """What one rank has: a number for each variable, and one for each value."""

    step: int
    definitions: Sequence[int]
    values: Sequence[int]


def ranks_text(ranks: Sequence[int]) -> str:
    """`rank 1`, `ranks 0, 2-5`: ascending."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][-1] + 1:
            spans[-1].append(rank)
        else:
            spans.append([rank])
    parts = [str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(parts)}"


def _grouped(of_ranks: Iterable[Hashable]) -> list[tuple[Hashable, list[int]]]:
    """Each value and the ranks that have it; where most ranks are comes first, then where the lowest is."""
    groups: dict[Hashable, list[int]] = {}
    for rank, value in enumerate(of_ranks):
        groups.setdefault(value, []).append(rank)
    return sorted(groups.items(), key=lambda group: (-len(group[1]), group[1][0]))


def _first_few(parts: list[str]) -> str:
    more = len(parts) - NAMED_AT_MOST
    return "; ".join(parts[:NAMED_AT_MOST]) + (f"; and {more} more" if more > 0 else "")


def _said_by_rank(of_ranks: Iterable[Hashable]) -> str:
    return ", ".join(f"{value} on {ranks_text(ranks)}" for value, ranks in _grouped(of_ranks))


def different_steps(ranks: Sequence[Contents]) -> str | None:
    """The error if ranks compare at different steps; None if they agree."""
    if len({rank.step for rank in ranks}) == 1:
        return None
    said = _said_by_rank(rank.step for rank in ranks)
    return (
        f"Ranks compare their variables at different steps: {said}. All ranks must run the same number of steps, and "
        "check after the same ones"
    )


def same_lists(ranks: Sequence[Contents]) -> bool:
    """Whether all ranks have the same variables in the same order, whatever their values are."""
    return len({tuple(rank.definitions) for rank in ranks}) == 1


def _are_alike(variables: Sequence[Variable], others: Sequence[Variable]) -> bool:
    names, kinds = ([[one[part] for one in of_rank] for of_rank in (variables, others)] for part in range(2))
    return first_difference(*names) is None and kinds[0] == kinds[1]


def different_lists(lists: Sequence[Sequence[Variable]], when: str) -> str | None:
    """The error for ranks without `same_lists`, of all ranks' variables; None if only Keras' numbers differ."""
    if all(_are_alike(lists[0], one) for one in lists):
        return None
    kinds: list[dict[str, str]] = []
    for variables in lists:
        of_name: dict[str, str] = {}
        for name, kind in variables:
            of_name[name] = f"{of_name[name]} and {kind}" if name in of_name else kind
        kinds.append(of_name)
    parts = []
    for name in dict.fromkeys(name for of_name in kinds for name in of_name):
        of_ranks = [of_name.get(name, "missing") for of_name in kinds]
        if len(set(of_ranks)) > 1:
            parts.append(f"{name} is {_said_by_rank(of_ranks)}")
    if not parts:
        place = next(i for i, variables in enumerate(zip(*lists)) if len(set(variables)) > 1)
        parts = [f"number {place + 1} is {_said_by_rank(variables[place].name for variables in lists)}"]
    return (
        f"Ranks have different variables{when}: {_first_few(parts)}. Names, types, shapes and their order must be the "
        "same on all ranks: build the same model everywhere, also what is built at its first use, before comparing"
    )


def different_values(ranks: Sequence[Contents], variables: Sequence[Variable], when: str) -> str | None:
    """The error if ranks with `same_lists` have different values; None if they agree."""
    times = Counter(variable.name for variable in variables)
    parts = []
    for number, (variable, of_ranks) in enumerate(zip(variables, zip(*(rank.values for rank in ranks))), start=1):
        (_, most), *others = _grouped(of_ranks)
        if others:
            rest = sorted(rank for _, group in others for rank in group)
            which = f", number {number}" if times[variable.name] > 1 else ""
            parts.append(f"{variable}{which} on {ranks_text(rest)} is not as on {ranks_text(most)}")
    if not parts:
        return None
    return f"Variables differ between ranks{when}, {len(parts)} of {len(variables)}: {_first_few(parts)}. {_MEND}"
