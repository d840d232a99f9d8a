"""Reconciles one switch: keeps its tables as they should be, whatever happens to connections.

A batch that a lost connection left open is undefined. When the switch is back, the reconciler
compares its tables with the shadow and sends the difference only.
"""

import asyncio
from collections.abc import Callable, Iterable
from enum import Enum

from sdn.fence import Fence
from sdn.network.events import MastershipLost, NetworkEvent, RefusalChanged, Repaired
from sdn.network.topology import Topology
from sdn.openflow.connections.connection import (
    ConnectionLost,
    RequestRefused,
    Run,
    SwitchConnection,
)
from sdn.openflow.protocol.messages import FlowStat, Foreign
from sdn.openflow.switches.flow_mod_queue import FlowModQueue, QueueState
from sdn.openflow.switches.flow_monitor import FlowMonitor
from sdn.openflow.switches.groups import (
    Groups,
    group_repairs,
    groups_in_use,
    without_missing_groups,
)
from sdn.openflow.switches.limits import Limits
from sdn.openflow.switches.send_batcher import SendBatcher
from sdn.outcomes import Acknowledged, Failed, Outcome, Undefined
from sdn.tables.flows import (
    NORMAL,
    Change,
    FlowEntry,
    FlowKey,
    FlowOp,
    GroupEntry,
    GroupOp,
    Output,
)
from sdn.tables.pipeline import Pipeline, SwitchNumbers
from sdn.tables.shadow import BASE, PartitionOf, Shadow

SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds before a switch without room is audited again
_NOT_CONNECTED_YET = "it has not connected yet"
_ACKNOWLEDGED = Acknowledged()
_NOT_PERMITTED = "this process may not change switches now"


class Control(Enum):
    """Whether this process may change a switch; the value is the reason why not."""

    OURS = ""
    TAKING_OVER = "it is being taken over"
    SUPERSEDED = "another southbound process, or another controller, is its master"
    NOT_ASSIGNED = "another southbound process is responsible for it"


