"""Which connections a listener keeps when there are too many: per address, and in total.

Without I/O: the table decides, its caller closes. The connection that has been idle for longest
goes first, so an address that opens many silent connections displaces only its own. Connections
that are at work are never closed.
"""

from collections.abc import Hashable, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Generic, TypeVar

from msgspec import Struct

K = TypeVar("K", bound=Hashable)

_PREFIX = 64  # bits of an IPv6 address: the owner of one address has its whole network
_LOW = (1 << (128 - _PREFIX)) - 1


class ConnectionLimits(Struct, frozen=True):
    """How many connections a listener keeps.

    Behind one of the `proxies` (addresses and networks), many callers share an address: its
    connections count only in total. `reserve` more are let in when all others are at work; what
    they may do is for the caller of the table to say.
    """

    most: int
    most_of_address: int
    reserve: int = 0
    proxies: tuple[str, ...] = ()


class Admission(Struct, Generic[K], frozen=True):
    """Whether a new connection may stay, and the one that the caller must close for it."""

    admitted: bool
    evicted: K | None = None


class _Group(Generic[K]):
    """The connections of one address, or of the reserve; those idle for longest come first."""

    __slots__ = ("idle", "name", "open")

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.open = 0
        self.idle: dict[K, None] = {}


class ConnectionTable(Generic[K]):
    """The connections of a listener; a new one counts as idle until it is marked as busy."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.evicted = 0  # connections that were closed to make room
        self.refused = 0  # connections that found no room
        self._limits = limits
        self._proxies = networks(limits.proxies)
        self._group_of: dict[K, _Group[K]] = {}
        self._groups: dict[str, _Group[K]] = {}
        self._unlimited: _Group[K] = _Group(None)  # of proxies
        self._reserve: _Group[K] = _Group(None)
        self._idle: dict[K, None] = {}  # of all but the reserve

    def __len__(self) -> int:
        """The connections that are open."""
        return len(self._group_of)

    def admit(self, key: K, address: str) -> Admission[K]:
        """Decide on a new connection, and on the one that makes room for it."""
        limits, evicted = self._limits, None
        group = self._group(address)
        if group is not self._unlimited and group.open >= limits.most_of_address:
            evicted = next(iter(group.idle), None)
            room = evicted is not None
        elif len(self._group_of) - self._reserve.open >= limits.most:
            evicted = next(iter(self._idle), None)
            room = evicted is not None
        else:
            room = True
        if not room:
            group = self._reserve
            if group.open >= limits.reserve:
                evicted = next(iter(group.idle), None)
                if evicted is None:
                    self.refused += 1
                    return Admission(False)
        if evicted is not None:
            self.evicted += 1
            self.remove(evicted)
        if group.name is not None:
            self._groups[group.name] = group
        group.open += 1
        self._group_of[key] = group
        self.idle(key)
        return Admission(True, evicted)

    def is_reserved(self, key: K) -> bool:
        """Whether a connection was let in only because of the reserve."""
        return self._group_of.get(key) is self._reserve

    def busy(self, key: K) -> None:
        """Keep a connection, for it is at work."""
        group = self._group_of.get(key)
        if group is not None:
            group.idle.pop(key, None)
            self._idle.pop(key, None)

    def idle(self, key: K) -> None:
        """Let a connection be closed if others need its place; the last to be closed so far."""
        group = self._group_of.get(key)
        if group is None:
            return
        group.idle.pop(key, None)
        group.idle[key] = None
        if group is not self._reserve:
            self._idle.pop(key, None)
            self._idle[key] = None

    def remove(self, key: K) -> None:
        """Forget a connection, if it is known."""
        group = self._group_of.pop(key, None)
        if group is None:
            return
        group.idle.pop(key, None)
        self._idle.pop(key, None)
        group.open -= 1
        if not group.open and group.name is not None:
            del self._groups[group.name]

    def _group(self, address: str) -> _Group[K]:
        if self._proxies and contains(self._proxies, address):
            return self._unlimited
        name = origin_of(address)
        return self._groups.get(name) or _Group(name)


Networks = tuple[IPv4Network | IPv6Network, ...]


def networks(written: Iterable[str]) -> Networks:
    """Addresses and networks as they are written; ValueError if one is neither."""
    return tuple(ip_network(each) for each in written)


def contains(known: Networks, address: str) -> bool:
    """Whether an address is in one of the networks."""
    try:
        parsed = _parsed(address)
    except ValueError:
        return False
    return any(parsed in network for network in known)


def origin_of(address: str) -> str:
    """What the limit per address counts: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        parsed = _parsed(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and not parsed.is_link_local:
        return f"{IPv6Address(int(parsed) & ~_LOW)}/{_PREFIX}"
    return str(parsed)


def _parsed(address: str) -> IPv4Address | IPv6Address:
    parsed = ip_address(address)
    # A socket for both protocols reports IPv4 addresses in this form.
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return mapped or parsed
