"""One partition in a replay: gathers tasks into slices, and has the engine decide them.

The clock is passed in: nothing here does I/O.
"""

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import NamedTuple

from bench.replay.model import Operations
from configurators.engine.engine import Engine, Ordering
from configurators.engine.partials import Kind, Partial
from dzflow.region import Region
from sdn.tables.flows import Change, count


class Task(NamedTuple):
    """What a partition shall have of a record; without regions, nothing."""

    id: str
    host: str
    advertised: bool
    regions: tuple[Region, ...] = ()
    edge: tuple[Region, ...] = ()


class EntryCount:
    """The entries of all partitions together: now, and at most."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0

    def add(self, change: int) -> None:
        """Count entries that came or went."""
        self.now += change
        self.most = max(self.most, self.now)


class PartitionReplay:
    """The engine of one partition, and what it has done so far.

    A slice is decided when `limit` partials wait. What comes for a record of which something waits
    already stays until that is decided, as in the service, where a record's operations follow each
    other. With another ordering than `net` a slice is decided in runs of one kind.
    """

    def __init__(
        self,
        engine: Engine,
        limit: int,
        ordering: Ordering,
        clock: Callable[[], float],
        entries: EntryCount,
    ) -> None:
        self.engine = engine
        self.partials = 0
        self.slices = 0
        self.seconds = 0.0
        self.operations = dict.fromkeys(Change, 0)
        self._limit = limit
        self._ordering: Ordering = ordering
        self._clock = clock
        self._entries = entries
        self._waiting: dict[str, Task] = {}
        self._later: list[Task] = []

    @property
    def counted(self) -> Operations:
        """The flow operations so far."""
        by = self.operations
        return Operations(by[Change.ADD], by[Change.MODIFY], by[Change.DELETE])

    def put(self, task: Task) -> None:
        """Take something in; decide if a slice is full."""
        self._take_in(task)
        # The second bound is for records that change all the time: memory must not grow.
        while len(self._waiting) >= self._limit or len(self._later) >= self._limit:
            self._decide_waiting()

    def finish(self) -> None:
        """Decide everything that waits."""
        while self._waiting:
            self._decide_waiting()

    def _decide_waiting(self) -> None:
        slice_, later = self._waiting, self._later
        self._waiting, self._later = {}, []
        partials = [found for task in slice_.values() if (found := self._partial(task))]
        if self._ordering == "net":
            self._decide(partials)
        else:
            for _, run in groupby(partials, key=lambda partial: partial.kind):
                self._decide(list(run))
        for task in later:
            self._take_in(task)

    def _take_in(self, task: Task) -> None:
        if task.id in self._waiting:
            self._later.append(task)
        else:
            self._waiting[task.id] = task

    def _decide(self, partials: list[Partial]) -> None:
        if not partials:
            return
        began = self._clock()
        decision = self.engine.decide(partials, self._ordering)
        self.engine.commit(decision)
        self.seconds += self._clock() - began
        self.partials += len(partials)
        self.slices += 1
        counts = count(decision.rounds)
        for change, number in counts.items():
            self.operations[change] += number
        self._entries.add(counts[Change.ADD] - counts[Change.DELETE])

    def _partial(self, task: Task) -> Partial | None:
        """What the engine has to do; None if it has done that already."""
        known = self.engine.get(task.id)
        if not task.regions:
            if known is None:
                return None
            return Partial(Kind.UNADVERTISE if task.advertised else Kind.UNSUBSCRIBE, task.id)
        if known is None:
            kind = Kind.ADVERTISE if task.advertised else Kind.SUBSCRIBE
        elif _same(known.regions, task.regions) and _same(known.edge, task.edge):
            return None
        else:
            kind = Kind.UPDATE
        return Partial(kind, task.id, task.host, task.regions, task.edge)


def _same(first: Iterable[Region], second: Iterable[Region]) -> bool:
    return set(first) == set(second)