class SwitchReconciler:
    """One switch: its shadow, its queue and, while it is connected, its connection.

    `trouble` says why it is not up, `refusal` why it does not hold what it should. `report` gets
    network events. The reconciler calls `audit_soon` or, where there is no hurry, `schedule_audit`
    to be audited.
    """

    def __init__(
        self,
        switch: str,
        fence: Fence,
        partition_of: PartitionOf,
        limits: Limits,
        batcher: SendBatcher,
        report: Callable[[NetworkEvent], None],
        audit_soon: Callable[[str], None],
        schedule_audit: Callable[[str], None],
    ) -> None:
        self.switch = switch
        self.control = Control.OURS
        self.connection: SwitchConnection | None = None
        self.trouble = _NOT_CONNECTED_YET
        self.refusal = ""  # of the last audit
        self.lacks_room = False
        self.shadow = Shadow(partition_of)
        self.queue = FlowModQueue(switch, self.shadow, fence, limits, batcher, self)
        self._monitor = FlowMonitor(self.queue, lambda: schedule_audit(switch))
        self._fence = fence
        self._report = report
        self._audit_soon = audit_soon
        self._loop = asyncio.get_running_loop()
        self._base: list[FlowEntry] = []
        self._groups: dict[int, GroupEntry] = {}
        self._group_range = range(0)
        self._auditing = asyncio.Lock()
        self._next_audit: asyncio.Task[Outcome] | None = None  # one that has not begun
        self._pause = SHORTEST_PAUSE
        self._retry: asyncio.TimerHandle | None = None

    @property
    def up(self) -> bool:
        """Whether the switch holds what it should, and batches are sent to it."""
        return self.queue.state is QueueState.OPEN

    @property
    def usable(self) -> bool:
        """Whether the switch is connected, and ours to change."""
        return self.connection is not None and self.control is Control.OURS

    # Connection and control

    def connected(self, connection: SwitchConnection, capacity: int | None) -> None:
        """The switch is connected; `capacity` is how many entries fit into a table, if known.

        Control has to be taken over before anything is sent.
        """
        self.connection = connection
        self.queue.set_capacity(capacity)
        if self.control is Control.OURS:
            self.control = Control.TAKING_OVER
            self.queue.close(self.control.value)

    def take_control(self) -> None:
        """This process is the master: repairs can be sent."""
        assert self.connection
        self.control = Control.OURS
        self.queue.attach(self.connection)

    def open(self, monitor: bool) -> None:
        """The switch holds what it should: send batches, and monitor its tables if it can."""
        assert self.connection
        if monitor:
            self._monitor.start(self.connection)
        self.trouble = ""
        self.queue.open()

    def connection_lost(self, connection: SwitchConnection, reason: str) -> None:
        """A connection has ended: all batches that wait or are in progress are undefined.

        Nothing happens if it was reported before, or the switch has a newer connection.
        """
        if self.connection is connection:
            self.connection = None
            self._close(reason)
            if self.control is not Control.OURS:
                self.queue.close(self.control.value)

    def mastership_lost(self) -> None:
        """Another southbound process is the master now: send nothing more."""
        if self.control in (Control.OURS, Control.TAKING_OVER):
            self.control = Control.SUPERSEDED
            self._close(self.control.value)
            self._report(MastershipLost(self.switch))

    def release(self) -> None:
        """Another southbound process is responsible: send nothing, and forget all partitions."""
        if self.control is not Control.NOT_ASSIGNED:
            self.control = Control.NOT_ASSIGNED
            self._monitor.stop(self.connection)
            self._close(self.control.value)
            self._forget_partitions()

    def claim(self) -> None:
        """This process is responsible: control is to be taken over.

        Another process may have changed the switch, so all partitions have to be declared again.
        """
        if self.control in (Control.NOT_ASSIGNED, Control.SUPERSEDED):
            self._forget_partitions()
        self.control = Control.TAKING_OVER
        self._close(self.control.value)
        if self.connection is None:
            self.trouble = _NOT_CONNECTED_YET

    def about_to_send(self, connection: SwitchConnection, count: int) -> None:
        """The queue is about to send so many operations."""
        self._monitor.count(connection, count)

    def _close(self, reason: str) -> None:
        self.trouble = reason
        self._monitor.reset()
        self.queue.close(reason)

    def _forget_partitions(self) -> None:
        self.shadow.clear()
        self.shadow.declare(BASE, self._base)
        self._cancel_retry()
        self._note_refusal(_ACKNOWLEDGED)  # it does not lack what is not expected any more

    # What the switch should hold

    def declare(self, partition: str, entries: Iterable[FlowEntry]) -> None:
        """From now on this partition should have exactly these entries.

        Batches of the partition that wait are not sent, for the declaration is newer.
        """
        self.queue.supersede(partition)
        self.shadow.declare(partition, entries)

    def withdraw(self, partition: str) -> None:
        """Expect nothing of a partition that no longer exists; its entries stay."""
        self.queue.supersede(partition)
        self.shadow.withdraw(partition)

    def declare_base(self, topology: Topology, pipeline: Pipeline) -> None:
        """Declare the base entries and groups of this switch in a network."""
        self._base = list(pipeline.base_entries(topology, self.switch))
        self.declare(BASE, self._base)
        groups = pipeline.base_groups(topology, self.switch)
        self._groups = {group.group: group for group in groups}
        self._group_range = pipeline.groups_of(self.switch)
        self.queue.groups = Groups(self._group_range, self._groups.keys())

    # Audits

    async def audit(self) -> Outcome:
        """Compare the switch with its shadow and send the difference; never more than that.

        Callers that arrive while an audit is in progress share the next one.
        """
        if self._next_audit is None:
            self._next_audit = self._loop.create_task(self._audit_in_turn())
        return await asyncio.shield(self._next_audit)

    async def vacant(self, numbers: SwitchNumbers) -> SwitchNumbers:
        """Those of these tables and groups that hold nothing of ours but misses.

        ConnectionLost if the switch is not up. What should not be there is removed first.
        """
        found = await self._find_vacant(numbers)
        if found != numbers:
            await self.audit()
            found = await self._find_vacant(numbers)
        return found

    async def _find_vacant(self, numbers: SwitchNumbers) -> SwitchNumbers:
        connection = self.connection
        if connection is None or not self.up:
            raise ConnectionLost(f"switch {self.switch} is not up: {self.trouble}")
        there = {group.group for group in await connection.group_descs()}
        base = {entry.key for entry in self._base}
        used: set[int] = set()
        for table in numbers.tables:
            for stat in await connection.flow_stats(table):
                if isinstance(stat.entry, Foreign) or stat.entry.key not in base:
                    used.add(table)
        # What it should hold, too: a switch that has lost entries gets them again.
        kept = [entry for key, entry in self.shadow.entries.items() if key not in base]
        used |= {entry.table for entry in kept}
        there |= groups_in_use(kept)
        return SwitchNumbers(numbers.tables - used, numbers.groups - there)

    async def _audit_in_turn(self) -> Outcome:
        async with self._auditing:
            self._next_audit = None
            outcome = await self._audit_now()
            if not isinstance(outcome, Undefined):
                self._note_refusal(outcome)
            return outcome

    def _note_refusal(self, outcome: Acknowledged | Failed) -> None:
        """Schedule another audit of a switch that lacks room for what it should hold."""
        refused = outcome.refused if isinstance(outcome, Failed) else {}
        reason = next(iter(refused.values()), "")
        if reason != self.refusal:
            self.refusal = reason
            self._report(RefusalChanged(self.switch, reason))
        self.lacks_room = isinstance(outcome, Failed) and outcome.table_full
        if not self.lacks_room:
            self._pause = SHORTEST_PAUSE
        elif self._retry is None:
            self._retry = self._loop.call_later(self._pause, self.room_made)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def room_made(self) -> None:
        """There may be room now for the entries that did not fit: try them again."""
        self._cancel_retry()
        if self.lacks_room and self.up:
            self._audit_soon(self.switch)

    def _cancel_retry(self) -> None:
        if self._retry:
            self._retry.cancel()
            self._retry = None

    async def _audit_now(self) -> Outcome:
        connection = self.connection
        if connection is None:
            return self._undefined("not connected; it is audited when it is")
        if self.control is not Control.OURS:
            return self._undefined(self.control.value)
        try:
            return await self._compare_and_repair(connection)
        except (ConnectionLost, TimeoutError) as error:
            reason = str(error) or f"no answer within {connection.timeout:g} s"
            connection.close(reason)
            return self._undefined(reason)
        except RequestRefused as refused:
            if refused.error.is_slave:
                self.mastership_lost()
                return self._undefined(Control.SUPERSEDED.value)
            return Failed({0: str(refused)}, refused.error.table_full)

    async def _compare_and_repair(self, connection: SwitchConnection) -> Outcome:
        if not self._fence.permits():
            return self._undefined(_NOT_PERMITTED)
        groups = await self._repair_groups(connection)
        with self.queue.touched_keys() as touched:
            stats = await connection.flow_stats()
        found, odd, broken = _sort_out(stats)
        repairs = self.shadow.repair(found, touched)
        repairs += self._overwrites(broken, touched, {op.entry.key for op in repairs})
        changed = touched | {op.entry.key for op in repairs}
        repairs = without_missing_groups(repairs, groups, found)
        outcome: Outcome = _ACKNOWLEDGED
        if repairs:
            # If there was no room to add before deleting, unwanted entries have to go first.
            outcome = await self.queue.repair(repairs, at_once=self.lacks_room)
            if isinstance(outcome, Failed):
                outcome = _explained(outcome, repairs)
        if not self._fence.permits():
            return self._undefined(_NOT_PERMITTED)
        if odd:
            _raise_first(await connection.removals(odd))
        unused_groups: set[int] = set()
        if idle := groups.intersection(self._group_range) - self._groups.keys():
            # Entries of partitions that were not declared yet may use a group of a host that left.
            kept = [entry for entry in found if entry.key not in changed]
            unused_groups = idle - groups_in_use([*kept, *self.shadow.entries.values()])
        if unused_groups:
            deletions = [
                GroupOp(Change.DELETE, GroupEntry(n, "", 0)) for n in sorted(unused_groups)
            ]
            _raise_first(await connection.group_ops(deletions))
        if isinstance(outcome, Acknowledged) and (repairs or odd or unused_groups):
            operations = len(repairs) + len(odd) + len(unused_groups)
            self._report(Repaired(self.switch, operations))
        return outcome

    async def _repair_groups(self, connection: SwitchConnection) -> set[int]:
        """Add and change groups; returns all that are there then."""
        have = {g.group: g.port for g in await connection.group_descs()}
        wanted = self._groups
        if repairs := group_repairs(wanted.values(), have):
            _raise_first(await connection.group_ops(repairs))
        return have.keys() | wanted.keys()

    def _overwrites(
        self, broken: Iterable[FlowKey], ignored: set[FlowKey], known: set[FlowKey]
    ) -> list[FlowOp]:
        """Operations that overwrite entries with foreign contents, or delete unwanted ones."""
        ops = []
        for key in broken:
            entry = self.shadow.entries.get(key)
            if key in ignored or key in known:
                continue
            if entry is not None:
                ops.append(FlowOp(Change.ADD, entry))
            else:
                unwanted = FlowEntry(key.table, key.priority, key.match, in_port=key.in_port)
                ops.append(FlowOp(Change.DELETE, unwanted))
        return ops

    def _undefined(self, reason: str) -> Undefined:
        return Undefined(f"switch {self.switch}: {reason}")


def _raise_first(run: Run) -> None:
    for error in run.errors.values():
        raise RequestRefused(error)


def _explained(failed: Failed, repairs: list[FlowOp]) -> Failed:
    """The same, and what to do if the switch refuses to forward other traffic."""
    refused = dict(failed.refused)
    for position, reason in refused.items():
        if Output(NORMAL) in repairs[position].entry.actions:
            refused[position] = (
                f"{reason}: it cannot forward other traffic by itself; set openflow.other_traffic"
                " to leave"
            )
    return Failed(refused, failed.table_full)


def _sort_out(
    stats: Iterable[FlowStat],
) -> tuple[list[FlowEntry], list[FlowStat], list[FlowKey]]:
    """Entries in our form; entries with a match that we never write; keys with foreign contents."""
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
