"""Tasks that are offered to all configurators, for whoever locks their partitions (mode `sea`).

An offer is a cache of what is journaled: operations that partitions have not done yet. What was
taken is offered again when whoever took it is gone, or owns the partition no more.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from configurators.store.etcd.client import Etcd
from configurators.streams.messages import Dones, Offers, Take, Task, Tasks
from configurators.streams.stream import Stream, StreamClosed
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.reachability import Reach
from dispatcher.reports.metrics import Metrics
from dispatcher.requests.driver import Gatherer
from dispatcher.requests.operation import Operation
from dispatcher.requests.outbox import StreamTo
from dispatcher.requests.record_writer import Journal

_log = logging.getLogger(__name__)


class _Taken(NamedTuple):
    """Who has taken a task."""

    by: Stream
    epoch: int
    seq: int


class OfferingGatherer(Gatherer):
    """All operations in flight of this dispatcher; their tasks go to those who ask for them."""

    def __init__(
        self,
        etcd: Etcd,
        catalogue: Catalogue,
        journal: Journal,
        metrics: Metrics,
        stream_to: StreamTo,
        reach: Reach,
        streams: Callable[[], Iterable[Stream]],
    ) -> None:
        super().__init__(etcd, catalogue, journal, metrics, stream_to, reach)
        self._stream_to = stream_to
        self._streams = streams
        self._waiting: dict[str, dict[str, None]] = {}  # ids by partition, in the order they came
        self._taken: dict[str, dict[str, _Taken]] = {}
        self._changed: dict[str, None] = {}  # partitions of which there is more or less now

    # What configurators tell

    def hear_dones(self, message: Dones, configurator: str) -> None:
        """Tasks have come to their end at a configurator."""
        for done in message.dones:
            taken = self._taken.get(done.partition)
            if taken and done.id in taken and taken[done.id].seq == done.seq:
                del taken[done.id]
                if not taken:
                    del self._taken[done.partition]
        super().hear_dones(message, configurator)
        moved: dict[str, list[str]] = {}
        for done in message.dones:
            if done.outcome == "moved":
                moved.setdefault(done.partition, []).append(done.id)
        for partition, ids in moved.items():
            self._offer_first(partition, ids)

    def hear_take(self, stream: Stream, message: Take) -> None:
        """Somebody has locked a partition, and wants some of its tasks."""
        name = message.partition
        tasks: list[Task] = []
        if message.epoch >= (self._catalogue.epoch(name) or 0):
            waiting = self._waiting.get(name, {})
            taken = self._taken.setdefault(name, {})
            while waiting and len(tasks) < message.limit:
                id = next(iter(waiting))
                del waiting[id]
                task = self._open_task(name, id)
                if task:
                    tasks.append(task)
                    taken[id] = _Taken(stream, message.epoch, task.seq)
        self._metrics.tasks_sent += len(tasks)
        self._tell(stream, Tasks({name: tasks}))
        self._tell_soon(name)

    def connected(self, configurator: str) -> None:
        """A stream is open: tell of all that is offered."""
        stream = self._stream_to(configurator)
        if stream and self._waiting:
            self._tell(stream, Offers({name: len(ids) for name, ids in self._waiting.items()}))

    def disconnected(self, stream: Stream) -> None:
        """A stream is over: what was taken by it and not done is offered again."""
        self._offer_again(lambda _, taken: taken.by is stream)

    # What happens otherwise

    def _owner_changed(self, partition: str, epoch: int | None) -> None:
        if epoch is None:
            self._waiting.pop(partition, None)
            self._taken.pop(partition, None)
            super()._owner_changed(partition, None)
        else:
            # What was done before is journaled, and counts.
            self._offer_again(lambda name, taken: name == partition and taken.epoch < epoch)

    def _send(self, operation: Operation) -> None:
        for partition, task in operation.to_send():
            self._offer(partition, task.id)

    def _told_again(self, operation: Operation) -> bool:  # noqa: ARG002 - whatever it is
        """Never: what was done under an older lock is in the partition's journal, and counts."""
        return False

    def _told_moved(self, operation: Operation) -> None:
        """It is offered again at once; whoever is not ready does not take it."""

    # Offering

    def _open_task(self, partition: str, id: str) -> Task | None:
        """What a partition is to be told of a record, unless it is done by now."""
        operation = self.operations.get(id)
        if operation is None or partition not in operation.open:
            return None
        return operation.latest[partition]

    def _offer(self, partition: str, id: str) -> None:
        if self._open_task(partition, id):
            self._waiting.setdefault(partition, {})[id] = None
            self._tell_soon(partition)

    def _offer_first(self, partition: str, ids: Iterable[str]) -> None:
        """Offer again what was taken: it came before all others."""
        first = {id: None for id in ids if self._open_task(partition, id)}
        if first:
            self._waiting[partition] = first | self._waiting.get(partition, {})
            self._tell_soon(partition)

    def _offer_again(self, which: Callable[[str, _Taken], bool]) -> None:
        for partition, taken in list(self._taken.items()):
            again = [id for id, one in taken.items() if which(partition, one)]
            for id in again:
                del taken[id]
            self._offer_first(partition, again)
            if not taken:
                del self._taken[partition]

    def _tell_soon(self, partition: str) -> None:
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._tell_all)
        self._changed[partition] = None

    def _tell_all(self) -> None:
        changed, self._changed = self._changed, {}
        counts = {}
        for partition in changed:
            counts[partition] = len(self._waiting.get(partition, ()))
            if not counts[partition]:
                self._waiting.pop(partition, None)
        for stream in self._streams():
            self._tell(stream, Offers(counts))

    def _tell(self, stream: Stream, message: Tasks | Offers) -> None:
        try:
            stream.tell(message)
        except StreamClosed as error:
            _log.info("%s; what it has taken is offered again", error)
