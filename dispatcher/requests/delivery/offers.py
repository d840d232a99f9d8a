"""Offers tasks to all configurators; the one that locks a partition takes them (mode `sea`).

An offer is a cache of what is written: tasks that partitions have not done yet. A task that was
taken is offered again when the configurator that took it is gone, or lost the partition's lock.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from configurators.streams.messages import Done, Offers, Take, Task, Tasks
from configurators.streams.stream import Stream, StreamClosed
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.metrics import Metrics
from dispatcher.requests.in_flight import InFlight
from dispatcher.requests.operation import Operation
from dzflow.aio import OncePerTurn

_log = logging.getLogger(__name__)


class _Taken(NamedTuple):
    """The stream and the lock under which a task was taken."""

    by: Stream
    epoch: int
    seq: int


class OfferDelivery:
    """Tells all configurators how many tasks each partition has, and hands them out."""

    def __init__(
        self, catalogue: Catalogue, fleet: Fleet, in_flight: InFlight, metrics: Metrics
    ) -> None:
        self._catalogue = catalogue
        self._fleet = fleet
        self._in_flight = in_flight
        self._metrics = metrics
        self._offered: dict[str, dict[str, None]] = {}  # ids by partition, in the order they came
        self._taken: dict[str, dict[str, _Taken]] = {}
        self._changed: dict[str, None] = {}  # partitions whose count of offers has changed
        self._announce_soon = OncePerTurn(self._announce)
        fleet.connected.subscribe(self.connected)
        fleet.disconnected.subscribe(self.disconnected)
        fleet.tasks_wanted.subscribe(self.hand_out)

    # As every delivery

    def send(self, operation: Operation) -> None:
        """Offer the tasks that partitions have not done yet."""
        for partition, task in operation.rollout.to_send():
            self._offered.setdefault(partition, {})[task.id] = None
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
        ids: dict[str, list[str]] = {}
        for done in dones:
            ids.setdefault(done.partition, []).append(done.id)
        for partition, some in ids.items():
            self._offer_first(partition, some)

    def owner_changed(self, partition: str, epoch: int) -> Iterable[Operation]:
        """Offer again what was taken under an older lock.

        No operation: what was done under an older lock is in the partition's log, and counts.
        """
        self.offer_again(lambda name, taken: name == partition and taken.epoch < epoch)
        return ()

    def partition_gone(self, partition: str) -> None:
        """Forget the offers of a partition that no longer exists."""
        self._offered.pop(partition, None)
        self._taken.pop(partition, None)

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
                del offered[id]
                task = self._open_task(name, id)
                if task:
                    tasks.append(task)
                    taken[id] = _Taken(stream, message.epoch, task.seq)
        self._metrics.tasks_sent += len(tasks)
        _tell(stream, Tasks({name: tasks}))
        self._announce_partition(name)

    def connected(self, configurator: str) -> None:
        """A stream is open: tell the configurator of all offers."""
        stream = self._fleet.stream_to(configurator)
        if stream and self._offered:
            _tell(stream, Offers({name: len(ids) for name, ids in self._offered.items()}))

    def disconnected(self, stream: Stream) -> None:
        """A stream is closed: offer again what was taken through it and not done."""
        self.offer_again(lambda _, taken: taken.by is stream)

    # Offering

    def offer_again(self, which: Callable[[str, _Taken], bool]) -> None:
        """Offer tasks again that were taken."""
        for partition, taken in list(self._taken.items()):
            again = [id for id, one in taken.items() if which(partition, one)]
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

    def _offer_first(self, partition: str, ids: Iterable[str]) -> None:
        """Offer tasks before all others of a partition: they came before these."""
        first = {id: None for id in ids if self._open_task(partition, id)}
        if first:
            self._offered[partition] = first | self._offered.get(partition, {})
            self._announce_partition(partition)

    def _announce_partition(self, partition: str) -> None:
        self._changed[partition] = None
        self._announce_soon.schedule()

    def _announce(self) -> None:
        """Tell all configurators how many tasks are offered of the partitions that changed."""
        changed, self._changed = self._changed, {}
        counts = {}
        for partition in changed:
            counts[partition] = len(self._offered.get(partition, ()))
            if not counts[partition]:
                self._offered.pop(partition, None)
        for stream in self._fleet.configurators.streams().values():
            _tell(stream, Offers(counts))


def _tell(stream: Stream, message: Tasks | Offers) -> None:
    try:
        stream.tell(message)
    except StreamClosed as error:
        _log.info("%s; the tasks that it has taken are offered again", error)
