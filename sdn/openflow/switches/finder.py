"""Runs discovery: gives it the time, sends its probes, and reports what it finds."""

import asyncio
from collections.abc import Callable, Collection, Iterable

from sdn.network.events import NetworkEvent
from sdn.network.findings import End, SeenHost
from sdn.network.topology import Link, Topology
from sdn.openflow.connections.connection import SwitchConnection
from sdn.openflow.discovery.discovery import Discovery
from sdn.openflow.discovery.punts import punt_mods
from sdn.openflow.protocol.constants import Type
from sdn.openflow.protocol.messages import Port
from sdn.openflow.protocol.wire import HEADER
from sdn.tables.pipeline import Pipeline


class Finder:
    """Finds links and hosts of the switches that are connected."""

    def __init__(
        self,
        discovery: Discovery,
        topology: Topology,
        report: Callable[[NetworkEvent], None],
        busy: Callable[[], Collection[str]],
    ) -> None:
        self.discovery = discovery
        self._report = report
        self._busy = busy
        self._connections: dict[str, SwitchConnection] = {}
        self._wake = asyncio.Event()
        self.declare(topology)

    def declare(self, topology: Topology, *, fixed: bool = True) -> None:
        """The operator has declared these hosts and, if the network is `fixed`, these links.

        Otherwise the links that are unprobed are declared, as discovery cannot find them.
        """
        hidden = topology.unprobed
        declared = topology.links if fixed else tuple(hidden)
        expected = () if fixed else [link for link in topology.links if link not in hidden]
        declare = self.discovery.declare_parts
        self._report_all(declare(topology.hosts, declared, expected=expected, unprobed=hidden))

    def links(self) -> tuple[Link, ...]:
        """The links that carry probes both ways."""
        return self.discovery.confirmed_links()

    def hosts(self) -> tuple[SeenHost, ...]:
        """The hosts that were learned, and declared ones that were heard elsewhere."""
        return self.discovery.seen_hosts()

    def crossed(self) -> dict[End, End]:
        """The ports at which probes arrive of a port that should lead elsewhere."""
        return self.discovery.crossed(self._now())

    def switch_up(
        self, switch: str, connection: SwitchConnection, up: Iterable[int], ports: Iterable[Port]
    ) -> None:
        """A switch is connected: probe those of its ports that are up from now on."""
        self._connections[switch] = connection
        macs = {port.number: _mac(port) for port in ports}
        self._report_all(self.discovery.switch_up(switch, up, macs))
        self._wake.set()

    def switch_down(self, switch: str) -> None:
        """A switch cannot be probed any more, though it may go on forwarding."""
        self._connections.pop(switch, None)
        self.discovery.switch_down(switch)

    def switch_removed(self, switch: str) -> None:
        """A switch is no longer part of the network."""
        self._connections.pop(switch, None)
        self._report_all(self.discovery.switch_removed(switch))

    def port_changed(self, switch: str, port: Port, up: bool) -> None:
        """A port went up or down."""
        changed = self.discovery.port_changed
        self._report_all(changed(switch, port.number, up, self._now(), _mac(port)))
        self._wake.set()

    def packet_in(self, switch: str, port: int, data: bytes) -> None:
        """A packet came from a switch."""
        accepted = self.discovery.counters.probes_accepted
        self._report_all(self.discovery.packet_in(switch, port, data, self._now()))
        if self.discovery.counters.probes_accepted > accepted:
            self._wake.set()  # probe the other direction at once

    async def run(self) -> None:
        """Send probes when they are due, and report links that are gone, for ever."""
        while True:
            self._wake.clear()
            for switch, port, frame in self.discovery.probes(self._now(), self._busy()):
                connection = self._connections.get(switch)
                # A lost one is reported by `switch_down`; one that does not read gets no more.
                if connection and not connection.lost and connection.writable:
                    connection.packet_out(port, frame)
            self._report_all(self.discovery.tick(self._now()))
            due = self.discovery.wake_at(self._now())
            try:
                async with asyncio.timeout_at(due):
                    await self._wake.wait()
            except TimeoutError:
                continue  # something is due

    def _report_all(self, events: Iterable[NetworkEvent]) -> None:
        for event in events:
            self._report(event)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _mac(port: Port) -> bytes:
    return bytes.fromhex(port.mac.replace(":", ""))


async def send_punts(connection: SwitchConnection, switch: str, pipeline: Pipeline) -> None:
    """Have the switch send us LLDP and neighbour discovery; harmless if it does already."""
    forward = pipeline.other_traffic == "normal"
    mods = punt_mods(connection.session.version, 0, pipeline.admission_table(switch), forward)
    while mods:
        length = int.from_bytes(mods[2:4], "big")
        connection.send(Type.FLOW_MOD, mods[HEADER.size : length])
        mods = mods[length:]
    await connection.barrier()
