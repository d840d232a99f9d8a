"""Which connections are open, and which have to go when there are too many; without I/O."""

from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

from sdn.openflow.discovery.limits import Budget
from sdn.openflow.options import Admission

MAX_ADDRESSES = 4_096  # with failed connections that are remembered
FAILURE_BURST = 50


class Arrival:
    """A connection from the moment that it is accepted; `admitted` when a switch uses it."""

    __slots__ = ("address", "admitted")

    def __init__(self, address: str) -> None:
        self.address = address
        self.admitted = False


class Arrivals:
    """Counts connections; `switches` returns how many the network has."""

    def __init__(self, limits: Admission, switches: Callable[[], int]) -> None:
        self._limits = limits
        self._switches = switches
        self._open: dict[Arrival, None] = {}
        self._unfinished: dict[Arrival, None] = {}  # the oldest first
        self._by_address: dict[str, dict[Arrival, None]] = {}  # the oldest first
        self._failures: dict[str, Budget] = {}  # the address that failed last is the last

    def add(self, arrival: Arrival, now: float) -> Arrival | None:
        """Count a connection; returns the one that has to go for it, which may be itself.

        Nobody is refused for the failures of its address, which switches may share with others. But
        an address that fails too often gets no more than half of the room for unfinished ones.
        """
        same = self._by_address.setdefault(arrival.address, {})
        for group in (self._open, self._unfinished, same):
            group[arrival] = None
        limits, least = self._limits, 2 * self._switches()
        room = max(limits.unfinished, least)
        own = next(each for each in same if not each.admitted)
        if len(same) > max(limits.address_connections, least) or (
            own is not arrival
            and len(self._unfinished) > room // 2
            and self.fails_too_often(arrival.address, now)
        ):
            victim = own
        elif len(self._unfinished) > room or len(self._open) > max(limits.connections, least):
            victim = next(iter(self._unfinished))
        else:
            return None
        self.remove(victim)
        return victim

    def admit(self, arrival: Arrival) -> None:
        """A connection is the one of a switch: it does not have to go for others."""
        arrival.admitted = True
        self._unfinished.pop(arrival, None)

    def remove(self, arrival: Arrival) -> None:
        """A connection is no longer open; nothing happens if it was removed before."""
        self._open.pop(arrival, None)
        self._unfinished.pop(arrival, None)
        if same := self._by_address.get(arrival.address):
            same.pop(arrival, None)
            if not same:
                del self._by_address[arrival.address]

    def failed(self, address: str, now: float) -> None:
        """A connection of an address has ended without being admitted."""
        budget = self._failures.pop(address, None)
        if budget is None:
            burst = FAILURE_BURST + 2 * self._switches()
            budget = Budget(self._limits.failure_rate, burst)
            if len(self._failures) >= MAX_ADDRESSES:
                del self._failures[next(iter(self._failures))]
        self._failures[address] = budget
        budget.take(now)

    def fails_too_often(self, address: str, now: float) -> bool:
        """Whether an address has used up its failures for now."""
        budget = self._failures.get(address)
        return budget is not None and budget.wait(now) > 0


def address_of(peer: str) -> str:
    """The address that connections are counted by: IPv4, or the /64 network of IPv6.

    A client with one IPv6 address usually has all of its /64.
    """
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    if address.is_loopback:
        return str(address)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"
