"""Data planes to test against: a driver, and hosts that send and receive real events."""

import asyncio
import socket
import struct
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv6Address
from random import Random
from typing import Any

from configurators.engine.partials import Partial, Request
from configurators.engine.partition_map import route, route_removal
from dzflow.address import DELIVERY, EVENT_PORT, read_match
from dzflow.host_protocol import JOIN, JOINED, SEND, VERSION
from dzflow.region import WIDTH, Region
from sdn.driver import SwitchDriver
from sdn.emulator.agent import Dialling
from sdn.emulator.network import EmulatedNetwork
from sdn.lab import Certificates, Lab
from sdn.network.topology import Topology
from sdn.onos.client import OnosAccess
from sdn.onos.driver import OnosDriver
from sdn.onos.options import OnosOptions
from sdn.openflow.connections.certificates import dpid_name
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.openflow.options import RoleName
from sdn.openflow.protocol.constants import V1_4
from sdn.outcomes import Acknowledged
from sdn.tables.flows import FlowEntry
from sdn.tables.pipeline import OtherTraffic, Pipeline, PlanName
from sdn.tables.shadow import PartitionOf
from tests.certificates import Keys, sign
from tests.onos_standin import OnosStandIn
from tests.oracle import receivers
from tests.plant import Plant
from tests.sdn.southbound.support import WAIT, all_up

# The last bit is set in no event but in the marker that ends a round; every host subscribes to it.
MARKER = Region(1, 1)
PREFIX_MARKER = Region.parse("11111111")


APPLICATIONS = 2  # on each host, each with a socket of its own


class Plane(ABC):
    """A running data plane with its driver."""

    def __init__(self, topology: Topology, southbound: SwitchDriver) -> None:
        self.topology = topology
        self.southbound = southbound
        self.received: dict[str, list[Counter[bytes]]] = {
            host.id: [Counter() for _ in range(APPLICATIONS)] for host in topology.hosts
        }
        self._arrived = asyncio.Condition()

    @abstractmethod
    def publish(self, host: str, address: int, payload: bytes) -> None:
        """Send an event from a host."""

    async def settled(self) -> None:
        """Wait until new tables are in force for events, too."""
        return  # at once, unless a plane knows better

    def got(self, host: str, application: int, payload: bytes) -> None:
        """An application of a host got an event."""
        self.received[host][application][payload] += 1
        asyncio.get_running_loop().create_task(self._notify())

    async def _notify(self) -> None:
        async with self._arrived:
            self._arrived.notify_all()

    async def until_all_got(self, expected: dict[str, set[bytes]]) -> None:
        """Wait until every application of each host has these events."""
        async with asyncio.timeout(WAIT), self._arrived:
            await self._arrived.wait_for(
                lambda: all(
                    wanted <= application.keys()
                    for host, wanted in expected.items()
                    for application in self.received[host]
                )
            )


class LabPlane(Plane):
    """Open vSwitch, with hosts in network namespaces and plain UDP sockets."""

    def __init__(self, topology: Topology, southbound: SwitchDriver, lab: Lab) -> None:
        super().__init__(topology, southbound)
        self.lab = lab
        self._senders: dict[str, socket.socket] = {}
        self._sockets: list[socket.socket] = []
        for host in topology.hosts:
            for number in range(APPLICATIONS):
                self._listen(host.id, number)
            sender = lab.socket(host.id)
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 64)
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)
            self._senders[host.id] = sender
            self._sockets.append(sender)

    def publish(self, host: str, address: int, payload: bytes) -> None:
        self._senders[host].sendto(payload, (str(IPv6Address(address)), EVENT_PORT))

    async def settled(self) -> None:
        await asyncio.to_thread(self.lab.flush_cache)

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        for one in self._sockets:
            loop.remove_reader(one)
            one.close()

    def _listen(self, host: str, number: int) -> None:
        listener = self.lab.socket(host)
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("::", EVENT_PORT))
        group = IPv6Address(DELIVERY).packed + struct.pack("@I", 0)
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group)
        self._sockets.append(listener)

        def readable() -> None:
            self.got(host, number, listener.recv(2048))

        asyncio.get_running_loop().add_reader(listener, readable)


