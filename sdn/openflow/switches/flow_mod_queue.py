"""The half of a keeper that sends: batches in order, in runs with one barrier each.

Batches that wait while barriers are under way are sent together, with one barrier for all of them;
large ones are cut into pieces. Each batch has its own outcome all the same.

Where there may be no room, what replaces something is acknowledged before that goes: if a full
table refuses an entry, those that it was to cover stay, and nobody misses events until it is
undone.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from sdn.fence import Fence, StaleEpoch
from sdn.flows import Change, FlowKey, FlowOp
from sdn.openflow.protocol.codec import NotEncodable
from sdn.openflow.switches.connection import Connection, ConnectionLost, Run
from sdn.openflow.switches.holding import held_from
from sdn.openflow.switches.send_batcher import Pulse
from sdn.outcomes import Acknowledged, Failed, Outcome, Undefined
from sdn.shadow import Before, Shadow

PIECE = 200  # operations with one barrier; a slow switch takes seconds for them
BARRIERS = 2  # under way, beyond which what is less than a piece waits for more
_ROOMY = 0.5  # of what a table can hold: with fewer entries in all there is room without doubt
_ACKNOWLEDGED = Acknowledged()

Settle = Callable[[str, Outcome | StaleEpoch], None]
"""Takes the outcome of a batch on a switch, which is named."""


class Limits:
    """How much one switch may be given at a time."""

    def __init__(
        self,
        window: int = 2_000,
        queue: int = 1_000,
        rate: float | None = None,
        timeout: float = 10.0,
    ) -> None:
        self.window = window  # operations under way
        self.queue = queue  # batches waiting
        self.rate = rate  # operations per second, None: as fast as it takes them
        self.timeout = timeout  # seconds for an answer


class Job:
    """A batch for this switch that waits or is under way.

    Those that repair go before all others and are not noted: the shadow is where they lead.
    """

    __slots__ = (
        "at", "before", "epoch", "ops", "over", "partition", "refused", "repairs", "settle",
        "started", "table_full", "unanswered", "until",
    )  # fmt: skip

    def __init__(
        self,
        partition: str,
        epoch: int,
        ops: Sequence[FlowOp],
        settle: Settle,
        repairs: bool = False,
    ) -> None:
        self.partition = partition
        self.epoch = epoch
        self.ops = ops
        self.settle = settle
        self.repairs = repairs
        self.before: Before = []
        self.started = False
        self.over = False  # its outcome was told
        self.at = 0  # as many operations were sent
        self.until = len(ops)  # so far it may be sent
        self.unanswered = 0  # pieces
        self.refused: dict[int, str] = {}
        self.table_full = False


Part = tuple[Job, int, Sequence[FlowOp]]
"""Some operations of a job, from a place on."""


class Sender:
    """The queue of one switch, and what was sent of it over its connection."""

    def __init__(
        self, switch: str, shadow: Shadow, fence: Fence, limits: Limits, pulse: Pulse
    ) -> None:
        self.switch = switch
        self.shadow = shadow
        self.connection: Connection | None = None
        self.off: str | None = None  # why it is not ours to send to; None if it is
        self.up = False  # it was brought in line, and batches are sent
        self.load = 0  # operations under way
        self._fence = fence
        self._limits = limits
        self._pulse = pulse
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Job] = deque()
        self._queued = 0  # operations of these that were not sent
        self._held: dict[Job, None] = {}  # their rest waits until what was sent is acknowledged
        self._under_way: dict[Job, None] = {}  # in the order of sending
        self._runs = 0
        self._era = 0  # ends when all that is under way is abandoned
        self._scheduled = False
        self._not_before = 0.0  # for the rate
        self._progress = 0.0  # when it last answered, or was sent something after a pause
        self._deadline: asyncio.TimerHandle | None = None
        self._touched: set[FlowKey] | None = None
        self._lacks_room = False  # for what it should hold
        self._room: int | None = None  # for how many entries a table has room, if that is known
        self._was_full = False  # it has refused something for lack of room

    def submit(self, partition: str, epoch: int, ops: Sequence[FlowOp], settle: Settle) -> None:
        """Put a batch behind what waits already; `settle` is called with its outcome."""
        if self.off is not None:
            settle(self.switch, self._undefined(self.off))
        elif self.connection is None:
            settle(self.switch, self._undefined("not connected"))
        elif len(self._waiting) >= self._limits.queue:
            reason = f"{self._limits.queue} batches wait for it already"
            settle(self.switch, self._undefined(reason))
        else:
            self._waiting.append(Job(partition, epoch, ops, settle))
            self._queued += len(ops)
            self.send_soon()

    async def repair(self, ops: Sequence[FlowOp], at_once: bool = False) -> Outcome:
        """Send these before all that waits: a batch that went before them would be newer.

        What is to be replaced stays until that is acknowledged, unless all is to be sent at once.
        """
        if self.off is not None or self.connection is None:
            # It was lost since it was read; nobody would ever send them.
            return self._undefined(self.off or "not connected")
        done: asyncio.Future[Outcome] = self._loop.create_future()

        def settle(_: str, outcome: Outcome | StaleEpoch) -> None:
            assert not isinstance(outcome, StaleEpoch)  # the base has no epochs
            if not done.done():
                done.set_result(outcome)

        job = Job("", 0, ops, settle, repairs=True)
        if not at_once:
            job.until = self._until(ops)
        self._waiting.appendleft(job)
        self._queued += len(ops)
        self.send_soon()
        return await done

    def drop_older(self, partition: str, epoch: int) -> None:
        """Refuse what waits for this partition from before an epoch."""
        for job in self._unsent(partition):
            if job.epoch < epoch:
                self._refuse_stale(job)

    def _unsent(self, partition: str) -> list[Job]:
        """The jobs of a partition that have not been sent wholly."""
        return [job for job in (*self._waiting, *self._held) if job.partition == partition]

    # Sending

    def send_soon(self) -> None:
        """Send what can be sent, with all that is submitted until then."""
        if not self._scheduled:
            self._scheduled = True
            self._pulse.soon(self._pump)

    def _pump(self) -> None:
        self._scheduled = False
        connection = self.connection
        if connection is not None and connection.lost is not None:
            # Nothing was under way that would tell; who waits is not left waiting.
            self.disconnected(connection, connection.lost)
        while connection is not None and connection is self.connection and self._may_send():
            parts = self._next_parts()
            if parts:
                self._send(connection, parts)

    def _may_send(self) -> bool:
        connection = self.connection
        if not self._waiting or connection is None or connection.lost or self.off is not None:
            return False
        if not self.up and not self._waiting[0].repairs:
            return False
        if self.load >= self._limits.window or not connection.writable:
            return False
        if self._runs >= BARRIERS and self._queued < PIECE:
            return False
        if self._held and self._overtakes(self._waiting[0]):
            return False
        if self._limits.rate and (now := self._loop.time()) < self._not_before:
            if not self._scheduled:
                self._scheduled = True
                self._loop.call_later(self._not_before - now, self._pump)
            return False
        return True

    def _next_parts(self) -> list[Part]:
        """What goes into the next run: the rest of the first batch, and as many as fit behind."""
        parts: list[Part] = []
        room = PIECE
        while self._waiting and room > 0:
            job = self._waiting[0]
            if not self.up and not job.repairs:
                break
            if self._held and self._overtakes(job):
                break
            # Checked now, not when it was submitted: it may have waited while the fence rose.
            if not job.repairs and self._fence.stale(job.partition, job.epoch):
                self._refuse_stale(job)
                continue
            if not job.started:
                self._start(job)
            ops, start = job.ops, job.at
            end = min(job.until, start + room)
            if end - start < len(ops):
                ops = ops[start:end]
            parts.append((job, start, ops))
            room -= len(ops)
            self._queued -= len(ops)
            job.at = end
            job.unanswered += 1
            if end >= job.until:
                self._waiting.popleft()
                if end < len(job.ops):
                    self._hold(job)
        return parts

    def _overtakes(self, job: Job) -> bool:
        """Whether a job is behind one that is held: repairs, or its own partition's."""
        return any(held.repairs or held.partition == job.partition for held in self._held)

    def _hold(self, job: Job) -> None:
        """Keep the rest of a job until what was sent of it is acknowledged."""
        self._queued -= len(job.ops) - job.at
        self._held[job] = None

    def _go_on(self, job: Job) -> None:
        """All that was sent of a job is answered: send the rest, unless some was refused."""
        del self._held[job]
        if job.refused:
            why = "not sent, for what was to replace it was refused"
            job.refused.update(dict.fromkeys(range(job.at, len(job.ops)), why))
            job.at = len(job.ops)
            return
        job.until = self._until(job.ops, job.at)
        self._queued += len(job.ops) - job.at
        self._waiting.appendleft(job)

    def _until(self, ops: Sequence[FlowOp], start: int = 0) -> int:
        """How far operations can be sent at once: all of them, if there is room without doubt."""
        if self._room and not self._was_full and len(self.shadow.entries) < self._room * _ROOMY:
            return len(ops)
        return held_from(ops, start)

    def _start(self, job: Job) -> None:
        job.started = True
        self._under_way[job] = None
        if not job.repairs:
            job.before = self.shadow.note(job.partition, job.ops)
            job.until = self._until(job.ops)
        if self._touched is not None:
            self._touched.update(op.entry.key for op in job.ops)

    def _send(self, connection: Connection, parts: list[Part]) -> None:
        ops: Sequence[FlowOp] = parts[0][2]
        if len(parts) > 1:
            ops = [op for part in parts for op in part[2]]
        weight = max(len(parts), len(ops))
        era = self._era

        def finished(run: Run, reason: str | None) -> None:
            if reason is not None:
                self.disconnected(connection, reason)
            elif era == self._era:
                self._answered(parts, weight, run)

        try:
            self.sending(connection, len(ops))
            connection.send_ops(ops, finished)
        except ConnectionLost as error:
            self.disconnected(connection, str(error))
            return
        except NotEncodable as error:
            if len(parts) > 1:  # one of them cannot be; the others shall not suffer
                for part in parts:
                    self._send(connection, [part])
                return
            job = parts[0][0]
            self._withdraw(job)
            self._settle(job, Failed(dict.fromkeys(range(len(job.ops)), str(error))))
            return
        self._runs += 1
        if not self.load:
            self._progress = self._loop.time()
        self.load += weight
        if self._limits.rate:
            now = self._loop.time()
            self._not_before = max(now, self._not_before) + len(ops) / self._limits.rate
        if self._deadline is None:
            self._deadline = self._loop.call_later(self._limits.timeout, self._late, connection)

    def sending(self, connection: Connection, count: int) -> None:
        """So many operations are about to be sent."""

    def _late(self, connection: Connection) -> None:
        """Cut a switch off that has answered nothing at all for too long.

        Nobody knows what it has done: when it is back, its tables will be read.
        """
        self._deadline = None
        if self.load and self.connection is connection:
            left = self._progress + self._limits.timeout - self._loop.time()
            if left <= 0:
                connection.close(f"no answer to a barrier within {self._limits.timeout:g} s")
            else:
                self._deadline = self._loop.call_later(left, self._late, connection)

    # Outcomes

    def _answered(self, parts: list[Part], weight: int, run: Run) -> None:
        """A run is acknowledged, or partly refused."""
        self._runs -= 1
        self.load -= weight
        self._progress = self._loop.time()
        if run.errors:
            if any(error.is_slave for error in run.errors.values()):
                self.give_way()
                return
            self._note_refused(parts, run)
        for job, _, _ in parts:
            job.unanswered -= 1
            if not job.unanswered and job in self._held:
                self._go_on(job)
            if job.unanswered or job.over or job.at < len(job.ops):
                continue
            del self._under_way[job]
            if not job.refused:
                self._settle(job, _ACKNOWLEDGED)
                if self._lacks_room and any(op.change is Change.DELETE for op in job.ops):
                    self.made_room()
            else:
                self._take_back(job, job.refused)
                self._settle(job, Failed(dict(sorted(job.refused.items())), job.table_full))
        if self._waiting:
            self.send_soon()

    def _note_refused(self, parts: list[Part], run: Run) -> None:
        for place, error in run.errors.items():
            for job, start, ops in parts:
                if place < len(ops):
                    job.refused[start + place] = error.text
                    job.table_full |= error.table_full
                    self._was_full |= error.table_full
                    break
                place -= len(ops)

    def made_room(self) -> None:
        """Something was deleted from a switch that lacks room for what it should hold."""

    def give_way(self) -> None:
        """Another southbound process is the master now; nothing more is sent from here."""
        raise NotImplementedError

    def disconnected(self, connection: Connection, reason: str) -> None:
        """A connection is gone: what was under way or waiting is undefined.

        Harmless if it is said twice, or of a connection that was replaced before.
        """
        if self.connection is connection:
            self.connection = None
            self.abandon(reason)

    def abandon(self, reason: str) -> None:
        """Nobody knows what becomes of what was under way; what waits is not sent."""
        jobs = [*self._under_way, *(job for job in self._waiting if not job.started)]
        for job in reversed(self._under_way):
            self._take_back(job, range(len(job.ops)))
        self._under_way.clear()
        self._waiting.clear()
        self._held.clear()
        self._queued = self._runs = self.load = 0
        self._era += 1
        self.up = False
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None
        outcome = self._undefined(reason)
        for job in jobs:
            self._settle(job, outcome)

    def _settle(self, job: Job, outcome: Outcome | StaleEpoch) -> None:
        if not job.over:
            job.over = True
            job.settle(self.switch, outcome)

    def _refuse_stale(self, job: Job) -> None:
        self._withdraw(job)
        try:
            self._fence.check(job.partition, job.epoch)
        except StaleEpoch as error:
            self._settle(job, error)

    def _withdraw(self, job: Job) -> None:
        """Send no more of a job; what was sent of it is nobody's wish any more."""
        if job in self._held:
            del self._held[job]
        elif job.at < len(job.ops) or not job.started:
            self._queued -= len(job.ops) - job.at
            self._waiting.remove(job)
        if job.started:
            self._take_back(job, range(len(job.ops)))
            self._under_way.pop(job, None)

    def _take_back(self, job: Job, places: Iterable[int]) -> None:
        """Take operations out of the shadow, unless something newer was put there since."""
        if job.before:
            for place in sorted(places, reverse=True):
                op, was = job.ops[place], job.before[place]
                put = None if op.change is Change.DELETE else op.entry
                if self.shadow.entries.get(was[0]) == put:
                    self.shadow.restore([was])

    def _undefined(self, reason: str) -> Undefined:
        return Undefined(f"switch {self.switch}: {reason}")
