"""The queue of one partition: which tasks still count, and which of them are decided together."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from msgspec import Struct

from configurators.engine.engine import Engine, Ordering
from configurators.engine.partials import Kind, Partial
from configurators.partition.replies import TaskSource
from configurators.streams.messages import Task
from configurators.streams.packing import BadPacking, unpack_regions
from dzflow.errors import BadInput

TOMBSTONES = 10_000  # ids that are gone, of which the last `seq` is remembered


class Item(NamedTuple):
    """A task that waits, where its reply goes, and since when it waits (any clock)."""

    task: Task
    to: TaskSource | None
    at: float


class Slice(Struct, frozen=True, eq=False):
    """Tasks that are decided together; `partials[i]` is what `items[i]` means to the engine."""

    items: Sequence[Item]
    partials: Sequence[Partial]

    def __len__(self) -> int:
        return len(self.items)

    def parts(self) -> tuple[Self, Self]:
        """Two slices to try one after the other when this one does not fit as a whole.

        What only makes room goes first; otherwise it is halved.
        """
        removes = [i for i, partial in enumerate(self.partials) if partial.kind.removes]
        first = removes if 0 < len(removes) < len(self) else range(len(self) // 2)
        chosen = set(first)
        return self.of(first), self.of(i for i in range(len(self)) if i not in chosen)

    def of(self, places: Iterable[int]) -> Self:
        """The slice of some of the tasks."""
        chosen = list(places)
        return type(self)([self.items[i] for i in chosen], [self.partials[i] for i in chosen])


class Taken(Struct, frozen=True, eq=False):
    """What was taken from a queue: a slice to decide, and tasks that come to their end without.

    `settled` asks for what is so already; `refused` for what cannot be, with the reason.
    """

    slice: Slice
    settled: list[Item]
    refused: list[tuple[Item, str]]


class Queue:
    """Tasks of one partition, at most one for each id: the one with the highest `seq`."""

    def __init__(self, tombstones: int = TOMBSTONES) -> None:
        self._waiting: dict[str, Item] = {}
        self._seqs: dict[str, int] = {}  # of all that wait, are worked on or active
        self._gone: dict[str, int] = {}  # of the last that were removed
        self._limit = tombstones
        self.newest = 0.0  # when the last task came

    def __len__(self) -> int:
        return len(self._waiting)

    def waiting(self) -> list[Item]:
        """The tasks that wait."""
        return list(self._waiting.values())

    def waits(self, name: str) -> bool:
        """Whether a task waits for an id."""
        return name in self._waiting

    @property
    def oldest(self) -> float | None:
        """Since when the first task waits."""
        return next(iter(self._waiting.values())).at if self._waiting else None

    def know(self, name: str, seq: int) -> list[Item]:
        """An id is active since before, under this `seq`; returns what no longer counts by that."""
        waiting = self._waiting.get(name)
        if waiting and waiting.task.seq >= seq:
            return []
        self._seqs[name] = seq
        return [self._waiting.pop(name)] if waiting else []

    def put(self, item: Item) -> list[Item]:
        """Let a task wait; returns those that no longer count, perhaps this one itself.

        One that comes again is answered once, to whom it came from last.
        """
        name, seq = item.task.id, item.task.seq
        if seq < self.seq(name):
            return [item]
        before = self._waiting.pop(name, None)
        self._waiting[name] = item
        self._gone.pop(name, None)
        self._seqs[name] = seq
        self.newest = item.at
        return [before] if before and before.task.seq < seq else []

    def seq(self, name: str) -> int:
        """The highest `seq` that was seen of an id; -1 if it is not known."""
        known = self._seqs.get(name)
        return self._gone.get(name, -1) if known is None else known

    def counts(self, item: Item) -> bool:
        """Whether nothing newer came for the id of a task that is being worked on."""
        return self.seq(item.task.id) <= item.task.seq

    def take(self, engine: Engine, ordering: Ordering, limit: int) -> Taken:
        """Take the first tasks that can be decided together, at most so many.

        Under `net` these are any; otherwise they are all of one kind.
        """
        taken = Taken(Slice([], []), [], [])
        items: list[Item] = []
        partials: list[Partial] = []
        run: Kind | None = None
        passed = 0
        for item in self._waiting.values():
            if len(partials) >= limit:
                break
            try:
                partial = partial_of(engine, item.task)
            except BadInput as error:
                taken.refused.append((item, str(error)))
            else:
                if partial is None:
                    taken.settled.append(item)
                elif ordering == "net" or run in (None, partial.kind):
                    run = partial.kind
                    items.append(item)
                    partials.append(partial)
                else:
                    break
            passed += 1
        for name in [name for name, _ in zip(self._waiting, range(passed), strict=False)]:
            del self._waiting[name]
        return Taken(Slice(items, partials), taken.settled, taken.refused)

    def ended(self, engine: Engine, items: Iterable[Item]) -> None:
        """Tasks have come to their end: what is not active any more is remembered as gone."""
        for item in items:
            name = item.task.id
            if name not in engine and name not in self._waiting and name in self._seqs:
                self._gone[name] = self._seqs.pop(name)
        while len(self._gone) > self._limit:
            del self._gone[next(iter(self._gone))]

    def clear(self) -> list[Item]:
        """Take everything out, to be answered otherwise."""
        items = list(self._waiting.values())
        self._waiting.clear()
        return items


def partial_of(engine: Engine, task: Task) -> Partial | None:
    """What a task means to an engine; None if it asks for what is so already.

    BadInput if it asks for what cannot be: a host that the network does not have, say.
    """
    known = engine.get(task.id)
    try:
        regions, edge = unpack_regions(task.regions), unpack_regions(task.edge)
    except BadPacking as error:
        raise BadInput(f"{task.id!r}: {error}") from error
    if not regions:
        if known is None:
            return None
        removes = Kind.UNADVERTISE if known.kind is Kind.ADVERTISE else Kind.UNSUBSCRIBE
        return Partial(removes, task.id)
    for region in (*regions, *edge):
        engine.plan.check(region)
    if known is None:
        engine.plan.routes.topology.host(task.host)
        kind = Kind.ADVERTISE if task.advertised else Kind.SUBSCRIBE
        return Partial(kind, task.id, task.host, regions, edge)
    if set(known.regions) == set(regions) and set(known.edge) == set(edge):
        return None
    return Partial(Kind.UPDATE, task.id, task.host, regions, edge)
