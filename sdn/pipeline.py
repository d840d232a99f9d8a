"""The tables of a switch: table 0 lets events in, then a table per leg, or one for all.

Numbers of tables and groups are given when a leg is first seen and never change afterwards, so that
a new leg rewrites nothing. `Pipeline` is that record.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dzflow.address import PREFIX, match_prefix
from dzflow.errors import BadInput
from sdn.flows import NORMAL, Action, FlowEntry, GroupEntry, Output, ToGroup
from sdn.topology import Host, Leg, ToHost, Topology, ToSwitch

PlanName = Literal["legs", "lpm"]
OtherTraffic = Literal["leave", "normal"]
T = TypeVar("T")

# Priorities in the admission table: entries that admit go before entries that drop.
ADMIT_PRIORITY = 200
DROP_PRIORITY = 100
# Priorities in the tables of legs; under lpm the length of the prefix is added.
MISS_PRIORITY = 0
MATCH_PRIORITY = 100


class OutOfTables(BadInput):
    """A switch has more legs than there are tables for them."""


class Pipeline(Struct, frozen=True):
    """Which table and which group each leg of each switch has, for one plan.

    `tables[switch]` holds the legs in the order of their tables, `groups[switch]` the hosts in the
    order of their groups. `other_traffic` says what becomes of packets that are not ours: they are
    left to entries of others, or (`normal`) go by the switch's own forwarding if there are none.
    """

    plan: PlanName = "legs"
    first_table: int = 0
    table_count: int = 254
    first_group: int = 0xD2000000
    prefix: int = PREFIX
    tables: Mapping[str, tuple[Leg, ...]] = {}
    groups: Mapping[str, tuple[str, ...]] = {}
    other_traffic: OtherTraffic = "leave"

    def extended(self, topology: Topology) -> "Pipeline":
        """This record with numbers for all legs that a topology has."""
        tables, groups = dict(self.tables), dict(self.groups)
        for switch in topology.switches:
            hosts = [host.id for host in topology.hosts_at(switch.id)]
            ports = topology.switch_ports(switch.id)
            legs: list[Leg] = [*map(ToSwitch, ports), *map(ToHost, hosts)]
            tables[switch.id] = _appended(tables.get(switch.id, ()), legs)
            groups[switch.id] = _appended(groups.get(switch.id, ()), hosts)
            room = self.leg_tables
            if self.plan == "legs" and len(tables[switch.id]) > room:
                raise OutOfTables(
                    f"switch {switch.id} has {len(tables[switch.id])} legs but tables for {room};"
                    " raise the number of tables, or use the plan lpm"
                )
        return replace(self, tables=tables, groups=groups)

    @property
    def leg_tables(self) -> int:
        """How many tables a switch has for legs, under the plan `legs`."""
        # Every entry goes on to the next table, those of the last leg too.
        return self.table_count - 2

    @property
    def forward_table(self) -> int:
        """Where a packet goes that table 0 has let in."""
        return self.first_table + 1

    def table(self, switch: str, leg: Leg) -> int:
        """The table of a leg."""
        if self.plan == "lpm":
            return self.forward_table
        return self.forward_table + self.tables[switch].index(leg)

    def action(self, switch: str, leg: Leg) -> Action:
        """The action that sends a copy out by a leg."""
        if isinstance(leg, ToSwitch):
            return Output(leg.port)
        return ToGroup(self.first_group + self.groups[switch].index(leg.host))

    def base_entries(self, topology: Topology, switch: str) -> Iterator[FlowEntry]:
        """The entries of a switch without any request: admission from switches, drops, misses.

        The miss of the admission table only gets what no other entry there matches, and all events
        match one. So no event goes by a switch's own forwarding, which would send it to all hosts.
        """
        ours = match_prefix(self.prefix)
        for port in topology.switch_ports(switch):
            yield FlowEntry(
                self.first_table, ADMIT_PRIORITY, ours, goto=self.forward_table, in_port=port
            )
        yield FlowEntry(self.first_table, DROP_PRIORITY, ours)
        if self.other_traffic == "normal":
            yield FlowEntry(self.first_table, MISS_PRIORITY, None, (Output(NORMAL),))
        if self.plan == "legs":
            for number in range(len(self.tables[switch])):
                table = self.forward_table + number
                yield FlowEntry(table, MISS_PRIORITY, None, goto=table + 1)

    def base_groups(self, topology: Topology, switch: str) -> Iterator[GroupEntry]:
        """The groups of the hosts that a switch has now."""
        for number, name in enumerate(self.groups[switch]):
            host = _host_at(topology, switch, name)
            if host:
                yield GroupEntry(self.first_group + number, name, host.port)


def _host_at(topology: Topology, switch: str, name: str) -> Host | None:
    return next((host for host in topology.hosts_at(switch) if host.id == name), None)


def _appended(known: tuple[T, ...], seen: Iterable[T]) -> tuple[T, ...]:
    return known + tuple(item for item in seen if item not in known)
