"""A simulated network: applies operations as switches do and follows events hop by hop."""

from collections import Counter, deque
from collections.abc import Iterable

from msgspec import Struct

from dzflow.errors import DzflowError
from sdn.network.topology import Host, Link, Topology
from sdn.tables.flow_table import FlowTable
from sdn.tables.flows import (
    Action,
    Batch,
    Change,
    FlowEntry,
    FlowOp,
    GroupEntry,
    GroupOp,
    Output,
    difference,
)
from sdn.tables.pipeline import Pipeline


class OperationRefused(DzflowError):
    """An operation that a correct control plane never sends."""


class AmbiguousMatch(DzflowError):
    """Two entries of one priority match a packet and do different things with it."""


class Hop(Struct, frozen=True):
    """What a switch did with a packet: the port it came in by, and those that it left by."""

    switch: str
    in_port: int
    out_ports: tuple[int, ...]
    admitted: bool


class Journey(Struct):
    """The fate of one event."""

    hosts: Counter[str]  # how often each was reached
    links: Counter[Link]  # how often each was crossed
    dropped: list[str]  # switches where no entry let the packet in
    hops: list[Hop]  # in the order in which switches were reached
    looped: bool = False


class SimulatedSwitch:
    """Tables and groups of one switch; entries are added and changed strictly."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.table = FlowTable[FlowEntry]()
        self.entries = self.table.entries
        self.groups: dict[int, GroupEntry] = {}

    def apply(self, op: FlowOp) -> None:
        """Carry out one flow operation."""
        key = op.entry.key
        if (key in self.entries) == (op.change is Change.ADD):
            state = "is there already" if op.change is Change.ADD else "is not there"
            raise OperationRefused(f"{self.name}: cannot {op.change.value} {op.entry}: it {state}")
        if op.change is Change.DELETE:
            if self.entries[key] != op.entry:
                raise OperationRefused(f"{self.name}: {op.entry} is there, but with other actions")
            self.table.remove(key)
        else:
            self.table.put(key, op.entry)

    def apply_group(self, op: GroupOp) -> None:
        """Carry out one operation on a group."""
        known = op.group.group in self.groups
        if known == (op.change is Change.ADD):
            raise OperationRefused(f"{self.name}: cannot {op.change.value} {op.group}")
        if op.change is Change.DELETE:
            del self.groups[op.group.group]
        else:
            self.groups[op.group.group] = op.group

    def forward(self, address: int, in_port: int) -> tuple[list[int], bool]:
        """The ports that a packet leaves by, and whether it was let in."""
        ports: list[int] = []
        table = self.table.lowest
        admitted = False
        while table is not None:
            entry = self._best(table, address, in_port)
            if entry is None:
                break
            admitted |= entry.goto is not None or bool(entry.actions)
            ports += [self._port(action) for action in entry.actions]
            table = entry.goto
        return [port for port in ports if port != in_port], admitted

    def _port(self, action: Action) -> int:
        if isinstance(action, Output):
            return action.port
        if action.group not in self.groups:
            raise OperationRefused(
                f"{self.name}: an entry sends to group {action.group}: not there"
            )
        return self.groups[action.group].port

    def _best(self, table: int, address: int, in_port: int) -> FlowEntry | None:
        found = self.table.matching(table, address, in_port)
        for entry in found[1:]:
            if (found[0].actions, found[0].goto) != (entry.actions, entry.goto):
                raise AmbiguousMatch(f"{self.name}: {found[0]} and {entry}")
        return found[0] if found else None


class SimulatedNetwork:
    """The switches of a topology, set up with a pipeline's base entries and groups."""

    def __init__(self, topology: Topology, pipeline: Pipeline) -> None:
        self.topology = topology
        self.switches = {switch.id: SimulatedSwitch(switch.id) for switch in topology.switches}
        self._base: dict[str, list[FlowEntry]] = {}
        self.base(topology, pipeline)

    def base(self, topology: Topology, pipeline: Pipeline) -> None:
        """Bring base entries and groups up to date with a (changed) topology.

        Groups of hosts that are gone stay: entries may still send to them.
        """
        self.topology = topology
        base = {name: list(pipeline.base_entries(topology, name)) for name in self.switches}
        self.apply([difference(self._base, base)])
        self._base = base
        for name, switch in self.switches.items():
            for group in pipeline.base_groups(topology, name):
                known = switch.groups.get(group.group)
                change = Change.MODIFY if known else Change.ADD
                if known != group:
                    switch.apply_group(GroupOp(change, group))

    def apply(self, batches: Iterable[Batch]) -> None:
        """Carry out rounds of operations, one after another."""
        for batch in batches:
            for name, ops in batch.items():
                for op in ops:
                    self.switches[name].apply(op)

    def entries(self, pipeline: Pipeline) -> dict[str, set[FlowEntry]]:
        """The entries of requests on each switch, without the base entries."""
        found = {}
        for name, switch in self.switches.items():
            base = {entry.key for entry in pipeline.base_entries(self.topology, name)}
            found[name] = {entry for key, entry in switch.entries.items() if key not in base}
        return found

    def send(self, host: str, address: int) -> Journey:
        """Follow an event from a host."""
        journey = Journey(Counter(), Counter(), [], [])
        source = self.topology.host(host)
        arrivals = deque([(source.switch, source.port)])
        seen: set[tuple[str, int]] = set()
        while arrivals:
            name, in_port = arrivals.popleft()
            if (name, in_port) in seen:
                journey.looped = True
                continue
            seen.add((name, in_port))
            ports, admitted = self.switches[name].forward(address, in_port)
            journey.hops.append(Hop(name, in_port, tuple(ports), admitted))
            if not admitted:
                journey.dropped.append(name)
            for port in ports:
                far = self.topology.at(name, port)
                if isinstance(far, Host):
                    journey.hosts[far.id] += 1
                elif isinstance(far, Link):
                    journey.links[far] += 1
                    arrivals.append(far.ends[1] if far.ends[0] == (name, port) else far.ends[0])
        return journey
