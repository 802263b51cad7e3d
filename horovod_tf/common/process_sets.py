"""Process sets: groups of ranks with collectives of their own. docs/process_sets.md says how they work."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable
from typing import Any, Final

from horovod_tf.common import basics


def _world_ranks(comm: object) -> list[int]:
    """The ranks that the members of an mpi4py communicator have in MPI's world, by rank in the communicator.

    Raises:
        ValueError: it is no communicator, or has members from elsewhere.
    """
    mpi = sys.modules.get(type(comm).__module__)
    if mpi is None or not hasattr(comm, "Get_group") or not hasattr(mpi, "COMM_WORLD"):
        raise ValueError(f"{comm!r} is neither a list of ranks nor a communicator of mpi4py")
    group = comm.Get_group()
    world = mpi.COMM_WORLD.Get_group()
    ranks = [int(rank) for rank in mpi.Group.Translate_ranks(group, list(range(group.Get_size())), world)]
    group.Free()
    world.Free()
    if any(rank < 0 for rank in ranks):
        raise ValueError(f"{comm!r} has processes that are not in MPI.COMM_WORLD")
    return ranks


def _numbers(ranks: Iterable[Any]) -> list[int]:
    """The ranks as plain numbers.

    Raises:
        ValueError: one is no number.
    """
    numbers = list(ranks)
    try:
        return [operator.index(rank) for rank in numbers]  # NumPy's, too
    except TypeError:
        raise ValueError(f"{numbers!r} is not a list of ranks") from None


def _ranks_of(ranks_or_comm: object) -> list[int]:
    """The ranks that a list or a communicator names, in its order.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(ranks_or_comm, Iterable) and not isinstance(ranks_or_comm, (str, bytes)):
        return _numbers(ranks_or_comm)
    return _world_ranks(ranks_or_comm)


class ProcessSet:
    """Some ranks of the job. Their collectives (`process_set=`) wait for nobody else.

    Attributes:
        process_set_id: What operations know it by; None: it is not registered, or not any more.
    """

    def __init__(self, ranks_or_comm: object) -> None:
        """It is registered by `init(process_sets=[...])` or `add_process_set`, on all ranks.

        Args:
            ranks_or_comm: Ranks of the job. In the set they are numbered in ascending order. Or an mpi4py communicator
                with these processes.

        Raises:
            ValueError: it is neither.
        """
        self.process_set_id: int | None = None
        self._ranks = sorted(_ranks_of(ranks_or_comm))

    @classmethod
    def of_id(cls, process_set_id: int) -> ProcessSet:
        """The one that operations know by this id.

        Raises:
            ValueError: there is none, or before `init()`.
        """
        one = cls(basics.process_set_ranks(process_set_id))
        one.process_set_id = process_set_id
        return one

    @property
    def ranks(self) -> list[int] | None:
        """The members, as ranks of the job; of `global_process_set` None before `init()`."""
        return list(self._ranks)

    def size(self) -> int | None:
        """How many members it has; None: it is not registered."""
        return None if self.process_set_id is None else basics.process_set_size(self.process_set_id)

    def rank(self) -> int | None:
        """This process's number in it; None: it is not registered.

        Raises:
            ValueError: this process is no member.
        """
        return None if self.process_set_id is None else basics.process_set_rank(self.process_set_id)

    def included(self) -> bool | None:
        """Whether this process is a member; None: it is not registered."""
        return None if self.process_set_id is None else basics.process_set_included(self.process_set_id)

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


class _WholeJob(ProcessSet):
    """The ranks that there are."""

    def __init__(self) -> None:
        super().__init__([])
        self.process_set_id = 0

    @property
    def ranks(self) -> list[int] | None:
        return basics.process_set_ranks(0) if basics.is_initialized() else None


global_process_set: Final[ProcessSet] = _WholeJob()
# Those that have an id, which ends with the job.
_registered: Final[list[ProcessSet]] = []


