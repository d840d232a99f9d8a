"""The state of each port and link, and the schedule of probes."""

import heapq
from enum import Enum
from itertools import count

from sdn.network.topology import Link
from sdn.openflow.discovery.frames import PROBE_MAC
from sdn.openflow.discovery.hosts import End
from sdn.openflow.discovery.limits import Budget, DiscoveryLimits

LONG_AGO = float("-inf")

_GAP = 0.25  # seconds between two probes of a port at least, lest the later outdates the earlier
_GOLDEN = 0.618034  # its multiples spread evenly over a circle


class LinkState(Enum):
    """Whether a link carries probes both ways."""

    UNKNOWN = "unknown"  # declared, and not found out yet
    UP = "up"
    DOWN = "down"


class KnownLink:
    """A link that was declared or is expected, or was found and not lost since.

    A `shared` one leads to a switch of another process, which probes it from there. Of an
    `unprobed` one, no probes are expected: it is there as long as its ports are up. A `confirmed`
    one has carried probes since both its switches are there; of others it is not known any more.
    """

    __slots__ = ("confirmed", "declared", "link", "shared", "state", "unprobed")

    def __init__(self, link: Link, declared: bool) -> None:
        self.link = link
        self.declared = declared
        self.confirmed = False
        self.shared = False
        self.unprobed = False
        self.state = LinkState.UNKNOWN

    def peer(self, end: End) -> End:
        """The other end."""
        one, other = self.link.ends
        return other if end == one else one


class ProbedPort:
    """A port of a switch, and the fate of its probes."""

    __slots__ = (
        "budget",
        "due",
        "hastened",
        "heard",
        "life",
        "link",
        "mac",
        "nonce",
        "phase",
        "reach",
        "recent",
        "sent",
        "unanswered",
        "up",
        "warned",
    )

    def __init__(self, limits: DiscoveryLimits, number: int) -> None:
        self.budget = Budget(limits.port_rate, limits.port_burst)
        self.phase = 0.5 + number * _GOLDEN % 1 / 2
        self.life = number  # another one each time that it goes down
        self.up = False
        self.mac = PROBE_MAC
        self.link: KnownLink | None = None
        self.nonce: int | None = None  # of the last probe, until that is accepted
        self.recent: tuple[int, ...] = ()  # of the last two probes, accepted or not
        self.heard: tuple[End, int] | None = None  # the last probe of another process, its nonce
        self.sent = LONG_AGO
        self.due = float("inf")
        self.hastened = False
        self.unanswered = 0  # probes in a row
        self.reach: tuple[End, int] | None = None  # where probes arrive, and that port's life
        self.warned: set[End] = set()  # of whose probes a warning told

    def silence(self, life: int) -> None:
        """Ignore all probes that this port has sent or received so far."""
        self.nonce = None
        self.recent = ()
        self.reach = None
        self.heard = None
        self.life = life


class Schedule:
    """When each port is due: once in an interval, or as soon as there is a reason."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._queue: list[tuple[float, int, End, ProbedPort]] = []
        self._serial = count()

    def hasten(self, end: End, port: ProbedPort, now: float) -> None:
        """There is a reason to probe this port now."""
        due = max(now, port.sent + _GAP)
        if due < port.due:
            port.hastened = True
            self._put(end, port, due)

    def put_off(self, end: End, port: ProbedPort, now: float) -> None:
        """A port that was due waits for the next round."""
        # After a common cause, such as a switch that is new, ports must not stay in step.
        pause = self._interval * (port.phase if port.hastened else 1)
        port.hastened = False
        self._put(end, port, now + pause)

    def first(self) -> tuple[float, End, ProbedPort] | None:
        """The port that is due before all others, and when; it stays so until it is put off."""
        while self._queue:
            due, _, end, port = self._queue[0]
            if port.due == due:
                return due, end, port
            heapq.heappop(self._queue)  # it has been put elsewhere, or is gone
        return None

    def remove(self, port: ProbedPort) -> None:
        """A port is there no longer."""
        port.due = float("inf")

    def _put(self, end: End, port: ProbedPort, due: float) -> None:
        port.due = due
        heapq.heappush(self._queue, (due, next(self._serial), end, port))
