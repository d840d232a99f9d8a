"""Keeps one switch as it should be: sends its work in order, and repairs what differs.

The keeper outlives connections. Work that a lost connection left open is undefined; when the switch
is back, its tables are compared with the shadow and only the difference is sent.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Literal

from sdn.fence import Fence
from sdn.flows import Change, FlowEntry, FlowKey, FlowOp, GroupEntry, GroupOp, ToGroup
from sdn.network_events import MastershipLost, NetworkEvent, Repaired
from sdn.openflow.protocol.messages import FlowStat, Foreign
from sdn.openflow.switches.connection import Connection, ConnectionLost, Refused, Run
from sdn.openflow.switches.flow_mod_queue import Limits, Sender
from sdn.openflow.switches.send_batcher import Pulse
from sdn.outcomes import Acknowledged, Failed, Outcome, Undefined
from sdn.pipeline import Pipeline
from sdn.shadow import BASE, PartitionOf, Shadow
from sdn.topology import Topology

GROUPS = 1 << 16  # as many from the pipeline's first on are ours
# With more operations in a second for a switch, its flow monitor rests: the switch tells it of our
# own changes, too, which halves the rate of Open vSwitch. After some quiet it is started, and the
# switch compared some time.
MONITOR_UP_TO = 40
MONITOR_AFTER = 2.0
# Pauses until a switch is compared again that had no room for what it should hold.
SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 60.0


SUPERSEDED = "another southbound process is its master"
NOT_OURS = "another southbound process is responsible for it"
TAKING = "it is being taken over"


class Keeper(Sender):
    """One switch: its shadow, its queue and, while it is connected, its connection.

    `trouble` says why it is not up. `check` is called to have it compared soon, `doubt` to have it
    compared some time.
    """

    def __init__(
        self,
        switch: str,
        fence: Fence,
        partition_of: PartitionOf,
        limits: Limits,
        pulse: Pulse,
        tell: Callable[[NetworkEvent], None],
        check: Callable[[], None],
        doubt: Callable[[], None],
    ) -> None:
        super().__init__(switch, Shadow(partition_of), fence, limits, pulse)
        self.trouble = "it has not connected yet"
        self._partition_of = partition_of
        self._tell = tell
        self._check = check
        self._doubt = doubt
        self._base: list[FlowEntry] = []
        self._groups: dict[int, GroupEntry] = {}
        self._group_range = range(0)
        self._syncing = asyncio.Lock()
        self._next_sync: asyncio.Task[Outcome] | None = None  # one that has not begun
        self._pause = SHORTEST_PAUSE
        self._retry: asyncio.TimerHandle | None = None
        self._monitor: Literal["none", "on", "resting"] = "none"
        self._second = 0.0  # when a second began in which operations are counted
        self._in_second = 0

    # Whose it is

    def connected(self, connection: Connection, room: int | None) -> None:
        """The switch is there; nothing is sent to it before it is `begun`, except repairs.

        `room` is for how many entries a table has room, if that is known.
        """
        self.connection = connection
        self._room, self._was_full = room, False
        connection.on_writable = self.send_soon

    def begin(self) -> None:
        """It holds what it should: from now on batches are sent."""
        self.up = True
        self.trouble = ""
        self.send_soon()

    def abandon(self, reason: str) -> None:
        """Nobody knows what becomes of what was under way; what waits is not sent."""
        self.trouble = reason
        self._monitor = "none"
        super().abandon(reason)

    def give_way(self) -> None:
        """Another southbound process is the master now; nothing more is sent from here."""
        if self.off in (None, TAKING):
            self.off = SUPERSEDED
            self.abandon(SUPERSEDED)
            self._tell(MastershipLost(self.switch))

    def release(self) -> None:
        """Another southbound process is responsible; what should hold is for it to know."""
        if self.off != NOT_OURS:
            self.off = NOT_OURS
            if self._monitor == "on" and self.connection and not self.connection.lost:
                self.connection.monitor(on=False)
            self.abandon(NOT_OURS)
            self._forget()

    def take(self) -> None:
        """Have it again, or for the first time, to ourselves.

        Somebody else may have changed it: of partitions, nothing is known until declared.
        """
        if self.off in (NOT_OURS, SUPERSEDED):
            self._forget()
        self.off = TAKING
        self.trouble = TAKING if self.connection else "it has not connected yet"

    def _forget(self) -> None:
        self.shadow = Shadow(self._partition_of)
        self.shadow.declare(BASE, self._base)

    def sending(self, connection: Connection, count: int) -> None:
        """So many operations are about to be sent; the monitor rests if they are many."""
        if self._monitor != "on":
            return
        now = self._loop.time()
        if now > self._second + 1.0:
            self._second, self._in_second = now, 0
        self._in_second += count
        if self._in_second > MONITOR_UP_TO:
            self._monitor = "resting"
            connection.monitor(on=False)
            self._monitor_when_quiet(connection)

    # Changes by others

    def monitor(self, connection: Connection) -> None:
        """Notice changes by others as soon as they happen (1.4)."""
        connection.monitor(on=True)
        self._monitor = "on"

    def _monitor_when_quiet(self, connection: Connection) -> None:
        def look() -> None:
            if self._monitor != "resting" or self.connection is not connection or connection.lost:
                return
            quiet = self._loop.time() - self._progress
            if self.load or quiet < MONITOR_AFTER:
                self._loop.call_later(MONITOR_AFTER - min(quiet, MONITOR_AFTER / 2), look)
            else:
                self.monitor(connection)
                self._doubt()

        self._loop.call_later(MONITOR_AFTER, look)

    # What the switch should hold

    def declare(self, partition: str, entries: Iterable[FlowEntry]) -> None:
        """From now on this partition should have just these entries.

        What is under way for it is not taken back any more, and what waits is not sent: this is
        newer.
        """
        for job in self._under_way:
            if job.partition == partition:
                job.before = []
        for job in self._unsent(partition):
            self._withdraw(job)
            self._settle(job, self._undefined("it was declared anew what it should hold"))
        self.shadow.declare(partition, entries)

    def declare_base(self, topology: Topology, pipeline: Pipeline) -> None:
        """Base entries and groups of this switch in a network."""
        self._base = list(pipeline.base_entries(topology, self.switch))
        self.declare(BASE, self._base)
        groups = pipeline.base_groups(topology, self.switch)
        self._groups = {group.group: group for group in groups}
        self._group_range = range(pipeline.first_group, pipeline.first_group + GROUPS)

    async def sync(self) -> Outcome:
        """Compare the switch with its shadow and send the difference; never more than that.

        Those who ask while it is being compared share the next comparison.
        """
        if self._next_sync is None:
            self._next_sync = self._loop.create_task(self._sync_in_turn())
        return await asyncio.shield(self._next_sync)

    async def _sync_in_turn(self) -> Outcome:
        async with self._syncing:
            self._next_sync = None
            outcome = await self._sync_now()
            self._note_room(outcome)
            return outcome

    def _note_room(self, outcome: Outcome) -> None:
        """Have a switch compared again that lacks room for what it should hold."""
        if isinstance(outcome, Undefined):
            return
        self._lacks_room = isinstance(outcome, Failed) and outcome.table_full
        if not self._lacks_room:
            self._pause = SHORTEST_PAUSE
        elif self._retry is None:
            self._retry = self._loop.call_later(self._pause, self.made_room)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def made_room(self) -> None:
        """Try again what did not fit."""
        if self._retry:
            self._retry.cancel()
            self._retry = None
        if self._lacks_room and self.up:
            self._check()

    async def _sync_now(self) -> Outcome:
        connection = self.connection
        if connection is None:
            return self._undefined("not connected; it is compared when it is")
        if self.off is not None:
            return self._undefined(self.off)
        try:
            return await self._sync(connection)
        except (ConnectionLost, TimeoutError) as error:
            reason = str(error) or f"no answer within {connection.timeout:g} s"
            connection.close(reason)
            return self._undefined(reason)
        except Refused as refused:
            if refused.error.is_slave:
                self.give_way()
                return self._undefined(SUPERSEDED)
            return Failed({0: str(refused)}, refused.error.table_full)

    async def _sync(self, connection: Connection) -> Outcome:
        gone = await self._sync_groups(connection)
        # The rest of what was begun is noted, and not sent yet.
        begun = [job for job in (*self._waiting, *self._held) if job.started]
        ignored = {op.entry.key for job in begun for op in job.ops[job.at :]}
        self._touched = ignored
        try:
            stats = await connection.flow_stats()  # after all that was sent before
        finally:
            self._touched = None
        found, odd, broken = _sorted_out(stats)
        repairs = self.shadow.repair(found, ignored)
        # An entry of ours with something else in it is overwritten, or removed if not wanted.
        repairs += self._overwrites(broken, ignored, {op.entry.key for op in repairs})
        outcome: Outcome = Acknowledged()
        if repairs:
            # If there was no room to add before deleting, what is there has to go first.
            outcome = await self.repair(repairs, at_once=self._lacks_room)
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
        self, broken: Iterable[FlowKey], ignored: set[FlowKey], known: set[FlowKey]
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
