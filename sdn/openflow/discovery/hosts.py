"""The hosts that discovery has learned: which MAC is at which port, within limits."""

from collections.abc import Iterable
from ipaddress import IPv6Address

from sdn.openflow.discovery.frames import Announced, is_link_local
from sdn.openflow.discovery.limits import DiscoveryCounters, Settings
from sdn.network.topology import Host

End = tuple[str, int]
"""A port of a switch."""


class _Learned:
    __slots__ = ("address", "at", "moved")

    def __init__(self, address: bytes, at: End) -> None:
        self.address = address
        self.at = at
        self.moved = float("-inf")


class HostTable:
    """Hosts by their MAC; a port that has shown one has a host until it goes down."""

    def __init__(self, settings: Settings, counters: DiscoveryCounters) -> None:
        self._settings = settings
        self._counters = counters
        self._learned: dict[bytes, _Learned] = {}
        self._at: dict[End, set[bytes]] = {}  # an empty set means that a host was seen, too
        self._declared_macs: frozenset[bytes] = frozenset()
        self._declared_ids: frozenset[str] = frozenset()
        self._declared_ports: frozenset[End] = frozenset()

    def declare(self, hosts: Iterable[Host]) -> None:
        """The operator declares these hosts; forget everything that was learned about them."""
        hosts = list(hosts)
        self._declared_ports = frozenset((host.switch, host.port) for host in hosts)
        self._declared_ids = frozenset(host.id for host in hosts)
        self._declared_macs = frozenset(
            bytes.fromhex(host.mac.replace(":", "")) for host in hosts if host.mac is not None
        )
        for end in sorted(self._declared_ports):
            self.forget(end)
        for mac in [mac for mac in self._learned if self._is_declared(mac)]:
            del self._learned[mac]

    def is_host_port(self, end: End) -> bool:
        """Whether a host was declared or seen at a port."""
        return end in self._declared_ports or end in self._at

    def is_declared(self, end: End) -> bool:
        """Whether a host was declared at a port."""
        return end in self._declared_ports

    def learn(self, end: End, said: Announced, now: float) -> Host | None:
        """Learn a host; returned if it is new, has moved, or has a better address."""
        here = self._at.setdefault(end, set())
        if self._is_declared(said.mac):
            self._counters.neighbour_declared += 1
            if len(here) < self._settings.hosts_per_port:
                here.add(said.mac)
            return None
        known = self._learned.get(said.mac)
        if known is not None and known.at == end:
            if not _is_better(said.address, known.address):
                return None
            known.address = said.address
        elif len(here) >= self._settings.hosts_per_port:
            self._counters.hosts_refused += 1
            return None
        elif known is not None:
            if not self._move(known, said, end, now):
                return None
        elif len(self._learned) >= self._settings.hosts:
            self._counters.hosts_refused += 1
            return None
        else:
            self._learned[said.mac] = known = _Learned(said.address, end)
        here.add(said.mac)
        return _host(said.mac, known)

    def forget(self, end: End) -> None:
        """Forget the hosts at a port: it went down, or its host is declared."""
        for mac in self._at.pop(end, ()):
            known = self._learned.get(mac)
            if known is not None and known.at == end:
                del self._learned[mac]

    def hosts(self) -> tuple[Host, ...]:
        """All hosts that were learned, by MAC."""
        return tuple(_host(mac, self._learned[mac]) for mac in sorted(self._learned))

    def validate(self) -> None:
        """Assert the invariants of the table; for tests."""
        for end, macs in self._at.items():
            assert len(macs) <= self._settings.hosts_per_port, f"too many hosts at {end}"
        for mac, known in self._learned.items():
            assert mac in self._at[known.at]

    def _is_declared(self, mac: bytes) -> bool:
        # The id as well: a learned host must never take the place of a declared one.
        return mac in self._declared_macs or _id(mac) in self._declared_ids

    def _move(self, known: _Learned, said: Announced, end: End, now: float) -> bool:
        if now - known.moved < self._settings.move_every:
            self._counters.host_moves_held += 1
            return False
        left = self._at[known.at]
        left.discard(said.mac)
        if not left:
            del self._at[known.at]
        known.at, known.moved = end, now
        if not _is_better(known.address, said.address):
            known.address = said.address
        self._counters.host_moves += 1
        return True


def _is_better(address: bytes, than: bytes) -> bool:
    """Hosts have several addresses; the first one is kept, unless it is link-local."""
    return is_link_local(than) and not is_link_local(address)


def _id(mac: bytes) -> str:
    return f"host-{mac.hex()}"


def _host(mac: bytes, known: _Learned) -> Host:
    address = str(IPv6Address(known.address))
    return Host(_id(mac), *known.at, mac=mac.hex(":"), ipv6=address)
