"""The ports and links that discovery knows, and which links go down with a port."""

from collections.abc import Collection, Iterable, Mapping
from itertools import count

from sdn.network.events import FindingsChanged, LinkChanged, NetworkEvent
from sdn.network.topology import MAX_PORT, Link
from sdn.openflow.discovery.frames import is_station
from sdn.openflow.discovery.hosts import End, HostTable
from sdn.openflow.discovery.limits import DiscoveryLimits
from sdn.openflow.discovery.probed_ports import LONG_AGO, KnownLink, LinkState, ProbedPort, Schedule


class PortTable:
    """The ports of switches, the links between them, and when each port is probed.

    `connected` are the switches that have a connection here.
    """

    def __init__(self, limits: DiscoveryLimits, hosts: HostTable) -> None:
        self.connected: set[str] = set()
        self._macs: dict[str, frozenset[bytes]] = {}  # of all ports of each switch that was there
        self.schedule = Schedule(limits.interval)
        self._limits = limits
        self._hosts = hosts
        self._ports: dict[End, ProbedPort] = {}
        self._numbers: dict[str, set[int]] = {}  # of the ports that each switch has in `_ports`
        self._deadlines: dict[End, float] = {}  # of links whose probes have been missed
        self._serial = count(1)
        self._crossed: dict[End, tuple[End, float]] = {}  # whose probes arrive at a port, and when

    def validate(self) -> None:
        """Assert the invariants of ports and links; for tests."""
        for end in self._deadlines:
            known = self._ports[end].link
            assert known is not None
            assert end in known.link.ends
        for (switch, number), port in self._ports.items():
            assert number in self._numbers[switch]
            if port.link is not None:
                assert self._ports[port.link.peer((switch, number))].link is port.link

    # Switches

    def switch_up(
        self, switch: str, ports: Iterable[int], macs: Mapping[int, bytes]
    ) -> list[NetworkEvent]:
        """A switch is connected; these of its ports are up, and no others."""
        if switch not in self._macs:
            self._hosts.doubt()
        self._macs[switch] = frozenset(macs.values())
        self.connected.add(switch)
        live = {number for number in ports if 1 <= number <= MAX_PORT}
        events: list[NetworkEvent] = []
        for number in sorted(self._numbers.get(switch, set()) - live):
            events += self.port_down((switch, number))
        for number in sorted(live):
            self.port_up((switch, number), mac=macs.get(number))
        return events

    def switch_down(self, switch: str) -> None:
        """The connection to a switch is lost; it may go on forwarding, so its links stay."""
        was_connected = switch in self.connected
        self.connected.discard(switch)
        self.suspend([switch])
        for number in self._numbers.get(switch, ()):
            port = self._ports[switch, number]
            port.silence(next(self._serial))
            if was_connected and port.link is not None:  # otherwise it is another process's
                port.link.confirmed = False

    def switch_removed(self, switch: str) -> list[NetworkEvent]:
        """Forget everything about a switch."""
        self.switch_down(switch)
        self._macs.pop(switch, None)
        events: list[NetworkEvent] = []
        for number in sorted(self._numbers.pop(switch, ())):
            end = (switch, number)
            events += self.port_down(end)
            port = self._ports.pop(end)
            self.schedule.remove(port)
            if port.link is not None:
                self._ports[port.link.peer(end)].link = None
        return events

    def is_switch(self, mac: bytes) -> bool:
        """Whether a port of a switch that was connected here has this MAC."""
        return any(mac in macs for macs in self._macs.values())

    def suspend(self, switches: Collection[str]) -> None:
        """Do not count missing probes of links of these switches for now."""
        for switch in switches:
            for number in self._numbers.get(switch, ()):
                end = (switch, number)
                link = self._ports[end].link
                for one in link.link.ends if link else (end,):
                    self._ports[one].unanswered = 0
                    self._deadlines.pop(one, None)

    # Ports

    def get(self, end: End) -> ProbedPort | None:
        """A port; None if it was never heard of."""
        return self._ports.get(end)

    def _known(self, end: End) -> ProbedPort:
        port = self._ports.get(end)
        if port is None:
            port = ProbedPort(self._limits, next(self._serial))
            self._ports[end] = port
            self._numbers.setdefault(end[0], set()).add(end[1])
        return port

    def port_up(self, end: End, now: float = LONG_AGO, mac: bytes | None = None) -> None:
        """A port is up."""
        port = self._known(end)
        if mac is not None and is_station(mac):
            port.mac = mac
        if not port.up:
            port.unanswered = 0
        port.up = True
        self.schedule.hasten(end, port, now)

    def port_down(self, end: End) -> list[NetworkEvent]:
        """A port is down: so is its link, and nothing is known of what is behind it."""
        port = self._ports.get(end)
        if port is None:
            return []
        port.up = False
        port.warned.clear()
        self._crossed.pop(end, None)
        port.silence(next(self._serial))
        self._hosts.forget(end)
        return self.take_down(port.link) if port.link else []

    # Probes of one port that arrive at another

    def cross(self, end: End, origin: End, now: float) -> None:
        """Note that probes of a port arrive at one that cannot be linked with it."""
        self._crossed[end] = origin, now

    def uncross(self, end: End) -> None:
        """Note that the right probes arrive at a port."""
        self._crossed.pop(end, None)

    def crossed(self, now: float) -> dict[End, End]:
        """The ports at which probes arrive of a port that should lead elsewhere."""
        since = now - (self._limits.missed + 1) * self._limits.interval
        self._crossed = {end: seen for end, seen in self._crossed.items() if seen[1] >= since}
        return {end: origin for end, (origin, _) in sorted(self._crossed.items())}

    # Links

    def links(self) -> list[KnownLink]:
        """All links, in the order of their ports."""
        return list(dict.fromkeys(p.link for _, p in sorted(self._ports.items()) if p.link))

    def reserve(self, link: Link, unprobed: bool) -> list[NetworkEvent]:
        """Reserve the ports of a declared link."""
        ports = [self._known(end) for end in link.ends]
        for end in link.ends:
            self._hosts.forget(end)
        known = ports[0].link
        if known is None:
            known = ports[0].link = ports[1].link = KnownLink(link, declared=True)
            ports[0].unanswered = ports[1].unanswered = 0
        new, known.unprobed = unprobed and not known.unprobed, unprobed
        if new:
            self._forget_deadlines(known)
            if known.state is LinkState.DOWN:
                known.state = LinkState.UNKNOWN
            return [LinkChanged(link, up=True)]  # it may have been reported to be down before
        if unprobed:
            return []
        missing = any(
            end[0] in self.connected and not port.up
            for end, port in zip(link.ends, ports, strict=True)
        )
        return self.take_down(known) if missing else []

    def _forget_deadlines(self, known: KnownLink) -> None:
        for end in known.link.ends:
            self._deadlines.pop(end, None)

    def await_probe(self, end: End, deadline: float) -> None:
        """The link of a port goes down unless its probes arrive until then."""
        self._deadlines.setdefault(end, deadline)

    def stop_awaiting(self, end: End) -> None:
        """A probe of this port has arrived, as its link needs it."""
        self._deadlines.pop(end, None)

    def next_deadline(self) -> float | None:
        """When `take_down_overdue` next has something to do, if that is known."""
        return min(self._deadlines.values(), default=None)

    def take_down_overdue(self, now: float) -> list[NetworkEvent]:
        """Take links down whose probes have not arrived for too long."""
        events: list[NetworkEvent] = []
        for end in [end for end, deadline in self._deadlines.items() if deadline <= now]:
            link = self._ports[end].link
            if self._deadlines.pop(end, None) is not None and link is not None:
                events += self.take_down(link)
        return events

    def expect(self, link: Link) -> None:
        """A link should be there, unless its ports have shown something else."""
        if any(self._hosts.is_host_port(end) for end in link.ends):
            return
        ports = [self._known(end) for end in link.ends]
        if all(port.link is None for port in ports):
            self.new_link(link)

    def new_link(self, link: Link) -> KnownLink:
        """A link that nobody has declared; hosts that were asked at its ports are behind it."""
        known = KnownLink(link, declared=False)
        for end in link.ends:
            self._known(end).link = known
            self._hosts.forget(end)
        return known

    def carries_probes(self, known: KnownLink) -> list[NetworkEvent]:
        """Note that a link is up, and confirmed."""
        was_up, known.state = known.state is LinkState.UP, LinkState.UP
        was_confirmed, known.confirmed = known.confirmed, True
        if not was_up:
            return [LinkChanged(known.link, up=True)]
        return [] if was_confirmed else [FindingsChanged()]

    def take_down(self, known: KnownLink) -> list[NetworkEvent]:
        """Take a link down; an undeclared one frees its ports."""
        was = known.state
        known.state = LinkState.DOWN
        self._forget_deadlines(known)
        for end in known.link.ends:
            port = self._ports[end]
            port.reach = port.heard = None
            if not known.declared:
                port.link = None
        if known.unprobed:
            known.state = LinkState.UNKNOWN  # its ports say whether it is there
            return []
        return [] if was is LinkState.DOWN else [LinkChanged(known.link, up=False)]
