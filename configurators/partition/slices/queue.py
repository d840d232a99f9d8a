"""The queue of one partition: which tasks still count, and which of them are decided together."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from msgspec import Struct

from configurators.engine.engine import Engine, Ordering
from configurators.engine.partials import Kind, Partial
from configurators.environment import Clock
from configurators.partition.slices.replies import TaskSource
from configurators.partition.tombstones import Tombstones
from configurators.streams.messages import Task
from configurators.streams.packing import BadPacking, unpack_regions
from dzflow.errors import BadInput


class Item(NamedTuple):
    """A task that waits, where its reply goes, and since when it waits (any clock)."""

    task: Task
    to: TaskSource | None
    at: float


class Slice(Struct, frozen=True, eq=False):
    """Tasks that are decided together; `partials[i]` is what the engine gets for `items[i]`."""

    items: Sequence[Item]
    partials: Sequence[Partial]

    def __len__(self) -> int:
        return len(self.items)

    def parts(self) -> tuple[Self, Self]:
        """Two slices to try one after the other when this one does not fit as a whole.

        Removals go first, because they make room. A slice of one sort is halved.
        """
        removes = [i for i, partial in enumerate(self.partials) if partial.kind.removes]
        first = removes if 0 < len(removes) < len(self) else range(len(self) // 2)
        chosen = set(first)
        return self.of(first), self.of(i for i in range(len(self)) if i not in chosen)

    def of(self, places: Iterable[int]) -> Self:
        """A slice with the tasks at these places."""
        chosen = list(places)
        return type(self)([self.items[i] for i in chosen], [self.partials[i] for i in chosen])


class Taken(Struct, frozen=True, eq=False):
    """Tasks taken from a queue: a slice to decide, and tasks that end without a decision.

    `settled` tasks ask for what the engine has already, `refused` tasks for something impossible,
    with the reason.
    """

    slice: Slice
    settled: list[Item]
    refused: list[tuple[Item, str]]


class Queue:
    """Tasks of one partition, at most one for each id: the one with the highest `seq`."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._waiting: dict[str, Item] = {}
        self._seqs: dict[str, int] = {}  # of all ids that wait, are in work or active
        self._gone = Tombstones()
        self._clock = clock or Clock()

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
        """Since when the first task waits; None if no task waits."""
        return next(iter(self._waiting.values())).at if self._waiting else None

    def know(self, name: str, seq: int) -> list[Item]:
        """Note that an id is active under this `seq`; returns a waiting task that is superseded."""
        waiting = self._waiting.get(name)
        if waiting and waiting.task.seq >= seq:
            return []
        self._seqs[name] = seq
        return [self._waiting.pop(name)] if waiting else []

    def put(self, item: Item) -> list[Item]:
        """Queue a task; returns the tasks that are superseded, perhaps this one itself.

        A task that comes again gets one reply, to the source from which it came last.
        """
        name, seq = item.task.id, item.task.seq
        if seq < self.seq(name):
            return [item]
        before = self._waiting.pop(name, None)
        self._waiting[name] = item
        self._seqs[name] = seq
        return [before] if before and before.task.seq < seq else []

    def seq(self, name: str) -> int:
        """The highest `seq` seen of an id; -1 if the id is not known."""
        known = self._seqs.get(name)
        return self._gone.seq(name) if known is None else known

    def counts(self, item: Item) -> bool:
        """Whether a task in work still counts: no newer one has come for its id."""
        return self.seq(item.task.id) <= item.task.seq

    def take(self, engine: Engine, ordering: Ordering, limit: int) -> Taken:
        """Take the first tasks that can be decided together, at most `limit`.

        With the ordering `net` these are tasks of all kinds, otherwise of one kind.
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
        """Note that tasks have ended; the `seq` of an id that is not active is kept for a while."""
        now = self._clock.monotonic()
        for item in items:
            name = item.task.id
            if name not in engine and name not in self._waiting and name in self._seqs:
                self._gone.add(name, self._seqs.pop(name), now)

    def clear(self) -> list[Item]:
        """Take out and return all waiting tasks."""
        items = list(self._waiting.values())
        self._waiting.clear()
        return items


def partial_of(engine: Engine, task: Task) -> Partial | None:
    """What the engine has to do for a task; None if it has done that already.

    BadInput if the task asks for something impossible, such as a host that the network lacks.
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
