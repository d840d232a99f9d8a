"""The tables of a switch: table 0 lets events in, then a table per leg, or one for all.

Numbers of tables and groups are given when a leg is first seen and never change afterwards, so that
a new leg rewrites nothing. `Pipeline` is that record. A number can be freed, for another leg, when
its leg is gone and no switch or process works with it any more.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dzflow.address import PREFIX, match_prefix
from dzflow.errors import BadInput
from sdn.network.topology import Leg, ToHost, Topology, ToSwitch
from sdn.tables.flows import NORMAL, Action, FlowEntry, GroupEntry, Output, ToGroup

PlanName = Literal["legs", "lpm"]
OtherTraffic = Literal["leave", "normal"]
T = TypeVar("T")

# Priorities in the admission table: entries that admit go before entries that drop.
ADMIT_PRIORITY = 200
DROP_PRIORITY = 100
# Priorities in the tables of legs; under lpm the length of the prefix is added.
MISS_PRIORITY = 0
MATCH_PRIORITY = 100


GROUPS = 1 << 16  # group numbers that are ours, from the first on


class OutOfTables(BadInput):
    """A switch has more legs than there are tables for them."""

    def __init__(self, message: str, switch: str) -> None:
        super().__init__(message)
        self.switch = switch


class SwitchNumbers(Struct, frozen=True):
    """Numbers of one switch: tables and groups."""

    tables: frozenset[int] = frozenset()
    groups: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.tables or self.groups)


class OutOfGroups(BadInput):
    """A switch has or had more hosts than there are groups for them."""


class Pipeline(Struct, frozen=True):
    """Which table and which group each leg of each switch has, for one plan.

    `tables[switch]` holds the legs in the order of their tables, `groups[switch]` the hosts in the
    order of their groups; None where the number is free. `other_traffic` says what becomes of
    packets that are not ours: they are left to entries of others, or (`normal`) go by the switch's
    own forwarding if there are none. `table_ranges` and `group_ranges` have the first and the last
    number for switches that may use others than the rest.
    """

    plan: PlanName = "legs"
    first_table: int = 0
    table_count: int = 254
    first_group: int = 0xD2000000
    prefix: int = PREFIX
    tables: Mapping[str, tuple[Leg | None, ...]] = {}
    groups: Mapping[str, tuple[str | None, ...]] = {}
    other_traffic: OtherTraffic = "leave"
    table_ranges: Mapping[str, tuple[int, int]] = {}
    group_ranges: Mapping[str, tuple[int, int]] = {}

    def extended(self, topology: Topology) -> "Pipeline":
        """This record with numbers for all legs that a topology has."""
        tables, groups = dict(self.tables), dict(self.groups)
        limits = {switch.id: switch.limits for switch in topology.switches}
        ranges = replace(
            self,
            table_ranges={name: one.tables for name, one in limits.items() if one.tables},
            group_ranges={name: one.groups for name, one in limits.items() if one.groups},
        )
        for switch in topology.switches:
            hosts = [host.id for host in topology.hosts_at(switch.id)]
            tables[switch.id] = _with(tables.get(switch.id, ()), _legs(topology, switch.id))
            groups[switch.id] = _with(groups.get(switch.id, ()), hosts)
            ranges._check_room(switch.id, len(tables[switch.id]), len(groups[switch.id]))
        return replace(ranges, tables=tables, groups=groups)

    def _check_room(self, switch: str, legs: int, hosts: int) -> None:
        room = self.leg_tables(switch)
        if self.plan == "legs" and legs > room:
            raise OutOfTables(
                f"switch {switch} has {legs} legs but tables for {max(room, 0)};"
                " raise the number of tables, or use the plan lpm",
                switch,
            )
        if self.plan == "lpm" and room < 0:
            raise OutOfTables(f"switch {switch} may use one table, and two are needed", switch)
        if hosts > len(self.groups_of(switch)):
            raise OutOfGroups(
                f"switch {switch} has or had {hosts} hosts, but groups for"
                f" {len(self.groups_of(switch))}; raise the number of groups"
            )

    def unused(self, topology: Topology) -> dict[str, SwitchNumbers]:
        """By switch: the numbers of legs and hosts that a topology does not have there (any more).

        Switches without such numbers are left out, and those that the topology does not have. Under
        lpm there are none: it has one table for all legs, and 65,536 groups.
        """
        if self.plan == "lpm":
            return {}
        found = {}
        for switch in topology.switches:
            legs = set(_legs(topology, switch.id))
            hosts = {host.id for host in topology.hosts_at(switch.id)}
            tables, groups = self.tables.get(switch.id, ()), self.groups.get(switch.id, ())
            numbers = SwitchNumbers(
                frozenset(
                    self.forward_table(switch.id) + place
                    for place, leg in enumerate(tables)
                    if leg is not None and leg not in legs
                ),
                frozenset(
                    self.groups_of(switch.id).start + place
                    for place, host in enumerate(groups)
                    if host is not None and host not in hosts
                ),
            )
            if numbers:
                found[switch.id] = numbers
        return found

    def differs(self, switch: str, leg: Leg, other: "Pipeline") -> bool:
        """Whether a leg has another table or group in another record, or none."""
        mine, theirs = self.tables.get(switch, ()), other.tables.get(switch, ())
        if _place(mine, leg) != _place(theirs, leg):
            return True
        if isinstance(leg, ToSwitch):
            return False
        hosts, others = self.groups.get(switch, ()), other.groups.get(switch, ())
        return _place(hosts, leg.host) != _place(others, leg.host)

    def freed(self, numbers: Mapping[str, SwitchNumbers]) -> "Pipeline":
        """This record without the legs and hosts of these numbers, which others may get."""
        tables, groups = dict(self.tables), dict(self.groups)
        for switch, free in numbers.items():
            tables[switch] = _without(tables[switch], free.tables, self.forward_table(switch))
            groups[switch] = _without(groups[switch], free.groups, self.groups_of(switch).start)
        return replace(self, tables=tables, groups=groups)

    def free(self, switch: str) -> int:
        """How many more legs a switch can have under the plan `legs`."""
        return self.leg_tables(switch) - sum(leg is not None for leg in self.tables.get(switch, ()))

    def leg_tables(self, switch: str) -> int:
        """How many tables a switch has for legs, under the plan `legs`; negative if too few."""
        # Every entry goes on to the next table, those of the last leg too.
        return len(self.tables_of(switch)) - 2

    def tables_of(self, switch: str) -> range:
        """The tables that may be used on a switch; the first one lets events in."""
        if given := self.table_ranges.get(switch):
            return range(given[0], given[1] + 1)
        return range(self.first_table, self.first_table + self.table_count)

    def groups_of(self, switch: str) -> range:
        """The groups that are ours on a switch."""
        if given := self.group_ranges.get(switch):
            return range(given[0], given[1] + 1)
        return range(self.first_group, self.first_group + GROUPS)

    def admission_table(self, switch: str) -> int:
        """The table that lets events in."""
        return self.tables_of(switch).start

    def forward_table(self, switch: str) -> int:
        """Where a packet goes that the admission table has let in."""
        return self.tables_of(switch).start + 1

    def table(self, switch: str, leg: Leg) -> int:
        """The table of a leg."""
        if self.plan == "lpm":
            return self.forward_table(switch)
        return self.forward_table(switch) + self.tables[switch].index(leg)

    def action(self, switch: str, leg: Leg) -> Action:
        """The action that sends a copy out by a leg."""
        if isinstance(leg, ToSwitch):
            return Output(leg.port)
        return ToGroup(self.groups_of(switch).start + self.groups[switch].index(leg.host))

    def base_entries(self, topology: Topology, switch: str) -> Iterator[FlowEntry]:
        """The entries of a switch without any request: admission from switches, drops, misses.

        The miss of the admission table only gets what no other entry there matches, and all events
        match one. So no event goes by a switch's own forwarding, which would send it to all hosts.
        """
        ours = match_prefix(self.prefix)
        first, forward = self.admission_table(switch), self.forward_table(switch)
        for port in topology.switch_ports(switch):
            yield FlowEntry(first, ADMIT_PRIORITY, ours, goto=forward, in_port=port)
        yield FlowEntry(first, DROP_PRIORITY, ours)
        if self.other_traffic == "normal":
            yield FlowEntry(first, MISS_PRIORITY, None, (Output(NORMAL),))
        if self.plan == "legs":
            for number in range(len(self.tables[switch])):
                table = forward + number
                yield FlowEntry(table, MISS_PRIORITY, None, goto=table + 1)

    def base_groups(self, topology: Topology, switch: str) -> Iterator[GroupEntry]:
        """The groups of the hosts that a switch has now."""
        there = {host.id: host for host in topology.hosts_at(switch)}
        for number, name in zip(self.groups_of(switch), self.groups[switch], strict=False):
            if name in there:
                yield GroupEntry(number, name, there[name].port)


def _legs(topology: Topology, switch: str) -> list[Leg]:
    ports, hosts = topology.switch_ports(switch), topology.hosts_at(switch)
    return [*map(ToSwitch, ports), *(ToHost(host.id) for host in hosts)]


def _place(known: tuple[T | None, ...], item: T) -> int | None:
    return known.index(item) if item in known else None


def _with(known: tuple[T | None, ...], seen: Iterable[T]) -> tuple[T | None, ...]:
    """These items, with new ones at the free places, or behind the last one."""
    new = deque(item for item in seen if item not in known)
    filled = [new.popleft() if item is None and new else item for item in known]
    return (*filled, *new)


def _without(
    known: tuple[T | None, ...], numbers: Collection[int], first: int
) -> tuple[T | None, ...]:
    return tuple(None if first + at in numbers else item for at, item in enumerate(known))
