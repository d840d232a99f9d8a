"""Links and hosts are found on running networks."""

import pytest

from sdn.emulator.network import EmulatedNetwork
from sdn.lab import Lab
from sdn.network.events import HostSeen, LinkChanged
from sdn.network.topologies import topology
from sdn.network.topology import Link, Topology
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.tables.pipeline import Pipeline
from tests.sdn.lab.support import needs_lab
from tests.sdn.southbound.support import WAIT, next_event

RING = topology("ring:4")


def driver_of(network: Topology) -> OpenFlowDriver:
    options = DriverOptions(port=0, timeout=WAIT)
    return OpenFlowDriver(network, Pipeline().extended(network), lambda _: "p", {}, options)


async def found(driver: OpenFlowDriver, count: int) -> set[Link]:
    links: set[Link] = set()
    while len(links) < count:
        event = await next_event(driver, LinkChanged)
        assert event.up
        links.add(event.link)
    return links


async def test_the_links_of_an_emulated_network_are_found_and_a_cut_is_told() -> None:
    async with (
        driver_of(RING) as driver,
        EmulatedNetwork(RING, [("127.0.0.1", driver.port)]) as network,
    ):
        assert await found(driver, 4) == set(RING.links)
        network.set_link(RING.links[1], up=False)
        event = await next_event(driver, LinkChanged)
        assert event == LinkChanged(RING.links[1], up=False)
        network.set_link(RING.links[1], up=True)
        assert await found(driver, 1) == {RING.links[1]}


@needs_lab
@pytest.mark.parametrize("protocol", ["OpenFlow13", "OpenFlow14"])
async def test_the_links_of_real_switches_are_found_and_a_cut_is_told(protocol: str) -> None:
    async with driver_of(RING) as driver:
        with Lab(RING, f"tcp:127.0.0.1:{driver.port}", protocols=(protocol,)) as lab:
            assert await found(driver, 4) == set(RING.links)
            lab.set_link(RING.links[1], up=False)
            event = await next_event(driver, LinkChanged)
            assert event == LinkChanged(RING.links[1], up=False)


@needs_lab
async def test_a_host_that_nobody_declared_is_learned_from_its_neighbour_discovery() -> None:
    line = topology("line:2")
    async with driver_of(line.without_host("h2")) as driver:
        with Lab(line, f"tcp:127.0.0.1:{driver.port}") as lab:
            await found(driver, 1)
            with lab.socket("h2") as caller:
                caller.sendto(b"anybody there?", ("fd00:d2::99", 9))  # a neighbour is sought
                event = await next_event(driver, HostSeen)
            site = lab.site("h2")
            h2 = line.host("h2")
            assert (event.host.switch, event.host.port) == (h2.switch, h2.port)
            assert event.host.mac == site.mac