def id_of(process_set: ProcessSet) -> int:
    """What operations know it by.

    Raises:
        ValueError: it is not registered.
    """
    if process_set.process_set_id is None:
        raise ValueError(
            f"{process_set}: Process set does not exist or has not been registered. All ranks do that with "
            "hvd.add_process_set, or give it to hvd.init(process_sets=[...])"
        )
    return process_set.process_set_id


def _forget_others_jobs() -> None:
    """What has been registered in a job that has ended is not registered any more."""
    ids = basics.process_set_ids()
    for one in list(_registered):
        if one.process_set_id in ids and basics.process_set_ranks(id_of(one)) == one.ranks:
            continue
        one.process_set_id = None
        _registered.remove(one)


def add_process_set(process_set: object) -> ProcessSet:
    """Registers a process set, and returns it. All ranks of the job call it, members or not, and it waits for them.

    Args:
        process_set: A `ProcessSet`, or what it is made from; the same on all ranks.

    Raises:
        ValueError: on all ranks: they do not agree, there is such a set, or there are no such ranks; or before
            `init()`.
        RuntimeError: it could not be made, or the job has ended.
    """
    one = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    ranks = one.ranks
    one.process_set_id = basics.add_process_set([] if ranks is None else ranks)
    _registered.append(one)
    return one


def remove_process_set(process_set: ProcessSet) -> bool:
    """Ends a process set. All ranks of the job call it, and it waits for them.

    Collectives that are in flight in it fail. The object may be registered again.

    Returns:
        Whether there was something to remove: False for `global_process_set`, and for what is not registered.

    Raises:
        ValueError: on all ranks: they do not agree; or before `init()`.
        RuntimeError: it did not end well, or the job has ended.
    """
    if process_set is global_process_set or process_set.process_set_id is None:
        return False
    removed = process_set.process_set_id
    basics.remove_process_set(removed)
    for one in [one for one in _registered if one.process_set_id == removed]:  # another one, where of_id made this
        one.process_set_id = None
        _registered.remove(one)
    process_set.process_set_id = None
    return True


def _static(process_sets: object) -> list[ProcessSet]:
    """What `init` is to register.

    Raises:
        ValueError: it is no list of process sets, or one is twice in it.
    """
    if process_sets is None or (isinstance(process_sets, str) and process_sets.lower() == "dynamic"):
        return []
    if not isinstance(process_sets, Iterable) or isinstance(process_sets, str):
        raise ValueError(f"process_sets is {process_sets!r}: a list of hvd.ProcessSet, 'dynamic' or None")
    sets = [one if isinstance(one, ProcessSet) else ProcessSet(one) for one in process_sets]
    seen: list[list[int] | None] = []
    for one in sets:
        if one.ranks in seen:
            raise ValueError(f"{one} in process_sets is a duplicate")
        seen.append(one.ranks)
    return sets


def init(comm: object = None, process_sets: object = None) -> None:
    """Starts the library and meets the other ranks. Harmless when repeated; works again after `shutdown()`.

    The library shuts down by itself when Python exits.

    Returns or fails within HOROVOD_TF_INIT_TIMEOUT_SECONDS and a second or two.

    Args:
        comm: Which of the processes that were started together are the job: their ranks in MPI's world, or an mpi4py
            communicator; `hvd.rank()` is the place in it. The others cannot use the library: their call fails, or they
            do not call it. None: all processes.
        process_sets: `ProcessSet`s to register, the same on all ranks. More can be added at any time, so that
            'dynamic' has no effect.

    Raises:
        ValueError: an environment variable does not parse, the library cannot start the way it was asked to, this
            process is not in `comm`, or ranks do not agree on `process_sets`.
        RuntimeError: something else failed; the text says what.
    """
    ranks: list[int] = []
    if comm is not None:
        ranks = _ranks_of(comm)
        if not ranks:
            raise ValueError("hvd.init() was given an empty list of ranks as comm; None means all processes")
    static = _static(process_sets)
    basics.agree_on("process_sets of hvd.init()", str([one.ranks for one in static]))
    basics.init(ranks)
    _forget_others_jobs()
    try:
        for one in static:
            if one is not global_process_set and one.process_set_id is None:
                add_process_set(one)
    except ValueError:
        basics.shutdown()
        raise
