"""Keeps one switch as it should be: sends its work in order, and repairs what differs.

The keeper outlives connections. Work that a lost connection left open is undefined; when the switch
is back, its tables are compared with the shadow and only the difference is sent.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from dzflow.errors import DzflowError
from sdn.flows import Change, FlowEntry, FlowKey, FlowOp, GroupEntry, GroupOp, ToGroup
from sdn.openflow.connection import Connection, ConnectionLost, Run
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
MONITOR_AFTER = 2.0


class Limits:
    """How much one switch may be given at a time."""

    def __init__(
        self,
        window: int = 20_000,
        queue: int = 1_000,
        rate: float | None = None,
        timeout: float = 10.0,
    ) -> None:
        self.window = window  # operations under way
        self.queue = queue  # batches waiting
        self.rate = rate  # operations per second, None: as fast as it takes them
        self.timeout = timeout  # seconds for an answer


class _Job:
    """A batch for this switch that waits or is under way."""

    __slots__ = ("before", "done", "epoch", "ops", "partition")

    def __init__(self, partition: str, epoch: int, ops: Sequence[FlowOp]) -> None:
        self.partition = partition
        self.epoch = epoch
        self.ops = ops
        self.before: Before = []
        self.done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()


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
        self.superseded = False
        self._fence = fence
        self._limits = limits
        self._tell = tell
        self._check = check
        self._groups: dict[int, GroupEntry] = {}
        self._group_range = range(0)
        self._waiting: deque[_Job] = deque()
        self._under_way: dict[int, _Job] = {}  # in the order of sending, by number
        self._numbers = 0
        self.load = 0  # operations under way
        self._wake = asyncio.Event()
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
        if self.connection is None or self.superseded:
            why = "another southbound process is its master" if self.superseded else "not connected"
            job.done.set_result(Undefined(f"switch {self.switch}: {why}"))
        elif len(self._waiting) >= self._limits.queue:
            job.done.set_result(
                Undefined(f"switch {self.switch}: {self._limits.queue} batches wait for it already")
            )
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
        loop = asyncio.get_running_loop()
        next_free = loop.time()
        while not connection.lost:
            if not self._waiting or self.load >= self._limits.window:
                self._wake.clear()
                await self._wake.wait()
                continue
            if self._limits.rate:
                if (wait := next_free - loop.time()) > 0:
                    await asyncio.sleep(wait)  # pacing: this is the rate, not a guess
                    continue  # the fence may have risen meanwhile
                next_free = loop.time() + len(self._waiting[0].ops) / self._limits.rate
            job = self._waiting.popleft()
            try:
                # Checked now, not when it was submitted: it may have waited while the fence rose.
                self._fence.check(job.partition, job.epoch)
            except StaleEpoch:
                self._refuse_stale(job)
                continue
            job.before = self.shadow.note(job.partition, job.ops)
            try:
                self._send(connection, job)
                await connection.drained()
            except (ConnectionLost, OSError, TimeoutError) as error:
                connection.close(str(error) or "the switch takes nothing any more")
                self.disconnected(connection.lost or str(error))

    def disconnected(self, reason: str) -> None:
        """The connection is gone: what was under way or waiting is undefined.

        Harmless if it is said twice.
        """
        self.connection = None
        self._monitor = "none"
        undefined = Undefined(f"switch {self.switch}: {reason}")
        for job in reversed(self._under_way.values()):
            self.shadow.restore(job.partition, job.before)
        for job in (*self._under_way.values(), *self._waiting):
            if not job.done.done():
                job.done.set_result(undefined)
        self._under_way.clear()
        self._waiting.clear()
        self.load = 0
        self._wake.set()

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

    def give_way(self) -> None:
        """Another southbound process is the master now; nothing more is sent from here."""
        if not self.superseded:
            self.superseded = True
            self._tell(Superseded(self.switch))

    def _send(self, connection: Connection, job: _Job) -> None:
        if self._touched is not None:
            self._touched.update(op.entry.key for op in job.ops)
        self._numbers += 1
        number = self._numbers
        self._under_way[number] = job
        self.load += len(job.ops)
        if self._monitor == "on" and self.load > MONITOR_UP_TO:
            self._monitor = "resting"
            connection.monitor(on=False)
        run = connection.send_ops(job.ops)
        loop = asyncio.get_running_loop()
        # A switch that does not answer is cut off: when it is back, its tables will be read.
        overdue = loop.call_later(
            self._limits.timeout,
            connection.close,
            f"no answer to a barrier within {self._limits.timeout:g} s",
        )

        def finished(_: "asyncio.Future[None]") -> None:
            overdue.cancel()
            if error := run.done.exception():
                self.disconnected(str(error))  # all that is under way, from the last to the first
            if self._under_way.pop(number, None) is None:
                return
            self.load -= len(job.ops)
            self._wake.set()
            if self._monitor == "resting" and not self.load:
                self._monitor_when_quiet(connection)
            if not job.done.done():
                job.done.set_result(self._outcome(job, run))

        run.done.add_done_callback(finished)

    def _outcome(self, job: _Job, run: Run) -> Outcome:
        if not run.errors:
            return Acknowledged()
        if any(error.is_slave for error in run.errors.values()):
            self.give_way()
            return Undefined(f"switch {self.switch}: another southbound process is its master")
        for place in run.errors if job.before else ():
            op, was = job.ops[place], job.before[place]
            now = self.shadow.entries.get(op.entry.key)
            if now == (None if op.change is Change.DELETE else op.entry):
                self.shadow.restore(job.partition, [was])
        return Failed(
            {place: error.text for place, error in run.errors.items()},
            any(error.table_full for error in run.errors.values()),
        )

    def _refuse_stale(self, job: _Job) -> None:
        if not job.done.done():
            try:
                self._fence.check(job.partition, job.epoch)
            except StaleEpoch as error:
                job.done.set_exception(error)

    # What the switch should hold

    def declare_base(self, topology: Topology, pipeline: Pipeline) -> None:
        """Base entries and groups of this switch in a network."""
        self.shadow.declare(BASE, pipeline.base_entries(topology, self.switch))
        groups = pipeline.base_groups(topology, self.switch)
        self._groups = {group.group: group for group in groups}
        self._group_range = range(pipeline.first_group, pipeline.first_group + GROUPS)

    async def sync(self) -> Outcome:
        """Compare the switch with its shadow and send the difference; never more than that."""
        connection = self.connection
        if connection is None or self.superseded:
            return Undefined(f"switch {self.switch} is not connected; it is compared when it is")
        async with self._syncing:
            try:
                return await self._sync(connection)
            except (ConnectionLost, TimeoutError) as error:
                reason = str(error) or f"no answer within {connection.timeout:g} s"
                connection.close(reason)
                return Undefined(f"switch {self.switch}: {reason}")

    async def _sync(self, connection: Connection) -> Outcome:
        gone = await self._sync_groups(connection)
        self._touched = set()
        try:
            # What is under way now may or may not be in the answer.
            for job in self._under_way.values():
                self._touched.update(op.entry.key for op in job.ops)
            stats = await connection.flow_stats()
            ignored = frozenset(self._touched)
        finally:
            self._touched = None
        found, odd, broken = _sorted_out(stats)
        repairs = self.shadow.repair(found, ignored)
        # An entry of ours with something else in it is overwritten, or removed if not wanted.
        repairs += self._overwrites(broken, ignored, {op.entry.key for op in repairs})
        if odd:
            await connection.removals(odd)
        outcome: Outcome = Acknowledged()
        if repairs:
            outcome = await self._send_repairs(connection, repairs)
        if gone:
            await connection.group_ops([GroupOp(Change.DELETE, group) for group in gone])
        if repairs or odd or gone:
            self._tell(Repaired(self.switch, len(repairs) + len(odd) + len(gone)))
        return outcome

    async def _send_repairs(self, connection: Connection, repairs: list[FlowOp]) -> Outcome:
        job = _Job(BASE, 0, repairs)  # nothing to note: the shadow is where they lead
        self._send(connection, job)
        await connection.drained()
        return await job.done

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
            run = await connection.group_ops(ops)
            for error in run.errors.values():
                raise GroupsRefused(f"switch {self.switch} refuses a group: {error.text}")
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


class GroupsRefused(DzflowError):
    """A switch refuses the groups that host legs need."""


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