class EmulatedPlane(Plane):
    """Emulated switches, with applications that talk to their hosts over loopback."""

    def __init__(
        self, topology: Topology, southbound: SwitchDriver, network: EmulatedNetwork
    ) -> None:
        super().__init__(topology, southbound)
        self.network = network
        self._sockets: dict[str, list[socket.socket]] = {}

    async def join(self) -> None:
        """Let each application join its host."""
        loop = asyncio.get_running_loop()
        for host, endpoint in self.network.endpoints().items():
            for number in range(APPLICATIONS):
                one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                one.setblocking(False)
                one.bind(("127.0.0.1", 0))
                self._sockets.setdefault(host, []).append(one)
                await loop.sock_sendto(one, bytes([VERSION, JOIN]), endpoint)
                async with asyncio.timeout(WAIT):
                    assert (await loop.sock_recv(one, 2048))[1] == JOINED

                def readable(host: str = host, number: int = number, one: Any = one) -> None:
                    self.got(host, number, one.recv(2048)[18:])

                loop.add_reader(one, readable)

    def publish(self, host: str, address: int, payload: bytes) -> None:
        datagram = bytes([VERSION, SEND]) + IPv6Address(address).packed + payload
        self._sockets[host][0].sendto(datagram, self.network.endpoints()[host])

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        for one in (s for sockets in self._sockets.values() for s in sockets):
            loop.remove_reader(one)
            one.close()


def switch_keys(keys: Keys, topology: Topology) -> Keys:
    """A certificate that names all switches."""
    names = [f"URI:{dpid_name(switch.dpid)}" for switch in topology.switches]
    return sign(keys.authority, "switches", names)


@asynccontextmanager
async def lab_plane(
    topology: Topology,
    pipeline: Pipeline,
    partition_of: PartitionOf,
    protocol: str | tuple[str, ...] = "OpenFlow14",
    keys: Keys | None = None,
    role: RoleName = "master",
    others: tuple[int, ...] = (),
) -> AsyncIterator[LabPlane]:
    """Open vSwitch with our OpenFlow driver; `ofctl` talks the first protocol to it.

    Switches also connect to the ports of `others`.
    """
    protocols = (protocol,) if isinstance(protocol, str) else protocol
    tls = keys.server() if keys else None
    options = DriverOptions(port=0, timeout=WAIT, tls=tls, role=role)
    async with OpenFlowDriver(topology, pipeline, partition_of, {}, options) as driver:
        theirs = switch_keys(keys, topology) if keys else None
        files = Certificates(theirs.key, theirs.certificate, theirs.authority) if theirs else None
        targets = [f"{'ssl' if keys else 'tcp'}:127.0.0.1:{driver.port}"]
        targets += [f"tcp:127.0.0.1:{port}" for port in others]
        with Lab(topology, targets, protocols=protocols, tls=files) as lab:
            await all_up(driver, [switch.id for switch in topology.switches])
            plane = LabPlane(topology, driver, lab)
            try:
                yield plane
            finally:
                plane.close()


@asynccontextmanager
async def emulated_plane(
    topology: Topology,
    pipeline: Pipeline,
    partition_of: PartitionOf,
    version: int = V1_4,
    keys: Keys | None = None,
) -> AsyncIterator[EmulatedPlane]:
    """Emulated switches with our OpenFlow driver."""
    options = DriverOptions(port=0, timeout=WAIT, tls=keys.server() if keys else None)
    async with OpenFlowDriver(topology, pipeline, partition_of, {}, options) as driver:
        dialling = Dialling(tls=switch_keys(keys, topology).client() if keys else None)
        controllers = [("127.0.0.1", driver.port)]
        async with EmulatedNetwork(
            topology, controllers, versions=(version,), dialling=dialling
        ) as network:
            await all_up(driver, [switch.id for switch in topology.switches])
            plane = EmulatedPlane(topology, driver, network)
            try:
                await plane.join()
                yield plane
            finally:
                plane.close()


@asynccontextmanager
async def onos_plane(
    topology: Topology, pipeline: Pipeline, partition_of: PartitionOf
) -> AsyncIterator[EmulatedPlane]:
    """Emulated switches behind an ONOS-style REST onos, with the ONOS driver."""
    quick = OnosOptions(confirm=WAIT, poll=0.002, slowest_poll=0.05)
    async with EmulatedNetwork(topology) as network, OnosStandIn(network) as onos:
        access = OnosAccess(onos.url, "onos", "rocks")
        async with OnosDriver(topology, pipeline, partition_of, {}, access, quick) as driver:
            plane = EmulatedPlane(topology, driver, network)
            try:
                await plane.join()
                yield plane
            finally:
                plane.close()


class Round:
    """Requests, decided by the engine and applied to the data plane; events against the oracle."""

    def __init__(
        self,
        plan: PlanName,
        network: Topology,
        seed: int,
        other_traffic: OtherTraffic = "leave",
    ) -> None:
        self.random = Random(seed)
        self.plant = Plant(network, plan, other_traffic=other_traffic)
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
        """Send events, then the markers; a host that has the markers has all earlier events."""
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
