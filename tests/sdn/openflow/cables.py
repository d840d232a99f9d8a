"""Cables between switches without any switch: frames go from port to port as a topology says."""

import struct
from collections.abc import Iterable

from os_ken.lib.packet import ethernet, icmpv6, ipv6, packet

from sdn.network.events import HostSeen, LinkChanged, NetworkEvent
from sdn.network.topology import Host, Link, Topology
from sdn.openflow.discovery.discovery import Discovery
from sdn.openflow.discovery.hosts import End
from sdn.openflow.discovery.limits import DiscoveryLimits

KEY = bytes(range(32))
MAC = "02:00:00:00:00:11"
ADDRESS = "fd00::11"
ALL_NODES = "ff02::1"


class Cables:
    """A discovery whose probes travel over the cables of a topology, and arrive at once.

    What leaves by a port without a cable, or one to a host, is kept in `heard`.
    """

    def __init__(
        self, topology: Topology, limits: DiscoveryLimits | None = None, *, ask_hosts: bool = False
    ) -> None:
        self.topology = topology
        self.discovery = Discovery(KEY, limits, ask_hosts=ask_hosts)
        self.now = 1000.0
        self.cut: set[Link] = set()
        self.one_way: set[End] = set()  # nothing leaves by these ports
        self.taps: dict[End, End] = {}  # a copy of what leaves by one port is sooner at another
        self.busy: set[str] = set()
        self.heard: dict[End, list[bytes]] = {}
        self.events: list[NetworkEvent] = []
        self.sent: list[tuple[float, End]] = []

    @property
    def interval(self) -> float:
        return self.discovery.limits.interval

    def connect(self, *switches: str) -> None:
        """These switches, or all, are connected with all their ports up."""
        for switch in switches or [s.id for s in self.topology.switches]:
            ports = self.ports(switch)
            macs = {number: port_mac((switch, number)) for number in ports}
            self.events += self.discovery.switch_up(switch, ports, macs)

    def ports(self, switch: str) -> list[int]:
        hosts = [host.port for host in self.topology.hosts_at(switch)]
        return [*self.topology.switch_ports(switch), *hosts]

    def peer(self, end: End) -> End | None:
        """Where a cable leads that is not cut."""
        link = self.topology.at(*end)
        if not isinstance(link, Link) or link in self.cut or end in self.one_way:
            return None
        one, other = link.ends
        return other if one == end else one

    def run(self, seconds: float) -> list[NetworkEvent]:
        """Let time pass; what has happened."""
        start, until = len(self.events), self.now + seconds
        while (wake := self.discovery.wake_at(self.now)) is not None and wake <= until:
            self.now = max(self.now, wake)
            self.events += self.discovery.tick(self.now)
            for switch, port, frame in self.discovery.probes(self.now, self.busy):
                self.sent.append((self.now, (switch, port)))
                self.carry((switch, port), frame)
            self.discovery.validate()
        self.now = until
        return self.events[start:]

    def rounds(self, count: float = 3) -> list[NetworkEvent]:
        return self.run(count * self.interval)

    def carry(self, end: End, frame: bytes) -> None:
        if end in self.taps:
            self.arrive(self.taps[end], frame)
        peer = self.peer(end)
        if peer is None:
            self.heard.setdefault(end, []).append(frame)
        else:
            self.events += self.discovery.packet_in(*peer, frame, self.now)

    def arrive(self, end: End, frame: bytes) -> list[NetworkEvent]:
        """A frame comes in by a port."""
        events = self.discovery.packet_in(*end, frame, self.now)
        self.events += events
        self.discovery.validate()
        return events

    def port(self, end: End, up: bool) -> list[NetworkEvent]:
        """A port goes up or down."""
        events = self.discovery.port_changed(*end, up, self.now)
        self.events += events
        self.discovery.validate()
        return events


def port_mac(end: End) -> bytes:
    """The MAC of a port of a switch itself."""
    return bytes.fromhex(f"02ee{int(end[0].lstrip('s')):04x}{end[1]:04x}")


def links_of(events: Iterable[NetworkEvent]) -> list[tuple[Link, bool]]:
    return [(event.link, event.up) for event in events if isinstance(event, LinkChanged)]


def hosts_of(events: Iterable[NetworkEvent]) -> list[Host]:
    return [event.host for event in events if isinstance(event, HostSeen)]


def advertisement(mac: str = MAC, address: str = ADDRESS, said_mac: str | None = None) -> bytes:
    """A host's neighbour advertisement to all, as os-ken writes it."""
    option = icmpv6.nd_option_tla(hw_src=said_mac or mac)
    body = icmpv6.nd_neighbor(res=1, dst=address, option=option)  # only "override" is set
    return _frame(mac, address, ALL_NODES, icmpv6.ND_NEIGHBOR_ADVERT, body)


def solicitation(
    mac: str = MAC, address: str = ADDRESS, target: str = "fd00::22", said_mac: str | None = None
) -> bytes:
    """A host's neighbour solicitation, as os-ken writes it."""
    option = icmpv6.nd_option_sla(hw_src=said_mac or mac)
    body = icmpv6.nd_neighbor(dst=target, option=option)
    return _frame(mac, address, "ff02::1:ff00:22", icmpv6.ND_NEIGHBOR_SOLICIT, body)


def address_check(mac: str = MAC, address: str = ADDRESS) -> bytes:
    """A host asks whether its address is free, as os-ken writes it."""
    body = icmpv6.nd_neighbor(dst=address)
    return _frame(mac, "::", "ff02::1:ff00:11", icmpv6.ND_NEIGHBOR_SOLICIT, body)


def with_checksum(frame: bytes) -> bytes:
    """A frame of ICMPv6 with the checksum that it should have."""
    inside = frame[22:56] + bytes(2) + frame[58:] + bytes(len(frame) % 2)
    total: int = sum(struct.unpack(f"!{len(inside) // 2}H", inside)) + len(frame) - 54 + 58
    return frame[:56] + (0xFFFF - total % 0xFFFF).to_bytes(2, "big") + frame[58:]


def _frame(mac: str, source: str, destination: str, kind: int, body: object) -> bytes:
    found = packet.Packet()
    found.add_protocol(ethernet.ethernet("33:33:00:00:00:01", mac, 0x86DD))
    found.add_protocol(ipv6.ipv6(src=source, dst=destination, nxt=58, hop_limit=255))
    found.add_protocol(icmpv6.icmpv6(kind, 0, 0, body))
    found.serialize()
    data: bytearray = found.data
    return bytes(data)
