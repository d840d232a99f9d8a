"""Pushes tasks to the owner of each partition (mode `sna`)."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from configurators.environment import Clock
from configurators.streams.messages import Done, Task, Tasks
from configurators.streams.stream import MessageTooLarge, Stream, StreamClosed
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.metrics import Metrics
from dispatcher.requests.in_flight import InFlight
from dispatcher.requests.operation import Operation
from dispatcher.requests.timers import call_after
from dispatcher.requests.writing.wait_reasons import WaitReasons
from dzflow.aio import BackgroundTasks, OncePerTurn

_log = logging.getLogger(__name__)

_CHUNK = 2_000  # tasks in one message
_CHUNK_BYTES = 16 << 20  # of regions in one message, unless one task has more
_RESEND_PAUSE = 0.2  # seconds

ByPartition = dict[str, list[Task]]


class PushDelivery:
    """Sends each task to the owner of its partition, and again to a new owner."""

    def __init__(
        self,
        catalogue: Catalogue,
        fleet: Fleet,
        in_flight: InFlight,
        reasons: WaitReasons,
        metrics: Metrics,
        tasks: BackgroundTasks,
        clock: Clock,
    ) -> None:
        self._catalogue = catalogue
        self._in_flight = in_flight
        self._reasons = reasons
        self._tasks = tasks
        self._outbox = Outbox(fleet.stream_to, metrics, self._unreachable)
        self._to_resend: dict[Operation, None] = {}
        self._metrics = metrics
        self._clock = clock
        self._held: dict[str, _Held] = {}  # by partition: tasks that wait for the next owner
        fleet.connected.subscribe(self.connected)
        catalogue.move_changed.subscribe(self.move_changed)

    def send(self, operation: Operation) -> None:
        """Send the tasks that partitions have not done yet."""
        for partition, task in operation.rollout.to_send():
            self._post(partition, task)

    def _post(self, partition: str, task: Task) -> None:
        owner = self._catalogue.owners.get(partition)
        if not owner:
            return
        if self._catalogue.holds_back(partition):
            held = self._held.get(partition)
            if held is None:
                held = self._held[partition] = _Held(self._clock.monotonic())
            held.ids.add(task.id)
        else:
            self._outbox.post(owner, partition, task)

    def answered(self, dones: Sequence[Done]) -> None:
        """Nothing is remembered of tasks that were sent."""

    def sent_back(self, dones: Sequence[Done]) -> None:
        """Send again soon, unless the new owner becomes known first.

        The new owner may be the same process, which has not noticed yet.
        """
        if not self._to_resend:
            call_after(self._tasks, _RESEND_PAUSE, self._resend)
        for done in dones:
            operation = self._in_flight.get(done.id)
            if operation:
                self._to_resend[operation] = None

    def owner_changed(self, partition: str, epoch: int) -> Iterable[Operation]:  # noqa: ARG002
        """All operations of the partition: its new owner reads only settled ones from etcd."""
        self._release(partition)
        return self._in_flight.in_partition(partition)

    def partition_gone(self, partition: str) -> None:
        """Hold nothing back for a partition that no longer exists."""
        self._held.pop(partition, None)

    def outdated(self, operation: Operation) -> Sequence[str]:
        """Partitions whose present owner has not done what a former owner did."""
        return operation.rollout.outdated(self._catalogue.epoch)

    def connected(self, configurator: str) -> None:
        """A stream is open: send again what may have been lost with the one before."""
        owners = self._catalogue.owners
        for partition in self._in_flight.partitions():
            owner = owners.get(partition)
            if owner and owner[0] == configurator:
                self._send_open(partition)

    def move_changed(self, partition: str) -> None:
        """Send what was held back, if the partition stays where it is.

        If it has moved, `owner_changed` does the same for the new owner.
        """
        if not self._catalogue.holds_back(partition) and self._release(partition):
            self._send_open(partition)

    def _release(self, partition: str) -> bool:
        """Hold nothing of a partition back any more; whether something was."""
        held = self._held.pop(partition, None)
        if held:
            self._metrics.migrations.held(self._clock.monotonic() - held.since, len(held.ids))
        return held is not None

    def _send_open(self, partition: str) -> None:
        for operation in self._in_flight.in_partition(partition):
            if partition in operation.rollout.open:
                self._post(partition, operation.rollout.latest[partition])

    def _resend(self) -> None:
        operations, self._to_resend = self._to_resend, {}
        for operation in operations:
            if not operation.ended:
                self.send(operation)

    def _unreachable(self, configurator: str, tasks: ByPartition) -> None:
        """Note that tasks wait; they are sent again when the configurator is connected."""
        for partition, some in tasks.items():
            for task in some:
                operation = self._in_flight.get(task.id)
                if operation and partition in operation.rollout.open:
                    operation.rollout.waiting = f"configurator {configurator} cannot be reached"
                    self._reasons.store_soon(operation)


class _Held:
    """Tasks of a partition that are held back, and since when."""

    __slots__ = ("ids", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.ids: set[str] = set()


class _Letter(NamedTuple):
    """Tasks for a configurator, and the epochs with which it owns their partitions."""

    tasks: ByPartition
    epochs: dict[str, int]


class Outbox:
    """Sends the tasks that come in one turn of the loop together, one message per configurator.

    Tasks for a configurator that cannot be reached are handed to `unreachable`; they are to be
    posted again when it can.
    """

    def __init__(
        self,
        stream_to: Callable[[str], Stream | None],
        metrics: Metrics,
        unreachable: Callable[[str, ByPartition], None],
    ) -> None:
        self._stream_to = stream_to
        self._metrics = metrics
        self._unreachable = unreachable
        self._posted: dict[str, list[_Letter]] = {}  # by configurator
        self._flush_soon = OncePerTurn(self._flush)

    def post(self, owner: tuple[str, int], partition: str, task: Task) -> None:
        """Send a task soon to the owner of a partition, given by name and epoch."""
        self._flush_soon.schedule()
        configurator, epoch = owner
        letters = self._posted.setdefault(configurator, [])
        if not letters or letters[-1].epochs.setdefault(partition, epoch) != epoch:
            letters.append(_Letter({}, {partition: epoch}))  # it has lost and regained it
        letters[-1].tasks.setdefault(partition, []).append(task)

    def _flush(self) -> None:
        posted, self._posted = self._posted, {}
        for configurator, letter in ((to, one) for to, some in posted.items() for one in some):
            tasks, epochs = letter
            stream = self._stream_to(configurator)
            try:
                if stream is None:
                    raise StreamClosed("there is no stream to it")
                for part in _chunks(tasks):
                    self._metrics.tasks_sent += sum(map(len, part.values()))
                    stream.tell(Tasks(part, {name: epochs[name] for name in part}))
            except StreamClosed as error:
                _log.info("tasks wait for configurator %s: %s", configurator, error)
                self._unreachable(configurator, tasks)
            except MessageTooLarge as error:
                _log.error("tasks cannot be sent to configurator %s: %s", configurator, error)
                self._unreachable(configurator, tasks)


def _chunks(tasks: ByPartition) -> Iterator[ByPartition]:
    """Tasks in messages of a bounded size."""
    part: ByPartition = {}
    count = size = 0
    for partition, some in tasks.items():
        for task in some:
            extent = len(task.regions) + len(task.edge)
            if part and (count == _CHUNK or size + extent > _CHUNK_BYTES):
                yield part
                part, count, size = {}, 0, 0
            piece = part.get(partition)
            if piece is None:
                part[partition] = [task]
            else:
                piece.append(task)
            count += 1
            size += extent
    if part:
        yield part
