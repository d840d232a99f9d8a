"""Bodies of REST requests, encoded ahead of time, and the ids of the active subscriptions."""

from collections import deque
from collections.abc import Iterable
from itertools import islice
from random import Random
from typing import Any

import msgspec

from bench.workload import HOSTS, Distribution, HostFilter, Workload, make_space
from sdn.tables.pipeline import PlanName

SPACE = "bench"
WAIT = 60.0  # seconds that a call waits for the switches


def request_body(wanted: HostFilter) -> bytes:
    """The body that subscribes to, or advertises, the filter of a host."""
    (conjunction,) = wanted.filter.any
    ranges: dict[str, Any] = dict(conjunction.ranges)
    # Intervals are half-open, and their end may lie outside the domain: send the last value.
    conditions = {n: {"gte": low, "lte": high - 1} for n, ((low, high),) in ranges.items()}
    body = {"host": wanted.host, "space": SPACE, "filter": conditions, "wait": WAIT}
    return msgspec.json.encode(body)


def removal_body(record: str) -> bytes:
    """The body that ends a record."""
    return b'{"id":"%s","wait":%d}' % (record.encode(), WAIT)


def batch_body(bodies: Iterable[bytes]) -> bytes:
    """The body of one batch call for all of them."""
    return b"[" + b",".join(bodies) + b"]"


class Traffic:
    """Subscriptions of a workload, spread over all hosts or sent by one, and which are active."""

    def __init__(
        self,
        distribution: Distribution,
        hosts: int,
        seed: int = 1,
        host: str | None = None,
        plan: PlanName = "legs",
    ) -> None:
        """For a service that runs under a `plan`: `lpm` needs another index."""
        space = make_space("fields" if plan == "legs" else "zorder")
        self.schema = space.to_json()
        workload = Workload(space, distribution, seed)
        self.publishers = [request_body(scale_down(p, hosts)) for p in workload.publishers()]
        endless = workload.subscriptions(1 << 62)
        self._new = (
            request_body(HostFilter(host, each.filter) if host else scale_down(each, hosts))
            for each in endless
        )
        self._encoded: deque[bytes] = deque()
        self._active: list[str] = []
        self._random = Random(seed)

    def encode_ahead(self, count: int) -> None:
        """Encode this many subscriptions now, so that encoding takes no time while measuring."""
        self._encoded.extend(islice(self._new, max(0, count - len(self._encoded))))

    def next_subscription(self) -> bytes:
        """The body of a new subscription."""
        return self._encoded.popleft() if self._encoded else next(self._new)

    def pick_removal(self) -> str:
        """The id of a random active subscription, which no longer counts as active."""
        active = self._active
        place = self._random.randrange(len(active))
        active[place], active[-1] = active[-1], active[place]
        return active.pop()

    def add_active(self, record: str) -> None:
        """Count a subscription as active."""
        self._active.append(record)

    @property
    def active(self) -> int:
        """The number of active subscriptions that are not being removed."""
        return len(self._active)


def scale_down(wanted: HostFilter, hosts: int) -> HostFilter:
    """The same filter on a network with fewer hosts."""
    number = 1 + (int(wanted.host[1:]) - 1) * hosts // HOSTS
    return HostFilter(f"h{number}", wanted.filter)
