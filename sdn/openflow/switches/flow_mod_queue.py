"""The queue of one switch: sends batches in order, in runs that end with one barrier each.

Batches that wait while barriers are unanswered are sent together with one barrier; large batches
are cut into pieces. Each batch has its own outcome all the same.

Make-before-break: where a table may be full, the queue sends a removal only when the switch has
acknowledged the entry that replaces the removed one. If the switch refuses it, the old entry stays,
and no host misses events until the request is undone.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from typing import Protocol

from sdn.fence import Fence, StaleEpoch
from sdn.openflow.connections.connection import ConnectionLost, Run, SwitchConnection
from sdn.openflow.protocol.codec import NotEncodable
from sdn.openflow.switches.groups import Groups, without_gone_groups
from sdn.openflow.switches.jobs import Job, Part, Settle
from sdn.openflow.switches.limits import Limits, beyond_capacity
from sdn.openflow.switches.make_before_break import hold_from
from sdn.openflow.switches.send_batcher import SendBatcher
from sdn.openflow.switches.send_window import SendWindow
from sdn.outcomes import Acknowledged, Failed, Outcome, Undefined
from sdn.tables.flows import Change, FlowKey, FlowOp
from sdn.tables.shadow import Shadow

PIECE = 200  # operations with one barrier; a slow switch takes seconds for them
BARRIERS = 2  # unanswered, beyond which less than a piece waits for more
_ROOMY = 0.5  # a table that should be filled up to this part has room for certain
_ACKNOWLEDGED = Acknowledged()


class QueueState(Enum):
    """What a queue accepts and sends."""

    CLOSED = auto()  # nothing
    REPAIRS_ONLY = auto()  # it accepts batches, and sends repairs only
    OPEN = auto()


# Looking up a member costs as much as a call, and these are asked for with each batch.
_CLOSED, _REPAIRS_ONLY = QueueState.CLOSED, QueueState.REPAIRS_ONLY


class QueueOwner(Protocol):
    """Gets reports of the queue about its switch."""

    lacks_room: bool
    """Whether the switch has no room for all entries that it should hold."""

    def about_to_send(self, connection: SwitchConnection, count: int) -> None:
        """The queue is about to send so many operations."""

    def connection_lost(self, connection: SwitchConnection, reason: str) -> None:
        """The connection has ended."""

    def mastership_lost(self) -> None:
        """The switch refuses operations because another process is its master."""

    def room_made(self) -> None:
        """Entries were deleted from a switch that lacks room."""


class FlowModQueue:
    """The queue of one switch. It is closed until it gets a connection.

    `groups` are those of its hosts, `window` has what is in progress.
    """

    def __init__(
        self,
        switch: str,
        shadow: Shadow,
        fence: Fence,
        limits: Limits,
        batcher: SendBatcher,
        owner: QueueOwner,
    ) -> None:
        self.state = QueueState.CLOSED
        self.window = SendWindow(limits)
        self.groups = Groups()
        self._switch = switch
        self._shadow = shadow
        self._fence = fence
        self._batcher = batcher
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._connection: SwitchConnection | None = None
        self._closed_because = "not connected"
        self._waiting: deque[Job] = deque()
        self._queued = 0  # operations in `_waiting` that were not sent
        self._held: dict[Job, None] = {}  # the rest waits until all that was sent is acknowledged
        self._under_way: dict[Job, None] = {}  # in the order of sending
        self._opening = 0  # counts up when the queue closes: answers to earlier runs are ignored
        self._scheduled = False
        self._touched: set[FlowKey] | None = None
        self.capacity: int | None = None  # how many entries fit into a table, if known
        self._was_full = False

    @property
    def limits(self) -> Limits:
        """How much the switch is given at a time; may be replaced at any time."""
        return self.window.limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self.window.limits = limits

    @property
    def waiting(self) -> int:
        """How many batches wait to be sent."""
        return len(self._waiting)

    def submit(self, partition: str, epoch: int, ops: Sequence[FlowOp], settle: Settle) -> None:
        """Put a batch at the end; `settle` is called with its outcome."""
        if self.state is _CLOSED:
            settle(self._switch, self._undefined(self._closed_because))
        elif len(self._waiting) >= self.limits.queue:
            reason = f"{self.limits.queue} batches wait for it already"
            settle(self._switch, self._undefined(reason))
        else:
            self._waiting.append(Job(partition, epoch, ops, settle))
            self._queued += len(ops)
            self.send_soon()

    async def repair(self, ops: Sequence[FlowOp], at_once: bool = False) -> Outcome:
        """Send repairs before all batches, for a batch that is sent later is newer.

        Make-before-break holds, unless all operations are to be sent at once: then removals come
        first, because they make room for the others.
        """
        if self.state is _CLOSED:
            return self._undefined(self._closed_because)
        done: asyncio.Future[Outcome] = self._loop.create_future()

        def settle(_: str, outcome: Outcome | StaleEpoch) -> None:
            assert not isinstance(outcome, StaleEpoch)  # repairs have no epoch
            if not done.done():
                done.set_result(outcome)

        if at_once:
            ops = sorted(ops, key=lambda op: op.change is not Change.DELETE)
        job = Job("", 0, ops, settle, repair=True)
        if not at_once:
            job.send_until = self._send_until(ops)
        self._waiting.appendleft(job)
        self._queued += len(ops)
        self.send_soon()
        return await done

    def drop_stale(self, partition: str, epoch: int) -> None:
        """Refuse all waiting batches of a partition that are older than an epoch."""
        for job in self._unsent(partition):
            if job.epoch < epoch:
                self._refuse_stale(job)

    def supersede(self, partition: str) -> None:
        """A partition's entries are declared: send none of its waiting batches.

        Batches in progress will not be undone in the shadow, which has something newer.
        """
        for job in self._under_way:
            if job.partition == partition:
                job.before = []
        for job in self._unsent(partition):
            self._withdraw(job)
            self._settle(job, self._undefined("its entries were declared meanwhile"))

    @contextmanager
    def touched_keys(self) -> Iterator[set[FlowKey]]:
        """The keys that are being changed while the switch is read; they grow with each batch."""
        # Operations of jobs that have started are in the shadow, even those not sent yet.
        started = [job for job in (*self._waiting, *self._held) if job.started]
        self._touched = {op.entry.key for job in started for op in job.ops[job.sent :]}
        try:
            yield self._touched
        finally:
            self._touched = None

    # The connection

    def set_capacity(self, capacity: int | None) -> None:
        """How many entries fit into a table of the switch that is connected now, if known."""
        known = [each for each in (capacity, self.limits.capacity) if each is not None]
        self.capacity, self._was_full = min(known, default=None), False

    def attach(self, connection: SwitchConnection) -> None:
        """Accept batches, and send repairs over this connection."""
        self._connection = connection
        self.state = QueueState.REPAIRS_ONLY

    def open(self) -> None:
        """Send batches from now on."""
        self.state = QueueState.OPEN
        self.send_soon()

    def close(self, reason: str) -> None:
        """Send and accept nothing more; all batches that wait or are in progress are undefined."""
        jobs = [*self._under_way, *(job for job in self._waiting if not job.started)]
        for job in reversed(self._under_way):
            job.undo(self._shadow, range(len(job.ops)))
        self._under_way.clear()
        self._waiting.clear()
        self._held.clear()
        self._queued = 0
        self.window.clear()
        self._opening += 1
        self._connection = None
        self.state = QueueState.CLOSED
        self._closed_because = reason
        outcome = self._undefined(reason)
        for job in jobs:
            self._settle(job, outcome)

    # Sending

    def send_soon(self) -> None:
        """Send as much as possible in the next round, with all batches that come until then."""
        if not self._scheduled:
            self._scheduled = True
            self._batcher.schedule(self._send_all)

    def _send_all(self) -> None:
        self._scheduled = False
        connection = self._connection
        if connection is None:
            return
        if connection.lost is not None:
            # No run was in progress that would report it.
            self._owner.connection_lost(connection, connection.lost)
        while connection is self._connection and self._may_send(connection):
            parts = self._next_parts()
            if parts:
                self._send(connection, parts)

    def _may_send(self, connection: SwitchConnection) -> bool:
        window = self.window
        if not self._waiting or connection.lost:
            return False
        if self.state is _REPAIRS_ONLY and not self._waiting[0].repair:
            return False
        if window.load >= window.limits.window or not connection.writable:
            return False
        if window.runs >= BARRIERS and self._queued < PIECE:
            return False
        if self._held and self._would_overtake(self._waiting[0]):
            return False
        if not self._fence.permits():
            return False  # and the owner is about to close the queue
        if (pause := window.pause()) > 0:
            if not self._scheduled:
                self._scheduled = True
                self._loop.call_later(pause, self._send_all)
            return False
        return True

    def _next_parts(self) -> list[Part]:
        """The next run: the rest of the first batch, and as many others as fit behind it."""
        parts: list[Part] = []
        room = PIECE
        while self._waiting and room > 0:
            job = self._waiting[0]
            if self.state is _REPAIRS_ONLY and not job.repair:
                break
            if self._held and self._would_overtake(job):
                break
            # Checked now, not when it was submitted: it may have waited while the fence rose.
            if not job.repair and self._fence.stale(job.partition, job.epoch):
                self._refuse_stale(job)
                continue
            if not job.started:
                if not job.repair and self.limits.capacity and self._refuse_beyond_capacity(job):
                    continue
                self._start(job)
            ops, start = job.ops, job.sent
            end = min(job.send_until, start + room)
            if end - start < len(ops):
                ops = ops[start:end]
            parts.append((job, start, ops))
            room -= len(ops)
            self._queued -= len(ops)
            job.sent = end
            job.unanswered += 1
            if end >= job.send_until:
                self._waiting.popleft()
                if end < len(job.ops):
                    self._hold(job)
        return parts

    def _refuse_beyond_capacity(self, job: Job) -> bool:
        """Refuse a batch that the switch would have no room for, as the switch itself would do it.

        Some switches take more entries than fit into their fast tables, and become slow.
        """
        assert self.limits.capacity
        reason = beyond_capacity(self._shadow, job.ops, self.limits.capacity)
        if reason is None:
            return False
        self._withdraw(job)
        refused = dict.fromkeys(range(len(job.ops)), reason)
        self._settle(job, Failed(refused, table_full=True))
        return True

    def _would_overtake(self, job: Job) -> bool:
        """Whether a job has to stay behind one that is held: a repair, or its own partition's."""
        return any(held.repair or held.partition == job.partition for held in self._held)

    def _hold(self, job: Job) -> None:
        """Keep the rest of a job until the switch has acknowledged the operations sent so far."""
        self._queued -= len(job.ops) - job.sent
        self._held[job] = None

    def _continue(self, job: Job) -> None:
        """The switch has answered all that was sent: send the rest, unless some was refused."""
        del self._held[job]
        if job.refused:
            why = "not sent, because the switch refused what should replace it"
            job.refused.update(dict.fromkeys(range(job.sent, len(job.ops)), why))
            job.sent = len(job.ops)
            return
        job.send_until = self._send_until(job.ops, job.sent)
        self._queued += len(job.ops) - job.sent
        self._waiting.appendleft(job)

    def _send_until(self, ops: Sequence[FlowOp], start: int = 0) -> int:
        """How many operations can be sent before the switch has to acknowledge some."""
        if self.capacity and not self._was_full and len(self._shadow) < self.capacity * _ROOMY:
            return len(ops)
        return hold_from(ops, start)

    def _start(self, job: Job) -> None:
        job.started = True
        self._under_way[job] = None
        if not job.repair:
            job.ops = without_gone_groups(job.ops, self.groups)
            job.before = self._shadow.note(job.partition, job.ops)
            job.send_until = self._send_until(job.ops)
        if self._touched is not None:
            self._touched.update(op.entry.key for op in job.ops)

    def _send(self, connection: SwitchConnection, parts: list[Part]) -> None:
        ops: Sequence[FlowOp] = parts[0][2]
        if len(parts) > 1:
            ops = [op for part in parts for op in part[2]]
        weight = max(len(parts), len(ops))
        opening = self._opening

        def finished(run: Run, reason: str | None) -> None:
            if reason is not None:
                self._owner.connection_lost(connection, reason)
            elif opening == self._opening:
                self._run_answered(parts, weight, run)

        try:
            self._owner.about_to_send(connection, len(ops))
            connection.send_ops(ops, finished)
        except ConnectionLost as error:
            self._owner.connection_lost(connection, str(error))
            return
        except NotEncodable as error:
            if len(parts) > 1:  # send them one by one, so that only the bad one fails
                for part in parts:
                    self._send(connection, [part])
                return
            job = parts[0][0]
            self._withdraw(job)
            self._settle(job, Failed(dict.fromkeys(range(len(job.ops)), str(error))))
            return
        self.window.sent(connection, weight, len(ops))

    # Outcomes

    def _run_answered(self, parts: list[Part], weight: int, run: Run) -> None:
        self.window.answered(weight)
        if run.errors:
            if any(error.is_slave for error in run.errors.values()):
                self._owner.mastership_lost()
                return
            self._note_refused(parts, run)
        for job, _, _ in parts:
            job.unanswered -= 1
            if not job.unanswered and job in self._held:
                self._continue(job)
            if job.unanswered or job.settled or job.sent < len(job.ops):
                continue
            del self._under_way[job]
            if not job.refused:
                self._settle(job, _ACKNOWLEDGED)
                if self._owner.lacks_room and any(op.change is Change.DELETE for op in job.ops):
                    self._owner.room_made()
            else:
                job.undo(self._shadow, job.refused)
                self._settle(job, Failed(dict(sorted(job.refused.items())), job.table_full))
        if self._waiting:
            self.send_soon()

    def _note_refused(self, parts: list[Part], run: Run) -> None:
        for position, error in run.errors.items():
            for job, start, ops in parts:
                if position < len(ops):
                    job.refused[start + position] = error.text
                    job.table_full |= error.table_full
                    self._was_full |= error.table_full
                    break
                position -= len(ops)

    def _settle(self, job: Job, outcome: Outcome | StaleEpoch) -> None:
        if not job.settled:
            job.settled = True
            job.settle(self._switch, outcome)

    def _unsent(self, partition: str) -> list[Job]:
        """The jobs of a partition of which some operations were not sent."""
        return [job for job in (*self._waiting, *self._held) if job.partition == partition]

    def _refuse_stale(self, job: Job) -> None:
        self._withdraw(job)
        try:
            self._fence.check(job.partition, job.epoch)
        except StaleEpoch as error:
            self._settle(job, error)

    def _withdraw(self, job: Job) -> None:
        """Send no more of a job, and undo it in the shadow."""
        if job in self._held:
            del self._held[job]
        elif job.sent < len(job.ops) or not job.started:
            self._queued -= len(job.ops) - job.sent
            self._waiting.remove(job)
        if job.started:
            job.undo(self._shadow, range(len(job.ops)))
            self._under_way.pop(job, None)

    def _undefined(self, reason: str) -> Undefined:
        return Undefined(f"switch {self._switch}: {reason}")
