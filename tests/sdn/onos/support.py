"""A driver, the ONOS stand-in and an emulated network to test with."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Any

import msgspec
from msgspec.structs import replace

from dzflow.address import DELIVERY, Scope, read_match
from dzflow.region import Region
from sdn.emulator import frames
from sdn.emulator.network import EmulatedNetwork
from sdn.network.events import NetworkEvent
from sdn.network.topologies import topology
from sdn.network.topology import Topology
from sdn.onos.client import OnosAccess
from sdn.onos.driver import OnosDriver
from sdn.onos.options import OnosOptions
from sdn.outcomes import Acknowledged, Outcome, Undefined
from sdn.tables.flows import Action, Change, FlowEntry, FlowOp, Output, ToGroup
from sdn.tables.pipeline import ADMIT_PRIORITY, MATCH_PRIORITY, Pipeline
from tests.onos_standin import OnosStandIn
from tests.support import until

WAIT = 60.0
SCOPE = Scope(7, 1)
QUICK = OnosOptions(confirm=20.0, poll=0.001, slowest_poll=0.02, watch_every=WAIT, audit_every=WAIT)
IMPATIENT = replace(QUICK, confirm=0.05)


def partition_of(entry: FlowEntry) -> str | None:
    """Each space is a partition: p1, p2, …"""
    assert entry.match is not None
    return f"p{read_match(entry.match)[0].space}"


@dataclass
class Stage:
    """What a test works with."""

    topology: Topology
    pipeline: Pipeline
    network: EmulatedNetwork
    onos: OnosStandIn
    driver: OnosDriver
    arrived: Counter[str]

    def reached(self, host: str, address: int) -> Counter[str]:
        """How often each host gets an event."""
        self.arrived.clear()
        self.network.hosts[host].publish(address, b"event")
        return Counter(self.arrived)

    def expected(self, switch: str, *entries: FlowEntry) -> set[FlowEntry]:
        """What a switch should hold besides its base entries."""
        return {*self.pipeline.base_entries(self.topology, switch), *entries}

    def writes(self) -> dict[str, int]:
        """How many rules were sent to be added and deleted since this was asked last."""
        counted = {"POST": 0, "DELETE": 0}
        for request in self.onos.requests:
            if request.method in counted:
                counted[request.method] += len(msgspec.json.decode(request.body)["flows"])
        self.onos.requests.clear()
        return counted

    async def until_asked(self, method: str, count: int = 1) -> None:
        """Wait until so many requests of a method have come since the last look at them."""
        await until(lambda: sum(r.method == method for r in self.onos.requests) >= count)

    def forget_events(self) -> None:
        """Pass over everything that was told so far."""
        while not self.driver.events.empty():
            self.driver.events.get_nowait()

    async def told(self, kind: type[NetworkEvent]) -> NetworkEvent:
        """The next event of a kind; others are passed over."""
        while True:
            event = await self.driver.events.get()
            if isinstance(event, kind):
                return event


def access(onos: OnosStandIn, **changes: Any) -> OnosAccess:
    """How the driver reaches a stand-in."""
    quick = OnosAccess(onos.url, "onos", "rocks", connect=5.0, read=20.0, retry=0.001)
    return replace(quick, **changes)


def network_of(topology: Topology) -> tuple[EmulatedNetwork, Counter[str]]:
    """Emulated switches, and how often each host gets an event that is meant for hosts."""
    arrived: Counter[str] = Counter()

    def on_frame(host: str, frame: bytes) -> None:
        destination, payload = frames.read_event(frame) or (b"", b"")
        assert destination == IPv6Address(DELIVERY).packed
        assert payload == b"event"
        arrived[host] += 1

    return EmulatedNetwork(topology, on_frame=on_frame), arrived


@asynccontextmanager
async def stage(
    topology: Topology,
    options: OnosOptions = QUICK,
    pipeline: Pipeline | None = None,
    delay: float = 0.0,
    id_bits: int = 32,
    **changes: Any,
) -> AsyncIterator[Stage]:
    """Everything running, with all switches up."""
    pipeline = pipeline or Pipeline(plan="lpm").extended(topology)
    network, arrived = network_of(topology)
    async with OnosStandIn(network, delay=delay, id_bits=id_bits) as onos:
        driver = OnosDriver(topology, pipeline, partition_of, {}, access(onos, **changes), options)
        async with driver:
            onos.requests.clear()
            yield Stage(topology, pipeline, network, onos, driver, arrived)


# Entries as the plan lpm makes them.


def forward(
    pipeline: Pipeline, dz: str, *actions: Action, tree: int = 0, scope: Scope = SCOPE
) -> FlowEntry:
    """An entry that forwards."""
    region = Region.parse(dz)
    return FlowEntry(
        pipeline.first_table + 1,
        MATCH_PRIORITY + region.size,
        scope.match(region, tree),
        tuple(sorted(actions, key=repr)),
    )


def admit(pipeline: Pipeline, dz: str, port: int, scope: Scope = SCOPE) -> FlowEntry:
    """An entry that lets a host's events in."""
    match = scope.match(Region.parse(dz))
    table = pipeline.first_table
    return FlowEntry(table, ADMIT_PRIORITY, match, (), table + 1, port)


def to_host(pipeline: Pipeline, switch: str, host: str) -> ToGroup:
    """The action that delivers to a host."""
    return ToGroup(pipeline.first_group + pipeline.groups[switch].index(host))


def add(*entries: FlowEntry) -> list[FlowOp]:
    """Operations that add."""
    return [FlowOp(Change.ADD, entry) for entry in entries]


def modify(*entries: FlowEntry) -> list[FlowOp]:
    """Operations that modify."""
    return [FlowOp(Change.MODIFY, entry) for entry in entries]


def delete(*entries: FlowEntry) -> list[FlowOp]:
    """Operations that delete."""
    return [FlowOp(Change.DELETE, entry) for entry in entries]


def out(*ports: int) -> tuple[Output, ...]:
    """Actions that send to switches."""
    return tuple(map(Output, ports))


# A line of two switches, and what brings events of h1 (at port 2 of s1) to h2 (of s2, which is at
# port 1 of s1).

LINE = topology("line:2")
PIPELINE = Pipeline(plan="lpm").extended(LINE)
EVENT = SCOPE.event(0, 0)
LET_IN = admit(PIPELINE, "0", 2)
ON = forward(PIPELINE, "0", *out(1))
DELIVER = forward(PIPELINE, "0", to_host(PIPELINE, "s2", "h2"))
DONE: dict[str, Outcome] = {"s1": Acknowledged(), "s2": Acknowledged()}


async def reconcile(
    driver: OnosDriver, partition: str, epoch: int, expected: dict[str, list[FlowEntry]]
) -> dict[str, Outcome]:
    """Declare a partition on all switches, and audit them."""
    await driver.declare(partition, epoch, expected)
    return await driver.audit(*driver.up(), *driver.down())


async def put(on: Stage, switch: str, *ops: FlowOp) -> Outcome:
    """Apply operations to one switch."""
    outcomes = await on.driver.apply("p7", 1, {switch: list(ops)})
    return outcomes[switch]


async def wired(on: Stage) -> None:
    """Have events of h1 reach h2, and forget what it took."""
    assert await on.driver.apply("p7", 1, {"s1": add(LET_IN, ON), "s2": add(DELIVER)}) == DONE
    on.onos.requests.clear()
    on.forget_events()


def undefined(outcome: Outcome) -> str:
    """Why an outcome is undefined."""
    assert isinstance(outcome, Undefined)
    return outcome.reason
