"""The ports and links that discovery knows, and which links go down with a port."""

from collections.abc import Collection
from itertools import count

from sdn.network.events import FindingsChanged, LinkChanged, NetworkEvent
from sdn.network.topology import Link
from sdn.openflow.discovery.frames import is_station
from sdn.openflow.discovery.hosts import End, HostTable
from sdn.openflow.discovery.limits import Settings
from sdn.openflow.discovery.probing import LONG_AGO, KnownLink, LinkState, ProbedPort, Schedule


class PortTable:
    """The ports of switches, the links between them, and when each port is probed."""

    def __init__(self, settings: Settings, hosts: HostTable) -> None:
        self._settings = settings
        self._hosts = hosts
        self._ports: dict[End, ProbedPort] = {}
        self._numbers: dict[str, set[int]] = {}  # of the ports that each switch has in `_ports`
        self._connected: set[str] = set()
        self._schedule = Schedule(settings.interval)
        self._deadlines: dict[End, float] = {}  # of links whose probes have been missed
        self._serial = count(1)
        self._crossed: dict[End, tuple[End, float]] = {}  # whose probes arrive at a port, and when

    # Results

    def links(self) -> tuple[Link, ...]:
        """The links that are up; those of switches that are away are as they were."""
        return tuple(known.link for known in self._links_up())

    def confirmed_links(self) -> tuple[Link, ...]:
        """Those of them that have carried probes since both switches are there."""
        return tuple(known.link for known in self._links_up() if known.confirmed)

    def _links_up(self) -> list[KnownLink]:
        known = dict.fromkeys(p.link for _, p in sorted(self._ports.items()) if p.link)
        return [link for link in known if link.state is LinkState.UP]

    # Ports

    def _known(self, end: End) -> ProbedPort:
        port = self._ports.get(end)
        if port is None:
            port = ProbedPort(self._settings, next(self._serial))
            self._ports[end] = port
            self._numbers.setdefault(end[0], set()).add(end[1])
        return port

    def _port_up(self, end: End, now: float = LONG_AGO, mac: bytes | None = None) -> None:
        port = self._known(end)
        if mac is not None and is_station(mac):
            port.mac = mac
        if not port.up:
            port.unanswered = 0
        port.up = True
        self._schedule.hasten(end, port, now)

    def _port_down(self, end: End) -> list[NetworkEvent]:
        port = self._ports.get(end)
        if port is None:
            return []
        port.up = False
        port.warned.clear()
        self._crossed.pop(end, None)
        port.silence(next(self._serial))
        self._hosts.forget(end)
        return self._down(port.link) if port.link else []

    def _suspend(self, switches: Collection[str]) -> None:
        """Do not count missing probes of links of these switches for now."""
        for switch in switches:
            for number in self._numbers.get(switch, ()):
                end = (switch, number)
                link = self._ports[end].link
                for one in link.link.ends if link else (end,):
                    self._ports[one].unanswered = 0
                    self._deadlines.pop(one, None)

    # Links

    def _reserve(self, link: Link, unprobed: bool) -> list[NetworkEvent]:
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
            end[0] in self._connected and not port.up
            for end, port in zip(link.ends, ports, strict=True)
        )
        return self._down(known) if missing else []

    def _forget_deadlines(self, known: KnownLink) -> None:
        for end in known.link.ends:
            self._deadlines.pop(end, None)

    def _expect(self, link: Link) -> None:
        """A link should be there, unless its ports have shown something else."""
        if any(self._hosts.is_host_port(end) for end in link.ends):
            return
        ports = [self._known(end) for end in link.ends]
        if all(port.link is None for port in ports):
            self._new_link(link)

    def _new_link(self, link: Link) -> KnownLink:
        """A link that nobody has declared; hosts that were asked at its ports are behind it."""
        known = KnownLink(link, declared=False)
        for end in link.ends:
            self._known(end).link = known
            self._hosts.forget(end)
        return known

    def _carries_probes(self, known: KnownLink) -> list[NetworkEvent]:
        """A link is up, and confirmed."""
        was_up, known.state = known.state is LinkState.UP, LinkState.UP
        was_confirmed, known.confirmed = known.confirmed, True
        if not was_up:
            return [LinkChanged(known.link, up=True)]
        return [] if was_confirmed else [FindingsChanged()]

    def _down(self, known: KnownLink) -> list[NetworkEvent]:
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
