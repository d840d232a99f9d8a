"""The same requests on every data plane: tables read back, real events to the right hosts."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from configurators.engine.partials import Partial, Request
from configurators.engine.partition_map import route, route_removal
from dzflow.address import read_match
from dzflow.region import WIDTH, Region
from sdn.flows import FlowEntry
from sdn.openflow.protocol.constants import V1_3, V1_4
from sdn.outcomes import Acknowledged
from sdn.pipeline import Pipeline, PlanName
from sdn.shadow import PartitionOf
from sdn.topologies import topology
from sdn.topology import Topology
from tests.certificates import make_keys
from tests.oracle import receivers
from tests.plant import Plant
from tests.sdn.lab.support import needs_lab
from tests.sdn.southbound.planes import Plane, emulated_plane, lab_plane, onos_plane

Start = Callable[[Topology, Pipeline, PartitionOf], AbstractAsyncContextManager[Plane]]

# The last bit is set in no event but in the marker that ends a round; everybody asks for it.
MARKER = Region(1, 1)
PREFIX_MARKER = Region.parse("11111111")

PLANES: dict[str, tuple[PlanName, Start]] = {
    "emulated-1.3-legs": ("legs", partial(emulated_plane, version=V1_3)),
    "emulated-1.4-legs": ("legs", partial(emulated_plane, version=V1_4)),
    "emulated-1.3-lpm": ("lpm", partial(emulated_plane, version=V1_3)),
    "onos-lpm": ("lpm", onos_plane),
    "ovs-1.3-legs": ("legs", partial(lab_plane, protocol="OpenFlow13")),
    "ovs-1.4-legs": ("legs", partial(lab_plane, protocol="OpenFlow14")),
    "ovs-1.4-lpm": ("lpm", partial(lab_plane, protocol="OpenFlow14")),
}
TLS: dict[str, Callable[..., AbstractAsyncContextManager[Plane]]] = {
    "emulated": emulated_plane,
    "ovs": lab_plane,
}


class Round:
    """Requests, decided by the engine and applied to the data plane; events against the oracle."""

    def __init__(self, plan: PlanName, network: Topology, seed: int) -> None:
        self.random = Random(seed)
        self.plant = Plant(network, plan)
        self.marker = MARKER if plan == "legs" else PREFIX_MARKER
        self.names = 0

    def partition_of(self, entry: FlowEntry) -> str | None:
        assert entry.match
        return self.plant.map.parts(read_match(entry.match)[2])[0][0]

    def region(self) -> Region:
        """Any region without the marker's bits."""
        symbols = "01" if self.plant.pipeline.plan == "lpm" else "01*"
        return Region.parse(
            "0" + "".join(self.random.choices(symbols, k=self.random.randint(0, 4)))
        )

    def requests(self, advertised: bool, count: int) -> list[Request]:
        made = []
        for _ in range(count):
            self.names += 1
            host = self.random.choice(self.plant.topology.hosts).id
            regions = tuple({self.region() for _ in range(self.random.randint(1, 3))})
            made.append(Request(advertised, f"r{self.names}", host, regions))
        return made

    def markers(self, advertised: bool) -> list[Request]:
        kind = "mp" if advertised else "ms"
        return [
            Request(advertised, f"{kind}{host.id}", host.id, (self.marker,))
            for host in self.plant.topology.hosts
        ]

    async def add(self, plane: Plane, requests: list[Request]) -> None:
        self.plant.active |= {request.id: request for request in requests}
        await self._decide(plane, [route(self.plant.map, request)["all"] for request in requests])

    async def remove(self, plane: Plane, names: list[str]) -> None:
        gone = [self.plant.active.pop(name) for name in names]
        await self._decide(plane, [route_removal(self.plant.map, r)["all"] for r in gone])

    async def _decide(self, plane: Plane, partials: list[Partial]) -> None:
        engine = self.plant.engines["all"]
        decision = engine.decide(partials)
        for batch in decision.rounds:
            outcomes = await plane.southbound.apply("all", 1, batch)
            assert set(outcomes.values()) == {Acknowledged()}
        self.plant.network.apply(decision.rounds)
        engine.commit(decision)

    async def check_tables(self, plane: Plane) -> None:
        expected = {
            name: set(switch.entries.values())
            for name, switch in self.plant.network.switches.items()
        }
        found = {name: set(await plane.southbound.read(name)) for name in expected}
        assert found == expected

    async def check_events(self, plane: Plane, count: int) -> None:
        """Send events, then the markers; whoever has these has everything that came before."""
        await plane.settled()
        hosts = [host.id for host in self.plant.topology.hosts]
        number = self.random.getrandbits(32)
        expected: dict[str, set[bytes]] = {host: set() for host in hosts}
        for n in range(count):
            publisher = self.random.choice(hosts)
            point = self.random.getrandbits(7) << (WIDTH - 8)  # begins with 0
            payload = f"{number}-{n}".encode()
            plane.publish(publisher, self.plant.scope.event(point, 0), payload)
            for host in receivers(self.plant.active.values(), publisher, point):
                expected[host].add(payload)
        for publisher in hosts:
            payload = f"{number}-{publisher}".encode()
            plane.publish(publisher, self.plant.scope.event(self.marker.bits, 0), payload)
            for host in hosts:
                if host != publisher:
                    expected[host].add(payload)
        await plane.until_all_got(expected)
        for host in hosts:
            for application in plane.received[host]:
                ours = {p: n for p, n in application.items() if p.startswith(f"{number}-".encode())}
                assert ours == dict.fromkeys(expected[host], 1), host


def names(planes: Iterable[str]) -> list[Any]:
    """Parameters, of which those that need a lab are skipped where it cannot be had."""
    return [pytest.param(n, marks=needs_lab) if n.startswith("ovs") else n for n in planes]


@pytest.mark.parametrize("network", ["line:3", "ring:4", "fat-tree:10"])
@pytest.mark.parametrize("name", names(PLANES))
def test_every_host_gets_exactly_what_it_asked_for(name: str, network: str) -> None:
    plan, start = PLANES[name]
    asyncio.run(rounds(Round(plan, topology(network), seed=len(network)), start, 3))


@pytest.mark.parametrize("name", names(TLS))
def test_the_same_holds_over_tls(name: str, tmp_path: Path) -> None:
    start = partial(TLS[name], keys=make_keys(tmp_path))
    asyncio.run(rounds(Round("legs", topology("line:3"), seed=1), start, 1))


async def rounds(work: Round, start: Start, count: int) -> None:
    async with start(work.plant.topology, work.plant.pipeline, work.partition_of) as plane:
        await work.add(plane, work.markers(advertised=True))
        await work.add(plane, work.markers(advertised=False))
        await work.add(plane, work.requests(True, 6))
        for _ in range(count):
            await work.add(plane, work.requests(False, 8))
            await work.check_tables(plane)
            await work.check_events(plane, 60)
            mine = [name for name in work.plant.active if name.startswith("r")]
            gone = work.random.sample(mine, len(mine) // 3)
            offers = {name for name in gone if work.plant.active[name].advertised}
            await work.remove(plane, sorted(offers))
            await work.remove(plane, sorted(set(gone) - offers))
            await work.check_tables(plane)
            await work.check_events(plane, 60)
