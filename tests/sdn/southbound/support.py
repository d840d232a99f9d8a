"""A driver with emulated switches, entries to put there, and the events that the driver reports."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from dzflow.address import Scope
from dzflow.region import Region
from sdn.emulator.model import SwitchModel
from sdn.emulator.network import EmulatedNetwork
from sdn.emulator.switch import EmulatedSwitch
from sdn.network.events import (
    NetworkEvent,
    SwitchDown,
    SwitchUp,
)
from sdn.network.topologies import topology
from sdn.network.topology import Topology
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.openflow.protocol.constants import V1_4
from sdn.openflow.protocol.messages import FlowMod
from sdn.outcomes import Outcome
from sdn.tables.flows import Change, FlowEntry, FlowOp, Output
from sdn.tables.pipeline import MATCH_PRIORITY, Pipeline

WAIT = 20.0
E = TypeVar("E", bound=NetworkEvent)

LINE = topology("line:3")
NAMES = ("s1", "s2", "s3")


class Rig:
    """A driver, emulated switches, and what they should hold."""

    def __init__(
        self,
        driver: OpenFlowDriver,
        topology: Topology,
        network: EmulatedNetwork,
        pipeline: Pipeline,
    ) -> None:
        self.driver = driver
        self.topology = topology
        self.network = network
        self.pipeline = pipeline

    async def apply(self, switch: str, ops: list[FlowOp], epoch: int = 1) -> Any:
        return (await self.driver.apply("p", epoch, {switch: ops}))[switch]

    async def agrees(self, switch: str, *entries: FlowEntry) -> None:
        """The switch holds these entries and the base, and nothing else of ours."""
        base = set(self.pipeline.base_entries(self.topology, switch))
        assert set(await self.driver.read(switch)) == base | set(entries)

    async def back(self, switch: str) -> None:
        """Wait until a switch has gone and come back."""
        assert (await next_event(self.driver, SwitchDown)).switch == switch
        assert (await next_event(self.driver, SwitchUp)).switch == switch


@asynccontextmanager
async def rig(
    network: Topology = LINE,
    models: dict[str, SwitchModel] | None = None,
    version: int = V1_4,
    **options: Any,
) -> AsyncIterator[Rig]:
    pipeline = Pipeline().extended(network)
    settings = DriverOptions(port=0, **{"timeout": WAIT, **options})
    async with OpenFlowDriver(network, pipeline, lambda _: "p", {}, settings) as driver:
        controllers = [("127.0.0.1", driver.port)]
        async with EmulatedNetwork(
            network, controllers, versions=(version,), models=models
        ) as switches:
            await all_up(driver, [switch.id for switch in network.switches])
            yield Rig(driver, network, switches, pipeline)


def entry(number: int, port: int = 1) -> FlowEntry:
    match = Scope(1).match(Region(number << 80, 0xFFFF << 80), 0)
    return FlowEntry(1, MATCH_PRIORITY, match, (Output(port),), 2)


def coarse() -> FlowEntry:
    """Covers all of `entry`."""
    match = Scope(1).match(Region(0, 1 << 95), 0)
    return FlowEntry(1, MATCH_PRIORITY, match, (Output(1),), 2)


def adds(*numbers: int) -> list[FlowOp]:
    return [FlowOp(Change.ADD, entry(number)) for number in numbers]


def deletes(*numbers: int) -> list[FlowOp]:
    return [FlowOp(Change.DELETE, entry(number)) for number in numbers]


class FlowModsReceived:
    """`seen` is set when a switch has received so many flow-mods; it refuses none."""

    def __init__(self, switch: EmulatedSwitch, count: int) -> None:
        self.seen = asyncio.Event()
        self._left = count
        switch.refuse(self, times=None)

    def __call__(self, _: FlowMod) -> bool:
        self._left -= 1
        if not self._left:
            self.seen.set()
        return False


@asynccontextmanager
async def two_drivers(
    version: int,
) -> AsyncIterator[tuple[OpenFlowDriver, OpenFlowDriver, EmulatedNetwork]]:
    pipeline = Pipeline().extended(LINE)
    settings = DriverOptions(port=0, timeout=WAIT, discover=False)
    async with (
        OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, settings) as one,
        OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, settings) as other,
    ):
        one.assign(["s1", "s2"], 1)
        other.assign(["s3"], 2)
        both = [("127.0.0.1", one.port), ("127.0.0.1", other.port)]
        async with EmulatedNetwork(LINE, both, versions=(version,)) as network:
            await all_up(one, ["s1", "s2"])
            await all_up(other, ["s3"])
            yield one, other, network


async def reconcile(
    driver: OpenFlowDriver, partition: str, epoch: int, expected: dict[str, list[FlowEntry]]
) -> dict[str, Outcome]:
    """Declare a partition on all switches, and audit those that are connected."""
    await driver.declare(partition, epoch, expected)
    return await driver.audit(*driver.connected())


def drop_events(driver: OpenFlowDriver) -> None:
    """Forget all events so far."""
    while not driver.events.empty():
        driver.events.get_nowait()


async def all_up(driver: OpenFlowDriver, switches: Iterable[str]) -> None:
    """Wait until the driver has reported each of these switches as up."""
    left = set(switches)
    while left:
        event = await next_event(driver, SwitchUp)
        left.discard(event.switch)


async def next_event(driver: OpenFlowDriver, kind: type[E]) -> E:
    """The next event of a kind; others are skipped."""
    async with asyncio.timeout(WAIT):
        while True:
            event = await driver.events.get()
            if isinstance(event, kind):
                return event
