"""Offers tasks to configurators; the one that locks a partition takes them (mode `sea`).

An offer is a cache of what is written: tasks that partitions have not done yet. A task that was
taken is offered again when the configurator that took it is gone, or lost the partition's lock.

The configurator that has a partition's lock is told of its tasks at once. The others are told only
of tasks that wait: then one of them may want the lock.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from configurators.environment import Clock
from configurators.streams.messages import Done, Offers, Take, Task, Tasks
from configurators.streams.stream import Stream, StreamClosed
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.metrics import Metrics
from dispatcher.requests.in_flight import InFlight
from dispatcher.requests.operation import Operation
from dzflow.aio import BackgroundTasks, OncePerTurn

_log = logging.getLogger(__name__)

_OTHERS_EVERY = 0.05  # seconds between messages to configurators that do not have the lock
_OTHERS_AFTER = 0.05  # seconds that a task has waited when these are told of it


class _Taken(NamedTuple):
    """The stream and the lock under which a task was taken, and since when it was offered."""

    by: Stream
    epoch: int
    seq: int
    since: float


class OfferDelivery:
    """Tells configurators how many tasks each partition has, and hands them out."""

    def __init__(
        self,
        catalogue: Catalogue,
        fleet: Fleet,
        in_flight: InFlight,
        metrics: Metrics,
        tasks: BackgroundTasks,
        clock: Clock,
    ) -> None:
        self._catalogue = catalogue
        self._fleet = fleet
        self._in_flight = in_flight
        self._metrics = metrics
        self._tasks = tasks
        self._clock = clock
        # By partition, the ids in the order in which they came, and since when each is offered.
        self._offered: dict[str, dict[str, float]] = {}
        self._taken: dict[str, dict[str, _Taken]] = {}
        self._changed: dict[str, None] = {}  # partitions whose count of offers has changed
        self._announce_soon = OncePerTurn(self._announce)
        self._others_know: dict[str, None] = {}  # partitions whose offers others were told of
        self._telling: asyncio.Task[None] | None = None
        fleet.connected.subscribe(self.connected)
        fleet.disconnected.subscribe(self.disconnected)
        fleet.tasks_wanted.subscribe(self.hand_out)

    # As every delivery

    def send(self, operation: Operation) -> None:
        """Offer the tasks that partitions have not done yet."""
        now = self._clock.monotonic()
        for partition, task in operation.rollout.to_send():
            self._offered.setdefault(partition, {}).setdefault(task.id, now)
            self._announce_partition(partition)

    def answered(self, dones: Sequence[Done]) -> None:
        """Tasks that were answered are no longer in the hands of a configurator."""
        for done in dones:
            taken = self._taken.get(done.partition)
            if taken and done.id in taken and taken[done.id].seq == done.seq:
                del taken[done.id]
                if not taken:
                    del self._taken[done.partition]

    def sent_back(self, dones: Sequence[Done]) -> None:
        """Offer again at once: a configurator that is not ready does not take tasks."""
        now = self._clock.monotonic()
        ids: dict[str, dict[str, float]] = {}
        for done in dones:
            ids.setdefault(done.partition, {})[done.id] = now
        for partition, some in ids.items():
            self._offer_first(partition, some)

    def owner_changed(self, partition: str, epoch: int) -> Iterable[Operation]:
        """Offer again what was taken under an older lock.

        No operation: what was done under an older lock is in the partition's log, and counts.
        """
        self.offer_again(lambda name, taken: name == partition and taken.epoch < epoch)
        if partition in self._offered:
            self._others_know[partition] = None  # the former owner does
            self._announce_partition(partition)
        return ()

    def partition_gone(self, partition: str) -> None:
        """Withdraw the offers of a partition that no longer exists."""
        self._taken.pop(partition, None)
        if self._offered.pop(partition, None) is not None:
            self._others_know[partition] = None  # perhaps
            self._announce_partition(partition)

    def outdated(self, operation: Operation) -> Sequence[str]:  # noqa: ARG002
        """None: what was done under an older lock is in the partition's log, and counts."""
        return ()

    # What configurators do

    def hand_out(self, stream: Stream, message: Take) -> None:
        """A configurator has locked a partition, and wants some of its tasks."""
        name = message.partition
        tasks: list[Task] = []
        if message.epoch >= (self._catalogue.epoch(name) or 0):
            offered = self._offered.get(name, {})
            taken = self._taken.setdefault(name, {})
            while offered and len(tasks) < message.limit:
                id = next(iter(offered))
                since = offered.pop(id)
                task = self._open_task(name, id)
                if task:
                    tasks.append(task)
                    taken[id] = _Taken(stream, message.epoch, task.seq, since)
        self._metrics.tasks_sent += len(tasks)
        _tell(stream, Tasks({name: tasks}))
        self._announce_partition(name)

    def connected(self, configurator: str) -> None:
        """A stream is open: tell the configurator of all offers."""
        stream = self._fleet.stream_to(configurator)
        if stream and self._offered:
            _tell(stream, self._offers(self._offered))
            self._others_know |= dict.fromkeys(self._offered)
            self._tell_others_soon()

    def disconnected(self, stream: Stream) -> None:
        """A stream is closed: offer again what was taken through it and not done."""
        self.offer_again(lambda _, taken: taken.by is stream)

    # Offering

    def offer_again(self, which: Callable[[str, _Taken], bool]) -> None:
        """Offer tasks again that were taken."""
        for partition, taken in list(self._taken.items()):
            again = {id: one.since for id, one in taken.items() if which(partition, one)}
            for id in again:
                del taken[id]
            self._offer_first(partition, again)
            if not taken:
                del self._taken[partition]

    def _open_task(self, partition: str, id: str) -> Task | None:
        """The task of a record in a partition, unless it is done by now."""
        operation = self._in_flight.get(id)
        if operation is None or partition not in operation.rollout.open:
            return None
        return operation.rollout.latest[partition]

    def _offer_first(self, partition: str, ids: Mapping[str, float]) -> None:
        """Offer tasks before all others of a partition: they came before these."""
        first = {id: since for id, since in ids.items() if self._open_task(partition, id)}
        if first:
            self._offered[partition] = first | self._offered.get(partition, {})
            self._announce_partition(partition)

    # Telling

    def _announce_partition(self, partition: str) -> None:
        self._changed[partition] = None
        self._announce_soon.schedule()

    def _announce(self) -> None:
        """Tell the holder of each partition that changed; all configurators if none is known."""
        changed, self._changed = self._changed, {}
        streams = self._fleet.configurators.streams()
        names: dict[str, list[str]] = {id: [] for id in streams}
        for partition in changed:
            if not self._offered.get(partition, ()):
                self._offered.pop(partition, None)
            holder = self._holder(partition)
            if holder in streams:
                names[holder].append(partition)
                continue
            self._others_know[partition] = None
            for some in names.values():
                some.append(partition)
        for id, some in names.items():
            if some:
                _tell(streams[id], self._offers(some))
        if self._offered or self._others_know:
            self._tell_others_soon()

    def _tell_others_soon(self) -> None:
        if self._telling is None:
            self._telling = self._tasks.spawn(self._tell_others_while_needed(), "tell of offers")

    async def _tell_others_while_needed(self) -> None:
        try:
            while self._offered or self._others_know:
                await asyncio.sleep(_OTHERS_EVERY)
                self._tell_others()
        finally:
            self._telling = None

    def _tell_others(self) -> None:
        """Tell configurators of tasks that wait, of partitions that others have locked."""
        due = self._clock.monotonic() - _OTHERS_AFTER
        for partition, ids in self._offered.items():
            if ids and next(iter(ids.values())) <= due:
                self._others_know[partition] = None
        known = list(self._others_know)
        for id, stream in self._fleet.configurators.streams().items():
            some = [partition for partition in known if self._holder(partition) != id]
            if some:
                _tell(stream, self._offers(some))
        self._others_know = {name: None for name in known if self._offered.get(name)}

    def _offers(self, partitions: Iterable[str]) -> Offers:
        """What is offered of some partitions, and for how long the oldest task of each waits."""
        now = self._clock.monotonic()
        counts: dict[str, int] = {}
        waits: dict[str, float] = {}
        for partition in partitions:
            ids = self._offered.get(partition, {})
            counts[partition] = len(ids)
            if ids:
                waits[partition] = now - next(iter(ids.values()))
        return Offers(counts, waits)

    def _holder(self, partition: str) -> str:
        """The configurator that has a partition's lock, as far as is known; "" if none has."""
        return self._catalogue.owners.get(partition, ("", 0))[0]


def _tell(stream: Stream, message: Tasks | Offers) -> None:
    try:
        stream.tell(message)
    except StreamClosed as error:
        _log.info("%s; the tasks that it has taken are offered again", error)
