"""The hosts that discovery has learned: which MAC is at which port, within limits."""

from collections.abc import Iterable
from ipaddress import IPv6Address

from sdn.network.findings import SeenHost
from sdn.network.topology import Host
from sdn.openflow.discovery.frames import Announced, is_link_local
from sdn.openflow.discovery.limits import DiscoveryCounters, DiscoveryLimits

End = tuple[str, int]
"""A port of a switch."""


class _Learned:
    __slots__ = ("address", "at", "elsewhere", "moved", "settled", "since")

    def __init__(self, address: bytes, at: End, since: float) -> None:
        self.address = address
        self.at = at
        self.since = since  # when it was first heard at this port
        self.moved = float("-inf")
        self.elsewhere = float("-inf")  # when it was last heard at another port
        self.settled = True  # false while switches seem to forward what it says


class HostTable:
    """Hosts by their MAC; a port that has shown one has a host until it goes down."""

    def __init__(self, limits: DiscoveryLimits, counters: DiscoveryCounters) -> None:
        self._limits = limits
        self._counters = counters
        self._learned: dict[bytes, _Learned] = {}
        self._at: dict[End, set[bytes]] = {}  # an empty set means that a host was seen, too
        self._declared_macs: dict[bytes, End] = {}
        self._at_home: dict[bytes, float] = {}  # when MACs were heard at ports of declared hosts
        self._home: dict[End, set[bytes]] = {}  # which of them at which port
        self._declared_ids: frozenset[str] = frozenset()
        self._declared_ports: frozenset[End] = frozenset()
        self._elsewhere: dict[bytes, _Learned] = {}  # declared hosts, at ports that are not theirs
        self._doubted: set[End] = set()  # ports where all that was heard may have been forwarded
        self._seen: tuple[SeenHost, ...] | None = None  # until something changes

    def declare(self, hosts: Iterable[Host]) -> None:
        """The operator declares these hosts: nothing learned about them counts any more."""
        hosts = list(hosts)
        self._seen = None
        self._declared_ports = frozenset((host.switch, host.port) for host in hosts)
        self._declared_ids = frozenset(host.id for host in hosts)
        self._declared_macs = {
            bytes.fromhex(host.mac.replace(":", "")): (host.switch, host.port)
            for host in hosts
            if host.mac is not None
        }
        for end in self._home.keys() - self._declared_ports:
            self._leave_home(end)
        for end in sorted(self._declared_ports):
            self._forget_learned(end)
        for mac in [mac for mac in self._learned if self._is_declared(mac)]:
            self._elsewhere[mac] = self._learned.pop(mac)
        for mac in [mac for mac in self._elsewhere if not self._is_declared(mac)]:
            del self._elsewhere[mac]

    def is_host_port(self, end: End) -> bool:
        """Whether a host was declared at a port, or has spoken there by itself, and nowhere else.

        What is heard at several ports was forwarded by switches to all of them but one. What was
        heard before a switch was connected for the first time may have been forwarded by that one.
        """
        if end in self._declared_ports:
            return True
        here = self._at.get(end)
        if here is None or end in self._doubted:
            return False
        known = (self._learned.get(mac) or self._elsewhere.get(mac) for mac in here)
        return not here or any(one and one.at == end and one.settled for one in known)

    def is_declared(self, end: End) -> bool:
        """Whether a host was declared at a port."""
        return end in self._declared_ports

    def heard_at_declared(self, end: End, mac: bytes, now: float) -> None:
        """A declared host may be where it should be: what it says elsewhere was forwarded there.

        If its MAC was not declared, any MAC may be its own.
        """
        if self._declared_macs.get(mac, end) != end:
            return
        here = self._home.setdefault(end, set())
        if mac not in here and len(here) >= self._limits.hosts_per_port:
            return
        here.add(mac)
        self._at_home[mac] = now
        if known := self._learned.get(mac) or self._elsewhere.get(mac):
            known.elsewhere, known.settled = now, False

    def learn(self, end: End, said: Announced, now: float, *, answers: bool = False) -> Host | None:
        """Learn a host; returned if it is new, has moved, or has a better address.

        `answers`: it was asked to speak, so that its port is not known to be a host's.
        """
        if not answers:
            self._doubted.discard(end)
        elif end not in self._at:
            self._doubted.add(end)
        new = end not in self._at
        here = self._at.setdefault(end, set())
        if self._is_declared(said.mac):
            self._counters.neighbour_declared += 1
            if len(here) < self._limits.hosts_per_port or said.mac in here:
                here.add(said.mac)
                self._note_elsewhere(end, said, now)
            return None
        known = self._learned.get(said.mac)
        if known is not None and known.at == end:
            known.settled |= now - known.elsewhere >= self._limits.settle_after
            if not _is_better(said.address, known.address):
                return None
            known.address = said.address
            self._seen = None
        elif len(here) >= self._limits.hosts_per_port:
            self._counters.hosts_refused += 1
            return None
        elif known is not None:
            known.elsewhere, known.settled = now, False
            if not self._move(known, said, end, now):
                if new:
                    self._leave(end)
                return None
        elif len(self._learned) >= self._limits.hosts:
            self._counters.hosts_refused += 1
            return None
        else:
            self._learned[said.mac] = known = _Learned(said.address, end, now)
            known.elsewhere = self._at_home.get(said.mac, known.elsewhere)
            known.settled = now - known.elsewhere >= self._limits.settle_after
        here.add(said.mac)
        self._seen = None
        return _host(said.mac, known)

    def doubt(self) -> None:
        """A switch is new: it may have forwarded all that was heard, so no port is a host's."""
        self._doubted.update(self._at)

    def forget(self, end: End) -> None:
        """Forget the hosts at a port: it went down, or leads to a switch."""
        self._leave_home(end)
        self._forget_learned(end)

    def _forget_learned(self, end: End) -> None:
        self._doubted.discard(end)
        for mac in self._at.pop(end, ()):
            for table in (self._learned, self._elsewhere):
                known = table.get(mac)
                if known is not None and known.at == end:
                    del table[mac]
                    self._seen = None

    def forget_switch(self, end: End, mac: bytes) -> bool:
        """What has spoken with this MAC was a switch itself; whether the port may be a link now."""
        here, was_host = self._at.get(end), self.is_host_port(end)
        if here is None or mac not in here:
            return False
        here.discard(mac)
        if not here:
            self._leave(end)
        for table in (self._learned, self._elsewhere):
            known = table.get(mac)
            if known is not None and known.at == end:
                del table[mac]
                self._seen = None
        return was_host and not self.is_host_port(end)

    def hosts(self) -> tuple[Host, ...]:
        """All hosts that were learned, by MAC."""
        return tuple(_host(mac, self._learned[mac]) for mac in sorted(self._learned))

    def seen(self) -> tuple[SeenHost, ...]:
        """The same with times, and declared hosts that were heard at a port that is not theirs."""
        if self._seen is None:
            found = sorted({**self._learned, **self._elsewhere}.items())
            self._seen = tuple(SeenHost(_host(mac, known), known.since) for mac, known in found)
        return self._seen

    def validate(self) -> None:
        """Assert the invariants of the table; for tests."""
        cached, self._seen = self._seen, None
        assert cached is None or cached == self.seen()
        assert self._doubted <= self._at.keys()
        for end, macs in self._at.items():
            assert len(macs) <= self._limits.hosts_per_port, f"too many hosts at {end}"
        for end, macs in self._home.items():
            assert end in self._declared_ports, f"no host is declared at {end}"
            assert len(macs) <= self._limits.hosts_per_port, f"too many MACs at {end}"
        assert self._at_home.keys() <= set().union(*self._home.values())
        for mac, known in self._learned.items():
            assert mac in self._at[known.at]
        for mac, known in self._elsewhere.items():
            assert self._is_declared(mac)
            assert mac in self._at[known.at]

    def _is_declared(self, mac: bytes) -> bool:
        # The id as well: a learned host must never take the place of a declared one.
        return mac in self._declared_macs or _id(mac) in self._declared_ids

    def _note_elsewhere(self, end: End, said: Announced, now: float) -> None:
        known = self._elsewhere.get(said.mac)
        if known is None or known.at != end:
            known = self._elsewhere[said.mac] = _Learned(said.address, end, now)
            known.elsewhere = self._at_home.get(said.mac, known.elsewhere)
            known.settled = False
            self._seen = None
        known.settled |= now - known.elsewhere >= self._limits.settle_after

    def _leave_home(self, end: End) -> None:
        """What was heard at a port of a declared host counts no more."""
        for mac in self._home.pop(end, ()):
            self._at_home.pop(mac, None)

    def _leave(self, end: End) -> None:
        """No host is known at a port any more."""
        del self._at[end]
        self._doubted.discard(end)

    def _move(self, known: _Learned, said: Announced, end: End, now: float) -> bool:
        if now - known.moved < self._limits.move_every:
            self._counters.host_moves_held += 1
            return False
        left = self._at[known.at]
        left.discard(said.mac)
        if not left:
            self._leave(known.at)
        known.at = end
        known.moved = known.since = now
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
