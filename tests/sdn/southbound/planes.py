"""Data planes to test against: a driver, and hosts that send and receive real events."""

import asyncio
import socket
import struct
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv6Address
from typing import Any

from dzflow.address import DELIVERY, EVENT_PORT
from dzflow.host_protocol import JOIN, JOINED, SEND, VERSION
from sdn.emulator.agent import Dialling
from sdn.emulator.network import EmulatedNetwork
from sdn.lab import Certificates, Lab
from sdn.onos.client import Access
from sdn.onos.driver import OnosDriver
from sdn.onos.face import Face
from sdn.onos.options import Options as OnosOptions
from sdn.openflow.driver import Driver, Options
from sdn.openflow.protocol.constants import V1_4
from sdn.pipeline import Pipeline
from sdn.southbound import NetworkEvent, PartitionOf, Southbound, SwitchUp
from sdn.topology import Topology
from tests.certificates import Keys

WAIT = 20.0
APPLICATIONS = 2  # on each host, each with a socket of its own


class Plane(ABC):
    """A running data plane with its driver."""

    def __init__(self, topology: Topology, southbound: Southbound) -> None:
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

    def __init__(self, topology: Topology, southbound: Southbound, lab: Lab) -> None:
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
        self, topology: Topology, southbound: Southbound, network: EmulatedNetwork
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


@asynccontextmanager
async def lab_plane(
    topology: Topology,
    pipeline: Pipeline,
    partition_of: PartitionOf,
    protocol: str = "OpenFlow14",
    keys: Keys | None = None,
) -> AsyncIterator[LabPlane]:
    """Open vSwitch with our OpenFlow driver."""
    options = Options(port=0, timeout=WAIT, tls=keys.server() if keys else None)
    async with Driver(topology, pipeline, partition_of, {}, options) as driver:
        tls = Certificates(keys.key, keys.certificate, keys.authority) if keys else None
        target = f"{'ssl' if keys else 'tcp'}:127.0.0.1:{driver.port}"
        with Lab(topology, target, protocols=(protocol,), tls=tls) as lab:
            await all_up(driver, topology)
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
    options = Options(port=0, timeout=WAIT, tls=keys.server() if keys else None)
    async with Driver(topology, pipeline, partition_of, {}, options) as driver:
        dialling = Dialling(tls=keys.client() if keys else None)
        controllers = [("127.0.0.1", driver.port)]
        async with EmulatedNetwork(
            topology, controllers, versions=(version,), dialling=dialling
        ) as network:
            await all_up(driver, topology)
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
    """Emulated switches behind an ONOS-style REST face, with the ONOS driver."""
    quick = OnosOptions(confirm=WAIT, poll=0.002, slowest_poll=0.05)
    async with EmulatedNetwork(topology) as network, Face(network) as face:
        access = Access(face.url, "onos", "rocks")
        async with OnosDriver(topology, pipeline, partition_of, {}, access, quick) as driver:
            plane = EmulatedPlane(topology, driver, network)
            try:
                await plane.join()
                yield plane
            finally:
                plane.close()


async def all_up(driver: Driver, topology: Topology) -> None:
    """Wait until every switch is connected and set up."""
    left = {switch.id for switch in topology.switches}
    while left:
        event = await next_event(driver, SwitchUp)
        assert isinstance(event, SwitchUp)
        left.discard(event.switch)


async def next_event(driver: Driver, kind: type[NetworkEvent]) -> NetworkEvent:
    """The next event of a kind; others are passed over."""
    async with asyncio.timeout(WAIT):
        while True:
            event = await driver.events.get()
            if isinstance(event, kind):
                return event
