"""Drives operations from the journal to their end: tells partitions, gathers answers, settles.

The decisions are `dispatcher/requests/operation.py`'s; here they are carried out, many at a time.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from configurators.state.spaces import SpaceView
from configurators.store.documents import decode_record, encode
from configurators.store.etcd.client import Compare, Delete, Etcd, Put, Stored, StoreError
from configurators.store.keys import PartitionName, record_key, ttl_key
from configurators.store.model import Record
from configurators.streams.messages import Done, Dones, Task, Waiting
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.reachability import Reach
from dispatcher.reports.metrics import Metrics
from dispatcher.reports.record_view import timing_of
from dispatcher.requests.operation import Next, Operation
from dispatcher.requests.outbox import Outbox, StreamTo
from dispatcher.requests.record_writer import Journal, Verdict, Write

_log = logging.getLogger(__name__)

_PAUSE = 1.0  # before something that was refused, or could not be stored, is tried again
_MOVED_PAUSE = 0.2


class Gatherer:
    """All operations in flight of this dispatcher, by record."""

    def __init__(
        self,
        etcd: Etcd,
        catalogue: Catalogue,
        journal: Journal,
        metrics: Metrics,
        stream_to: StreamTo,
        reach: Reach,
    ) -> None:
        self._etcd = etcd
        self._catalogue = catalogue
        self._journal = journal
        self._metrics = metrics
        self._reach = reach
        self.operations: dict[str, Operation] = {}
        self.on_end: Callable[[Operation, Record, str], None] = lambda *_: None
        """Called with an operation, the record as it is now, and the outcome: done, failed, or
        superseded by somebody else's operation on the record."""
        self.on_restart: Callable[[Operation], None] = lambda _: None
        """Called when an operation has to be journaled and routed anew."""
        self.on_done: Callable[[Operation, Done, str], None] = lambda *_: None
        """Called for each partial that was carried out or refused, and by whom, for the trace."""
        self._by_partition: dict[str, dict[Operation, None]] = {}
        self._outbox = Outbox(stream_to, metrics, self._unreachable)
        self._moved: dict[Operation, None] = {}
        self._slow: dict[Operation, None] = {}  # those whose reason to wait is to be stored
        self._noting: dict[Operation, Callable[[Operation], None] | None] = {}  # and what is next
        self._cut_off: dict[Operation, None] = {}  # done, but by switches that are there only
        # By space: those that wait until it is known anew, and under what they were refused.
        self._refreshing: dict[str, list[tuple[Operation, Sequence[Compare]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        catalogue.on_owner.append(self._owner_changed)
        catalogue.on_space.append(self._space_changed)

    async def close(self) -> None:
        """Stop what runs in the background."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Coming in

    def start(self, operation: Operation) -> None:
        """Drive an operation that is journaled; it takes the place of another on its record."""
        record = operation.record
        before = self.operations.get(record.id)
        if before is not None:
            self._end(before, record, "superseded")
        self.operations[record.id] = operation
        space = self._catalogue.spaces.get(record.space)
        for name in {**operation.before, **operation.after}:
            if name not in self._catalogue.owners and space and not _has(space, name):
                operation.owner_changed(name, None)  # gone since it was routed
            else:
                self._by_partition.setdefault(name, {})[operation] = None
        self._act(operation, operation.start())

    def hear_dones(self, message: Dones, configurator: str) -> None:
        """Tasks have come to their end at a configurator."""
        operations, counts = self.operations, self._metrics.tasks_done
        for done in message.dones:
            counts[done.outcome] += 1
            operation = operations.get(done.id)
            if operation is None:
                continue
            if done.outcome in ("done", "failed") and operation.awaits(done):
                self.on_done(operation, done, configurator)
                if done.outcome == "done":
                    operation.last_done = time.monotonic()
            if done.outcome == "moved" or operation.outlived(done):
                # Perhaps the new owner is the same process, which has not noticed yet.
                self._told_moved(operation)
            self._act(operation, operation.done(done))

    def hear_waiting(self, message: Waiting) -> None:
        """Tasks wait for a switch."""
        for name, seq in message.tasks:
            operation = self.operations.get(name)
            task = operation and operation.latest.get(message.partition)
            if operation and task and task.seq == seq:
                operation.waiting = message.reason
                self._note_soon(operation)

    def connected(self, configurator: str) -> None:
        """A stream is open: tell again what may have been lost with the one before."""
        owners = self._catalogue.owners
        for partition, operations in self._by_partition.items():
            owner = owners.get(partition)
            if owner and owner[0] == configurator:
                for operation in operations:
                    if partition in operation.open:
                        self._outbox.post(owner, partition, operation.latest[partition])

    def _owner_changed(self, partition: str, epoch: int | None) -> None:
        concerned = list(self._by_partition.get(partition, ()))
        if epoch is None:
            self._by_partition.pop(partition, None)
        for operation in concerned:
            self._act(operation, operation.owner_changed(partition, epoch))

    def _space_changed(self, name: str) -> None:
        """Partitions of versions that a space no longer has are not waited for."""
        space = self._catalogue.spaces.get(name)
        if space:
            for partition in list(self._by_partition):
                if not _has(space, partition):
                    self._owner_changed(partition, None)

    # Acting

    def _act(self, operation: Operation, what: Next) -> None:
        if what is Next.WAIT:
            return
        if what is Next.SEND:
            self._send(operation)
        elif what is Next.SETTLE:
            self._settle(operation)
        elif what is Next.PAUSE:
            self._later(_PAUSE, lambda: self._again(operation))
        else:
            self._spawn(self._check(operation))

    def _send(self, operation: Operation) -> None:
        for partition, task in operation.to_send():
            owner = self._catalogue.owners.get(partition)
            if owner:
                self._outbox.post(owner, partition, task)

    def _unreachable(self, configurator: str, tasks: dict[str, list[Task]]) -> None:
        """Nobody is there to be told; when somebody is, that is done again."""
        for some in tasks.values():
            for task in some:
                operation = self.operations.get(task.id)
                if operation:
                    operation.waiting = f"configurator {configurator} cannot be reached"
                    self._note_soon(operation)

    def _told_moved(self, operation: Operation) -> None:
        """The owner is new to us, or not ready; ask again soon, unless we learn of it first."""
        if not self._moved:
            self._later(_MOVED_PAUSE, self._send_moved)
        self._moved[operation] = None

    def _send_moved(self) -> None:
        moved, self._moved = self._moved, {}
        for operation in moved:
            if self.operations.get(operation.record.id) is operation and operation.open:
                self._act(operation, Next.SEND)

    def _again(self, operation: Operation) -> None:
        if self.operations.get(operation.record.id) is operation:
            self._act(operation, operation.again())

    async def _check(self, operation: Operation) -> None:
        """A partition has something newer of this record: find out whose."""
        key = record_key(operation.record.id)
        try:
            found = await self._etcd.get(key)
        except StoreError as error:
            _log.warning("cannot read %s: %s", key, error)
            self._later(_PAUSE, lambda: self._spawn(self._check(operation)))
            return
        if self.operations.get(operation.record.id) is not operation:
            return
        if found and found.revision == operation.revision:
            # Nobody's: what was there came from an operation that was never settled.
            self.restart(operation)
        else:
            self._superseded(operation, found, self.restart)

    def restart(self, operation: Operation) -> None:
        """Journal an operation anew, under a higher number and with the routes of today."""
        if operation in self._noting:
            self._noting[operation] = self.restart
            return
        self._forget(operation)
        self.on_restart(operation)

    # Why it takes so long, for all who read the record

    def _note_soon(self, operation: Operation) -> None:
        if not self._slow:
            self._later(_PAUSE, self._note)
        self._slow[operation] = None

    def _note(self) -> None:
        slow, self._slow = self._slow, {}
        for operation in slow:
            record = operation.record
            if (
                self.operations.get(record.id) is not operation
                or operation in self._noting
                or not (operation.open or operation in self._cut_off)
                or operation.waiting in (None, record.reason)
            ):
                continue
            self._noting[operation] = None
            noted = replace(record, reason=operation.waiting)
            key = record_key(record.id)
            puts = [Put(key, encode(noted))]
            about = operation, noted
            write = Write(key, operation.revision, puts, self._noted, about)
            self._journal.write(write, gather=True)

    def _noted(self, write: Write, verdict: Verdict) -> None:
        operation: Operation = write.about[0]
        then = self._noting.pop(operation)
        if self.operations.get(operation.record.id) is not operation:
            return
        if verdict is Verdict.WRITTEN:
            operation.revision, operation.record = write.revision, write.about[1]
        if verdict is Verdict.CHANGED:
            self._superseded(operation, write.found, then or self._resettle)
        elif then:
            then(operation)

    # Settling

    def _settle(self, operation: Operation) -> None:
        if operation.gone:
            self._spawn(self._superseded_by_end(operation))
            return
        if operation in self._noting:
            self._noting[operation] = self._resettle
            return
        record = operation.record
        space = self._catalogue.spaces.get(record.space)
        if space is None:
            _log.error("%s: its space %r is gone", record.id, record.space)
            self._later(_PAUSE, lambda: self._again(operation))
            return
        if not operation.refused and not _fits(operation, space):
            self.restart(operation)
            return
        if self._told_again(operation) or self._waits_for_its_switch(operation):
            return
        now = time.monotonic()
        committed = now - max(operation.last_done, operation.journal_ended) + self._journal.took
        settled = operation.settlement(
            time.time(),
            timing_of(
                now + self._journal.took - operation.received,
                operation.indexed,
                operation.journal_ended - operation.journal_began,
                operation.decided_us / 1e6,
                operation.pushed_us / 1e6,
                # The write that ends it cannot know how long it takes: as long as the last one.
                committed,
            ),
        )
        key = record_key(record.id)
        value = encode(settled)
        write = Write(
            key,
            operation.revision,
            [Put(key, value)],
            self._settled,
            (operation, settled),
            space,
        )
        if settled.state in ("removed", "failed"):
            write.ops = [Delete(key)]
            if record.ttl is not None:
                write.ops.append(Delete(ttl_key(record.id)))
            write.leased = [Put(record_key(record.id, finished=True), value)]
        self._journal.write(write, gather=True)

    def _told_again(self, operation: Operation) -> bool:
        """Whether something was done by a former owner only, and the present one is told now."""
        outdated = operation.outdated(self._catalogue.epoch)
        for name in outdated:
            operation.owner_changed(name, self._catalogue.epoch(name))
        if outdated:
            self._act(operation, Next.SEND)
        return bool(outdated)

    def _waits_for_its_switch(self, operation: Operation) -> bool:
        """Whether the host's own switch is away, so that nothing was installed there."""
        if operation.action == "end" or operation.refused:
            return False
        reason = self._reach.switch_away(operation.record.host)
        if reason is None and operation in self._cut_off and not self._reach.taken_up():
            reason = operation.waiting  # the switch is back, but not all stands there yet
        if reason is None:
            self._cut_off.pop(operation, None)
            return False
        self._cut_off[operation] = None
        if operation.waiting != reason:
            operation.waiting = reason
            self._note_soon(operation)
        return True

    def network_changed(self) -> None:
        """A switch may be back, or have all that it should: end what has waited for it."""
        self._resettle_all(list(self._cut_off))

    def _settled(self, write: Write, verdict: Verdict) -> None:
        operation: Operation = write.about[0]
        settled: Record = write.about[1]
        if verdict is Verdict.WRITTEN:
            operation.revision = write.revision
            if self.operations.get(settled.id) is operation:
                self._end(operation, settled, "failed" if operation.refused else "done")
        elif self.operations.get(settled.id) is not operation:
            return
        elif verdict is Verdict.CHANGED:
            self._superseded(operation, write.found, self._resettle)
        elif verdict is Verdict.GUARDED:
            self._refresh(operation, write.guards)
        else:
            self._later(_PAUSE, lambda: self._resettle(operation))

    def _resettle(self, operation: Operation) -> None:
        if self.operations.get(operation.record.id) is operation and operation.complete:
            self._settle(operation)

    def _resettle_all(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            self._resettle(operation)

    def _refresh(self, operation: Operation, guards: Sequence[Compare]) -> None:
        """Take up what changed about a space, then go on with all operations that wait for it."""
        name = operation.record.space
        waiting = self._refreshing.get(name)
        if waiting is not None:
            waiting.append((operation, guards))
            return
        self._refreshing[name] = [(operation, guards)]
        self._spawn(self._refreshed(name))

    async def _refreshed(self, name: str) -> None:
        space = self._catalogue.spaces.get(name)
        try:
            if space:
                await self._catalogue.refresh(space)
        except StoreError as error:
            _log.warning("cannot read the space %s: %s", name, error)
            await asyncio.sleep(_PAUSE)
        space = self._catalogue.spaces.get(name)
        known = self._catalogue.guards(space) if space else ()
        again: list[Operation] = []
        for operation, guards in self._refreshing.pop(name):
            if guards == known:
                again.append(operation)  # what changed could not be taken up
            else:
                self._resettle(operation)
        if again:
            self._later(_PAUSE, lambda: self._resettle_all(again))

    # Ending

    def _superseded(
        self, operation: Operation, found: Stored | None, then: Callable[[Operation], None]
    ) -> None:
        """The record is not as it was known: this operation is over, or goes on with `then`."""
        if found is None:
            self._act(operation, operation.withdraw())
            return
        record, known = decode_record(found.value), operation.record
        if record.open and (record.by, record.seq) == (known.by, known.seq):
            # A write of ours, of which we did not hear that it succeeded.
            operation.record, operation.revision = record, found.revision
            then(operation)
        else:
            self._end(operation, record, "superseded")

    async def _superseded_by_end(self, operation: Operation) -> None:
        record = operation.record
        try:
            found = await self._etcd.get(record_key(record.id, finished=True))
        except StoreError as error:
            _log.warning("cannot read how %s ended: %s", record.id, error)
            found = None
        if self.operations.get(record.id) is operation:
            self._end(operation, decode_record(found.value) if found else record, "superseded")

    def _end(self, operation: Operation, record: Record, outcome: str) -> None:
        self._forget(operation)
        self.on_end(operation, record, outcome)

    def _forget(self, operation: Operation) -> None:
        del self.operations[operation.record.id]
        self._cut_off.pop(operation, None)
        for name in {**operation.before, **operation.after}:
            known = self._by_partition.get(name)
            if known is not None:
                known.pop(operation, None)
                if not known:
                    del self._by_partition[name]

    # In the background

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        async def wait() -> None:
            await asyncio.sleep(seconds)
            call()

        self._spawn(wait())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.error("something in the background failed", exc_info=error)


def _fits(operation: Operation, space: SpaceView) -> bool:
    """Whether an operation leads to regions in every version that its space has now."""
    record = operation.record
    if operation.action == "end":
        return True
    regions = record.next.regions if record.next else record.regions
    return all(version in regions for version in space.versions)


def _has(space: SpaceView, partition: str) -> bool:
    """Whether a space still has a partition; others' partitions are not its concern."""
    name = PartitionName.parse(partition)
    return name.space != space.number or name.version in space.versions
