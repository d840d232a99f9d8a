"""Has partitions carry out operations, and gathers their answers.

The decisions are `dispatcher/requests/rollout.py`'s; the gatherer acts on them, for many operations
at a time.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from configurators.environment import Clock
from configurators.state.spaces import LoadedSpace
from configurators.store.documents import decode_record
from configurators.store.etcd.client import Stored, StoreError
from configurators.store.keys import PartitionName
from configurators.streams.messages import Done, Dones, Waiting
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.metrics import Metrics
from dispatcher.requests.delivery.delivery import Delivery
from dispatcher.requests.in_flight import InFlight
from dispatcher.requests.operation import Ending, Operation, Stage
from dispatcher.requests.rollout import Next
from dispatcher.requests.steps import Steps
from dispatcher.requests.timers import call_after
from dispatcher.requests.writing.record_writer import RecordWriter
from dispatcher.requests.writing.wait_reasons import WaitReasons
from dzflow.aio import BackgroundTasks

_log = logging.getLogger(__name__)

_PAUSE = 1.0  # seconds before the next attempt


class TaskTrace(Protocol):
    """Keeps a row for each task that was done or refused."""

    def task_ended(self, operation: Operation, done: Done, configurator: str) -> None:
        """A configurator has done or refused a task."""


class Gatherer:
    """Drives operations from their first write until all partitions have done their part."""

    def __init__(
        self,
        catalogue: Catalogue,
        fleet: Fleet,
        in_flight: InFlight,
        delivery: Delivery,
        reasons: WaitReasons,
        writer: RecordWriter,
        metrics: Metrics,
        trace: TaskTrace | None,
        steps: Steps,
        tasks: BackgroundTasks,
        clock: Clock,
    ) -> None:
        self._catalogue = catalogue
        self._in_flight = in_flight
        self._delivery = delivery
        self._reasons = reasons
        self._writer = writer
        self._metrics = metrics
        self._trace = trace
        self._steps = steps
        self._tasks = tasks
        self._clock = clock
        fleet.tasks_done.subscribe(self.tasks_done)
        fleet.tasks_waiting.subscribe(self._tasks_waiting)
        catalogue.owner_changed.subscribe(self._owner_changed)
        catalogue.space_changed.subscribe(self._space_changed)

    def deliver(self, operation: Operation) -> None:
        """Carry out an operation that is written; it replaces an earlier one on its record."""
        record = operation.record
        other = self._in_flight.get(record.id)
        if other is not None and other.record.seq > record.seq:
            # The answer of etcd to the later write came first.
            self._steps.end(operation, other.record, Ending.SUPERSEDED)
            return
        if other is not None:
            self._steps.end(other, record, Ending.SUPERSEDED)
        self._in_flight.add(operation)
        space = self._catalogue.spaces.get(record.space)
        for name in operation.rollout.partitions:
            if name not in self._catalogue.owners and space and not _has(space, name):
                operation.rollout.partition_gone(name)  # since the operation was routed
            else:
                self._in_flight.add_partition(operation, name)
        self._act(operation, operation.rollout.start())

    def resend(self, operation: Operation) -> None:
        """Tell partitions again what they have not done yet."""
        self._act(operation, Next.SEND)

    def record_changed(
        self, operation: Operation, found: Stored | None, then: Callable[[Operation], None]
    ) -> None:
        """The record is not as the operation knew it: end the operation, or go on with `then`."""
        if found is None:
            self._act(operation, operation.rollout.withdraw())
            return
        record, known = decode_record(found.value), operation.record
        if record.open and (record.by, record.seq) == (known.by, known.seq):
            # A write of this operation did succeed, though etcd's answer was lost.
            operation.record, operation.revision = record, found.revision
            then(operation)
        else:
            self._steps.end(operation, record, Ending.SUPERSEDED)

    # What configurators tell

    def tasks_done(self, message: Dones, configurator: str) -> None:
        """A configurator has answered tasks."""
        counts, in_flight = self._metrics.tasks_done, self._in_flight.get
        self._delivery.answered(message.dones)
        sent_back: list[Done] = []
        adds = modifies = deletes = 0
        for done in message.dones:
            counts[done.outcome] += 1
            operation = in_flight(done.id)
            if operation is None:
                continue
            rollout = operation.rollout
            if done.outcome in ("done", "failed") and rollout.awaits(done):
                if self._trace:
                    self._trace.task_ended(operation, done, configurator)
                if done.outcome == "done":
                    operation.last_done = self._clock.monotonic()
                    adds += done.adds
                    modifies += done.modifies
                    deletes += done.deletes
            if done.outcome == "moved" or rollout.by_former_owner(done):
                sent_back.append(done)
            self._act(operation, rollout.done(done))
        self._metrics.adds += adds
        self._metrics.modifies += modifies
        self._metrics.deletes += deletes
        if sent_back:
            self._delivery.sent_back(sent_back)

    def _tasks_waiting(self, message: Waiting) -> None:
        """A configurator's tasks wait for a switch."""
        partition = message.partition
        for id, seq in message.tasks:
            operation = self._in_flight.get(id)
            if operation is None or partition not in operation.rollout.open:
                continue
            if operation.rollout.latest[partition].seq == seq:
                operation.rollout.waiting = message.reason
                self._reasons.store_soon(operation)

    # What changes in the store

    def _owner_changed(self, partition: str, epoch: int | None) -> None:
        if epoch is None:
            self._partition_gone(partition)
            return
        for operation in self._delivery.owner_changed(partition, epoch):
            self._act(operation, operation.rollout.owner_changed(partition, epoch))

    def _space_changed(self, name: str) -> None:
        """Wait no longer for partitions of versions that a space does not have any more."""
        space = self._catalogue.spaces.get(name)
        if space:
            for partition in self._in_flight.partitions():
                if not _has(space, partition):
                    self._partition_gone(partition)

    def _partition_gone(self, partition: str) -> None:
        self._delivery.partition_gone(partition)
        for operation in self._in_flight.remove_partition(partition):
            self._act(operation, operation.rollout.partition_gone(partition))

    # Acting

    def _act(self, operation: Operation, what: Next) -> None:
        if what is Next.WAIT:
            return
        if what is Next.SEND:
            operation.enter(Stage.DELIVERING)
            self._delivery.send(operation)
        elif what is Next.SETTLE:
            operation.enter(Stage.COMPLETE)
            self._steps.settle(operation)
        elif what is Next.PAUSE:
            call_after(self._tasks, _PAUSE, partial(self._retry, operation))
        else:
            self._tasks.spawn(self._check(operation), f"check {operation.id}")

    def _retry(self, operation: Operation) -> None:
        if not operation.ended:
            self._act(operation, operation.rollout.retry())

    async def _check(self, operation: Operation) -> None:
        """A partition has a newer task of this record: find out which operation it belongs to."""
        try:
            found = await self._writer.read(operation.key)
        except StoreError as error:
            _log.warning("cannot read %s: %s", operation.key, error)
            call_after(self._tasks, _PAUSE, partial(self._act, operation, Next.CHECK))
            return
        if operation.ended:
            return
        if found and found.revision == operation.revision:
            # To none that is open: the task came from an operation that was never settled.
            self._steps.restart(operation)
        else:
            self._steps.record_changed(operation, found, self._steps.restart)


def _has(space: LoadedSpace, partition: str) -> bool:
    """Whether a space still has a partition; also true for partitions of other spaces."""
    name = PartitionName.parse(partition)
    view = space.versions.get(name.version)
    return name.space != space.number or (view is not None and view.has(name.leaf))
