"""Keeps one switch as it should be: sends its work in order, and repairs what differs.

The keeper outlives connections. Work that a lost connection left open is undefined; when the switch
is back, its tables are compared with the shadow and only the difference is sent.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from sdn.flows import Change, FlowEntry, FlowKey, FlowOp, GroupEntry, GroupOp, ToGroup
from sdn.openflow.codec import NotEncodable
from sdn.openflow.connection import Connection, ConnectionLost, Refused, Run
from sdn.openflow.messages import FlowStat, Foreign
from sdn.pipeline import Pipeline
from sdn.southbound import (
    BASE,
    Acknowledged,
    Failed,
    Fence,
    NetworkEvent,
    Outcome,
    PartitionOf,
    Repaired,
    Shadow,
    StaleEpoch,
    Superseded,
    Undefined,
)
from sdn.topology import Topology

Before = list[tuple[FlowKey, FlowEntry | None]]
GROUPS = 1 << 16  # as many from the pipeline's first on are ours
# With more operations under way, the flow monitor rests: a switch tells it of our own changes, too,
# which halves the rate of Open vSwitch. After some quiet it is started and the switch compared.
MONITOR_UP_TO = 200
PIECE = 200  # operations with one barrier; a slow switch takes seconds for them
MONITOR_AFTER = 2.0


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


class _Job:
    """A batch for this switch that waits or is under way, in pieces with a barrier each."""

    __slots__ = ("before", "done", "epoch", "ops", "partition", "pieces", "refused", "table_full")

    def __init__(self, partition: str, epoch: int, ops: Sequence[FlowOp]) -> None:
        self.partition = partition
        self.epoch = epoch
        self.ops = ops
        self.before: Before = []
        self.pieces = 0  # not answered yet
        self.refused: dict[int, str] = {}
        self.table_full = False
        self.done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def settle(self, outcome: Outcome) -> None:
        """Tell the outcome, unless one was told or nobody waits for it any more."""
        if not self.done.done():
            self.done.set_result(outcome)


class Keeper:
    """One switch: its shadow, its queue and, while it is connected, its connection."""

    def __init__(
        self,
        switch: str,
        fence: Fence,
        partition_of: PartitionOf,
        limits: Limits,
        tell: Callable[[NetworkEvent], None],
        check: Callable[[], None],
    ) -> None:
        self.switch = switch
        self.shadow = Shadow(partition_of)
        self.connection: Connection | None = None
        self.superseded = False  # for good, until a new generation is claimed
        self.load = 0  # operations under way
        self._fence = fence
        self._limits = limits
        self._tell = tell
        self._check = check
        self._groups: dict[int, GroupEntry] = {}
        self._group_range = range(0)
        self._waiting: deque[_Job] = deque()
        self._under_way: dict[_Job, None] = {}  # in the order of sending
        self._wake = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None
        self._syncing = asyncio.Lock()
        self._touched: set[FlowKey] | None = None
        self._monitor: Literal["none", "on", "resting"] = "none"
        self._quiet: asyncio.TimerHandle | None = None

    # Work

    def submit(
        self, partition: str, epoch: int, ops: Sequence[FlowOp]
    ) -> "asyncio.Future[Outcome]":
        """Put a batch behind what waits already; the future brings its outcome."""
        job = _Job(partition, epoch, ops)
        if self.superseded:
            job.settle(self._undefined("another southbound process is its master"))
        elif self.connection is None:
            job.settle(self._undefined("not connected"))
        elif len(self._waiting) >= self._limits.queue:
            job.settle(self._undefined(f"{self._limits.queue} batches wait for it already"))
        else:
            self._waiting.append(job)
            self._wake.set()
        return job.done

    def drop_older(self, partition: str, epoch: int) -> None:
        """Refuse what waits for this partition from before an epoch."""
        for job in [j for j in self._waiting if j.partition == partition and j.epoch < epoch]:
            self._waiting.remove(job)
            self._refuse_stale(job)

    async def work(self, connection: Connection) -> None:
        """Send what is submitted, as fast as window and rate allow, until the connection ends."""
        while not connection.lost:
            if not self._waiting or self.load >= self._limits.window or self.superseded:
                self._wake.clear()
                await self._wake.wait()
                continue
            job = self._waiting.popleft()
            try:
                # Checked now, not when it was submitted: it may have waited while the fence rose.
                self._fence.check(job.partition, job.epoch)
            except StaleEpoch:
                self._refuse_stale(job)
                continue
            job.before = self.shadow.note(job.partition, job.ops)
            await self._send(connection, job)

    async def _send(self, connection: Connection, job: _Job) -> None:
        """Send a job in pieces: however slow a switch is, it answers one of them in time."""
        if self._touched is not None:
            self._touched.update(op.entry.key for op in job.ops)
        self._under_way[job] = None
        starts = range(0, len(job.ops), PIECE) or range(1)
        job.pieces = len(starts)
        for start in starts:
            piece = job.ops[start : start + PIECE]
            while self.load >= self._limits.window and not connection.lost:
                self._wake.clear()
                await self._wake.wait()
            if job not in self._under_way:
                return  # it was abandoned meanwhile, and its outcome told
            try:
                self._fence.check(job.partition, job.epoch)  # it may have risen since the last one
                self._send_piece(connection, job, start, piece)
                await connection.drained()
            except StaleEpoch:
                self._withdraw(job)
                self._refuse_stale(job)
                return
            except (ConnectionLost, OSError, TimeoutError) as error:
                connection.close(str(error) or "the switch takes nothing any more")
                self.disconnected(connection, connection.lost or str(error))
                return
            except NotEncodable as error:
                self._withdraw(job)
                job.settle(Failed(dict.fromkeys(range(len(job.ops)), str(error))))
                return
            if self._limits.rate:
                await asyncio.sleep(len(piece) / self._limits.rate)  # pacing: this is the rate

    def _send_piece(
        self, connection: Connection, job: _Job, start: int, piece: Sequence[FlowOp]
    ) -> None:
        if self._monitor == "on" and self.load + len(piece) > MONITOR_UP_TO:
            self._monitor = "resting"
            connection.monitor(on=False)
        run = connection.send_ops(piece)
        weight = max(1, len(piece))
        self.load += weight
        self._expect_answer(connection)

        def finished(_: "asyncio.Future[None]") -> None:
            if error := run.done.exception():
                self.disconnected(connection, str(error))
                return
            if self.connection is not connection or self.superseded:
                return
            self.load -= weight
            self._wake.set()
            self._expect_answer(connection)
            self._answered(job, start, run)
            if self._monitor == "resting" and not self.load:
                self._monitor_when_quiet(connection)

        run.done.add_done_callback(finished)

    def _expect_answer(self, connection: Connection) -> None:
        """Give the switch its time anew; one that answers nothing at all is cut off.

        Nobody knows what it has done: when it is back, its tables will be read.
        """
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None
        if self.load:
            reason = f"no answer to a barrier within {self._limits.timeout:g} s"
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(self._limits.timeout, connection.close, reason)

    def _answered(self, job: _Job, start: int, run: Run) -> None:
        """A piece of a job is acknowledged, or partly refused."""
        if job not in self._under_way:
            return
        if any(error.is_slave for error in run.errors.values()):
            self.give_way()
            return
        for place, error in run.errors.items():
            job.refused[start + place] = error.text
            job.table_full |= error.table_full
        job.pieces -= 1
        if job.pieces:
            return
        del self._under_way[job]
        if not job.refused:
            job.settle(Acknowledged())
            return
        self._take_back(job, job.refused)
        job.settle(Failed(dict(sorted(job.refused.items())), job.table_full))

    def disconnected(self, connection: Connection, reason: str) -> None:
        """A connection is gone: what was under way or waiting is undefined.

        Harmless if it is said twice, or of a connection that was replaced before.
        """
        if self.connection is connection:
            self.connection = None
            self._monitor = "none"
            self._abandon(reason)

    def give_way(self) -> None:
        """Another southbound process is the master now; nothing more is sent from here."""
        if not self.superseded:
            self.superseded = True
            self._abandon("another southbound process is its master")
            self._tell(Superseded(self.switch))

    def _abandon(self, reason: str) -> None:
        for job in reversed(self._under_way):
            self._take_back(job, range(len(job.ops)))
        for job in (*self._under_way, *self._waiting):
            job.settle(self._undefined(reason))
        self._under_way.clear()
        self._waiting.clear()
        self.load = 0
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None
        self._wake.set()

    def _withdraw(self, job: _Job) -> None:
        self._take_back(job, range(len(job.ops)))
        self._under_way.pop(job, None)

    def _take_back(self, job: _Job, places: Iterable[int]) -> None:
        """Take operations out of the shadow, unless something newer was put there since."""
        if job.before:
            for place in sorted(places, reverse=True):
                op, was = job.ops[place], job.before[place]
                put = None if op.change is Change.DELETE else op.entry
                if self.shadow.entries.get(op.entry.key) == put:
                    self.shadow.restore(job.partition, [was])

    def _undefined(self, reason: str) -> Undefined:
        return Undefined(f"switch {self.switch}: {reason}")

    def _refuse_stale(self, job: _Job) -> None:
        if not job.done.done():
            try:
                self._fence.check(job.partition, job.epoch)
            except StaleEpoch as error:
                job.done.set_exception(error)

    # Changes by others

    def monitor(self, connection: Connection) -> None:
        """Notice changes by others as soon as they happen (1.4)."""
        connection.monitor(on=True)
        self._monitor = "on"

    def _monitor_when_quiet(self, connection: Connection) -> None:
        if self._quiet:
            self._quiet.cancel()

        def quiet() -> None:
            if self._monitor == "resting" and not self.load and not connection.lost:
                self.monitor(connection)
                self._check()

        self._quiet = asyncio.get_running_loop().call_later(MONITOR_AFTER, quiet)

    # What the switch should hold

    def declare(self, partition: str, entries: Iterable[FlowEntry]) -> None:
        """From now on this partition should have just these entries.

        What is under way for it is not taken back any more: this is newer.
        """
        for job in self._under_way:
            if job.partition == partition:
                job.before = []
        self.shadow.declare(partition, entries)

    def declare_base(self, topology: Topology, pipeline: Pipeline) -> None:
        """Base entries and groups of this switch in a network."""
        self.declare(BASE, pipeline.base_entries(topology, self.switch))
        groups = pipeline.base_groups(topology, self.switch)
        self._groups = {group.group: group for group in groups}
        self._group_range = range(pipeline.first_group, pipeline.first_group + GROUPS)

    async def sync(self) -> Outcome:
        """Compare the switch with its shadow and send the difference; never more than that."""
        connection = self.connection
        if connection is None:
            return self._undefined("not connected; it is compared when it is")
        if self.superseded:
            return self._undefined("another southbound process is its master")
        async with self._syncing:
            try:
                return await self._sync(connection)
            except (ConnectionLost, TimeoutError) as error:
                reason = str(error) or f"no answer within {connection.timeout:g} s"
                connection.close(reason)
                return self._undefined(reason)
            except Refused as refused:
                if refused.error.is_slave:
                    self.give_way()
                    return self._undefined("another southbound process is its master")
                return Failed({0: str(refused)}, refused.error.table_full)

    async def _sync(self, connection: Connection) -> Outcome:
        gone = await self._sync_groups(connection)
        self._touched = set()
        try:
            stats = await connection.flow_stats()  # after all that was sent before
            ignored = frozenset(self._touched)
        finally:
            self._touched = None
        found, odd, broken = _sorted_out(stats)
        repairs = self.shadow.repair(found, ignored)
        # An entry of ours with something else in it is overwritten, or removed if not wanted.
        repairs += self._overwrites(broken, ignored, {op.entry.key for op in repairs})
        outcome: Outcome = Acknowledged()
        if repairs:
            # At once: a batch that comes in between would be newer than these.
            job = _Job(BASE, 0, repairs)  # nothing to note: the shadow is where they lead
            await self._send(connection, job)
            outcome = await job.done
        if odd:
            _raise_first(await connection.removals(odd))
        if gone:
            _raise_first(
                await connection.group_ops([GroupOp(Change.DELETE, group) for group in gone])
            )
        if isinstance(outcome, Acknowledged) and (repairs or odd or gone):
            self._tell(Repaired(self.switch, len(repairs) + len(odd) + len(gone)))
        return outcome

    async def _sync_groups(self, connection: Connection) -> list[GroupEntry]:
        """Add and change groups; returns those to remove when no entry sends to them any more."""
        have = {g.group: g.port for g in await connection.group_descs()}
        ops = []
        for number, group in self._groups.items():
            if number not in have:
                ops.append(GroupOp(Change.ADD, group))
            elif have[number] != group.port:
                ops.append(GroupOp(Change.MODIFY, group))
        if ops:
            _raise_first(await connection.group_ops(ops))
        # A switch that loses a group loses the entries that send to it, too.
        used = {
            action.group
            for entry in self.shadow.entries.values()
            for action in entry.actions
            if isinstance(action, ToGroup)
        }
        return [
            GroupEntry(number, "", 0)
            for number in have
            if number in self._group_range and number not in self._groups and number not in used
        ]

    def _overwrites(
        self, broken: Iterable[FlowKey], ignored: frozenset[FlowKey], known: set[FlowKey]
    ) -> list[FlowOp]:
        ops = []
        for key in broken:
            entry = self.shadow.entries.get(key)
            if key in ignored or key in known:
                continue
            if entry is not None:
                ops.append(FlowOp(Change.ADD, entry))
            else:
                gone = FlowEntry(key.table, key.priority, key.match, in_port=key.in_port)
                ops.append(FlowOp(Change.DELETE, gone))
        return ops


def _raise_first(run: Run) -> None:
    for error in run.errors.values():
        raise Refused(error)


def _sorted_out(
    stats: Iterable[FlowStat],
) -> tuple[list[FlowEntry], list[FlowStat], list[FlowKey]]:
    """Entries as we write them; those with a match we never write; keys of ours gone wrong."""
    found: list[FlowEntry] = []
    odd: list[FlowStat] = []
    broken: list[FlowKey] = []
    for stat in stats:
        if isinstance(stat.entry, Foreign):
            if stat.entry.key is None:
                odd.append(stat)
            else:
                broken.append(stat.entry.key)
        elif stat.entry.cookie != stat.cookie:
            odd.append(stat)
        else:
            found.append(stat.entry)
    return found, odd, broken
