"""What hosts ask for over REST: bodies encoded beforehand, and the ids of what is active."""

from collections import deque
from collections.abc import Iterable
from itertools import islice
from random import Random
from typing import Any

import msgspec

from bench.workload import HOSTS, Ask, Distribution, Workload, make_space

SPACE = "bench"
WAIT = 60.0  # seconds that a call waits for the switches


def body(ask: Ask) -> bytes:
    """The body of a call that asks for this."""
    (wanted,) = ask.filter.any
    ranges: dict[str, Any] = dict(wanted.ranges)
    # Whole numbers: below the end is up to the last one, and only that lies in the domain.
    conditions = {n: {"gte": low, "lte": high - 1} for n, ((low, high),) in ranges.items()}
    asked = {"host": ask.host, "space": SPACE, "filter": conditions, "wait": WAIT}
    return msgspec.json.encode(asked)


def removal(record: str) -> bytes:
    """The body of a call that ends a record."""
    return b'{"id":"%s","wait":%d}' % (record.encode(), WAIT)


def batch(bodies: Iterable[bytes]) -> bytes:
    """The body of one call for all of them."""
    return b"[" + b",".join(bodies) + b"]"


class Traffic:
    """Subscriptions of a workload, of all hosts or of one.

    From a full stock on, each second request ends one.
    """

    def __init__(
        self, distribution: Distribution, hosts: int, seed: int = 1, host: str | None = None
    ) -> None:
        space = make_space("fields")
        self.schema = space.to_json()
        workload = Workload(space, distribution, seed)
        self.publishers = [body(within(ask, hosts)) for ask in workload.publishers()]
        asks = workload.asks(1 << 62)
        self._asks = (body(Ask(host, ask.filter) if host else within(ask, hosts)) for ask in asks)
        self._encoded: deque[bytes] = deque()
        self._active: list[str] = []
        self._random = Random(seed)

    def encode(self, count: int) -> None:
        """Have so many subscriptions ready, so that it takes no time when it counts."""
        self._encoded.extend(islice(self._asks, max(0, count - len(self._encoded))))

    def subscription(self) -> bytes:
        """The body of a subscription that is new."""
        return self._encoded.popleft() if self._encoded else next(self._asks)

    def ending(self) -> str:
        """One of the active subscriptions, whichever, that is to end."""
        active = self._active
        place = self._random.randrange(len(active))
        active[place], active[-1] = active[-1], active[place]
        return active.pop()

    def began(self, record: str) -> None:
        """A subscription is active."""
        self._active.append(record)

    @property
    def active(self) -> int:
        """How many subscriptions are active and not about to end."""
        return len(self._active)


def within(ask: Ask, hosts: int) -> Ask:
    """The same on a network with fewer hosts."""
    return Ask(f"h{1 + (int(ask.host[1:]) - 1) * hosts // HOSTS}", ask.filter)
