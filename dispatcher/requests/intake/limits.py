"""Rate limits, bounded queues, and fair turns between hosts. Pure."""

import math
from collections import deque
from collections.abc import Mapping
from typing import Generic, TypeVar

T = TypeVar("T")

_QUANTUM = 16  # operations that a host may begin before it is another host's turn
_MOST_BUCKETS = 4_096
_LATELY = 1.0  # seconds


class TokenBucket:
    """A token bucket: tokens come at a rate, and at most `burst` are kept."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate = rate
        self.burst = max(1.0, burst)
        self._level = self.burst
        self._at = now
        self._used_at = -math.inf

    def wait(self, now: float) -> float:
        """Seconds until there is a token; 0 if there is one."""
        self._refill(now)
        # Rounding must not make a host wait for the last bit of a token.
        return 0.0 if self._level > 1 - 1e-9 else (1 - self._level) / self.rate

    def use(self, tokens: float = 1.0) -> None:
        """Use up tokens; beyond those that there are, the bucket is in debt."""
        self._level -= tokens
        self._used_at = self._at

    def used_lately(self, now: float) -> bool:
        """Whether tokens were used that have not come back yet, or within the last second."""
        self._refill(now)
        return self._level < self.burst - 1e-9 or now - self._used_at < _LATELY

    def _refill(self, now: float) -> None:
        self._level = min(self.burst, self._level + max(0.0, now - self._at) * self.rate)
        self._at = now


class Rates:
    """Limits of operations per second, overall and for each host; None means no limit."""

    def __init__(self, overall: float | None, per_host: float | None, burst_s: float) -> None:
        self._per_host = per_host
        self._burst_s = burst_s
        self._overall = TokenBucket(overall, overall * burst_s, 0.0) if overall else None
        self._hosts: dict[str, TokenBucket] = {}

    def admit(self, host: str, now: float) -> float:
        """0 if the host may begin an operation now; else the seconds after which it may try."""
        wait = self.wait(host, now)
        if not wait:
            self.use(host, 1.0, now)
        return wait

    def wait(self, host: str, now: float) -> float:
        """Seconds until the host may begin an operation; 0 if it may now."""
        return max((bucket.wait(now) for bucket in self._buckets(host, now)), default=0.0)

    def use(self, host: str, tokens: float, now: float) -> None:
        """Count what an operation of a host has used; it may be more than there is."""
        for bucket in self._buckets(host, now):
            bucket.wait(now)
            bucket.use(tokens)

    def _buckets(self, host: str, now: float) -> list[TokenBucket]:
        found = [self._overall] if self._overall else []
        if self._per_host:
            found.append(self._bucket(host, self._per_host, now))
        return found

    def _bucket(self, host: str, rate: float, now: float) -> TokenBucket:
        bucket = self._hosts.get(host)
        if bucket is None:
            if len(self._hosts) >= _MOST_BUCKETS:
                del self._hosts[next(iter(self._hosts))]
            bucket = self._hosts[host] = TokenBucket(rate, rate * self._burst_s, now)
        return bucket


class WorkRates(Rates):
    """Limits of work, overall and for each host.

    What all hosts have used together refuses only hosts that have themselves used some lately, so
    that a few hosts cannot keep all others from working.
    """

    def wait_for_own(self, host: str, now: float) -> float:
        """Seconds until the host has paid back what it has used beyond its own limit."""
        return self._bucket(host, self._per_host, now).wait(now) if self._per_host else 0.0

    def wait_for_all(self, host: str, now: float) -> float:
        """Seconds until all hosts have paid back; 0 if this one has used nothing lately."""
        if self._overall is None or not (wait := self._overall.wait(now)):
            return 0.0
        bucket = self._hosts.get(host)
        return wait if bucket and bucket.used_lately(now) else 0.0

    def _buckets(self, host: str, now: float) -> list[TokenBucket]:
        """Also without a limit for each host, each has a bucket that tells what it has used."""
        found = [self._overall] if self._overall else []
        if rate := self._per_host or (self._overall.rate if self._overall else None):
            found.append(self._bucket(host, rate, now))
        return found


class Admission(Generic[T]):
    """A bounded queue before a window of running operations, fair between hosts.

    Hosts take turns of some operations each (deficit round robin; all operations cost the same), so
    that the long queue of one host does not keep another one waiting. No host may have more than
    its share of the window running, because running operations are carried out in the order in
    which they began. Slow operations wait for something else, a switch for example: they leave
    their place in the share to other operations of their host, up to a larger limit.
    """

    def __init__(
        self,
        window: int,
        window_per_host: int,
        queue: int,
        queue_per_host: int,
        most_per_host: int | None = None,
    ) -> None:
        self._window = window
        self._window_per_host = window_per_host
        self._most_per_host = max(window_per_host, most_per_host or 0)
        self._queue = queue
        self._queue_per_host = queue_per_host
        self._waiting: dict[str, deque[T]] = {}
        self._turns: deque[str] = deque()  # hosts that have waiting operations and may begin one
        self._credit = _QUANTUM  # of the host whose turn it is
        self._running: dict[str, int] = {}
        self._slow: dict[str, int] = {}  # how many of these are slow
        self.queued = 0
        self.running = 0

    @property
    def waiting(self) -> Mapping[str, int]:
        """How many operations of each host wait."""
        return {host: len(queue) for host, queue in self._waiting.items()}

    def room(self, host: str) -> int:
        """How many more operations of a host the queue has room for."""
        waiting = self._waiting.get(host)
        mine = self._queue_per_host - (len(waiting) if waiting else 0)
        return max(0, min(mine, self._queue - self.queued))

    def put(self, host: str, item: T) -> bool:
        """Queue an operation; False if there is no room."""
        if not self.room(host):
            return False
        queue = self._waiting.get(host)
        if queue is None:
            queue = self._waiting[host] = deque()
            if self._may_begin(host):
                self._turns.append(host)
        queue.append(item)
        self.queued += 1
        return True

    def next_to_begin(self, most: int) -> list[T]:
        """Take the next operations from the queue; each counts as running until it is released."""
        begun: list[T] = []
        while self._turns and len(begun) < most and self.running < self._window:
            host = self._turns[0]
            queue = self._waiting[host]
            begun.append(queue.popleft())
            self._credit -= 1
            self.queued -= 1
            self.running += 1
            self._running[host] = self._running.get(host, 0) + 1
            if not queue:
                del self._waiting[host]
            if not queue or not self._may_begin(host):
                self._turns.popleft()
                self._credit = _QUANTUM
            elif not self._credit:
                self._turns.rotate(-1)
                self._credit = _QUANTUM
        return begun

    def force(self, host: str) -> None:
        """Count an operation as running that cannot be refused, even beyond the window."""
        self.running += 1
        self._running[host] = self._running.get(host, 0) + 1

    def release(self, host: str, slow: bool = False) -> None:
        """A running operation of a host is over; `slow` if it was marked as slow."""
        may = self._may_begin(host)
        self.running -= 1
        _decrement(self._running, host)
        if slow:
            _decrement(self._slow, host)
        self._rejoin_turns(host, may)

    def slow(self, host: str) -> None:
        """Mark a running operation of a host as slow."""
        may = self._may_begin(host)
        self._slow[host] = self._slow.get(host, 0) + 1
        self._rejoin_turns(host, may)

    def not_slow(self, host: str) -> None:
        """A slow operation of a host begins again, and is not slow any more."""
        _decrement(self._slow, host)

    def _may_begin(self, host: str) -> bool:
        """Whether a host may have one more operation running."""
        running = self._running.get(host, 0)
        quick = running - self._slow.get(host, 0)
        return quick < self._window_per_host and running < self._most_per_host

    def _rejoin_turns(self, host: str, could_before: bool) -> None:
        if could_before or host not in self._waiting or not self._may_begin(host):
            return
        if host not in self._turns:  # it may still be there, after `force`
            self._turns.append(host)


def _decrement(counts: dict[str, int], host: str) -> None:
    if counts[host] == 1:
        del counts[host]
    else:
        counts[host] -= 1
