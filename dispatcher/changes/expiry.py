"""Records with a ttl end when nobody renews them. Every dispatcher sees to it; one succeeds."""

import asyncio
import heapq
import logging
import time
from collections.abc import Callable

from configurators.store.etcd.client import Etcd, Put, StoreError, unchanged
from configurators.store.keys import TTL, record_key, ttl_key
from configurators.store.mirror import Mirror
from dispatcher.reports.metrics import Metrics
from dispatcher.requests.intake import Draft, Intake
from dispatcher.requests.reading import Held, read_many
from dzflow.aio import log_failure

_log = logging.getLogger(__name__)

_STAGGER = 1.0  # seconds between the attempts of different dispatchers
_AGAIN = 15.0  # when it could not be ended
_GRACE = 10.0  # after a start: those who renew had nobody to renew with


class Expiry:
    """Knows when records expire, and ends them then."""

    def __init__(
        self, etcd: Etcd, intake: Intake, metrics: Metrics, rank: Callable[[str], int]
    ) -> None:
        self._etcd = etcd
        self._intake = intake
        self._metrics = metrics
        self._rank = rank
        self._times: dict[str, tuple[float, int]] = {}  # with the revision of the key
        self._heap: list[tuple[float, str]] = []
        self._more = asyncio.Event()
        self._not_before = 0.0
        self._mirror = Mirror(etcd, TTL, float, self._take)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read all times, and watch them."""
        self._not_before = time.time() + _GRACE
        await self._mirror.start()
        self._not_before = 0.0
        self._task = asyncio.create_task(self._run(), name="expire")
        self._task.add_done_callback(log_failure)

    async def close(self) -> None:
        """End nothing any more."""
        await self._mirror.stop()
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def tasks(self) -> list["asyncio.Task[None]"]:
        """What goes on in the background, and never ends by itself."""
        return [*self._mirror.tasks(), *([self._task] if self._task else [])]

    def expires(self, name: str) -> float | None:
        """When a record expires, as far as is known here."""
        known = self._times.get(name)
        return known[0] if known else None

    async def renew(self, held: Held) -> bool:
        """Let a record live for another ttl from now; not if it has changed since it was read."""
        record = held.record
        assert record.ttl is not None
        until = time.time() + record.ttl
        put = Put(ttl_key(record.id), str(until).encode())
        result = await self._etcd.transact([unchanged(record_key(record.id), held.revision)], [put])
        if result.succeeded:
            self._take(record.id, until, result.revision)
        return result.succeeded

    def _take(self, name: str, until: float | None, revision: int) -> None:
        if until is None:
            self._times.pop(name, None)
            return
        known = self._times.get(name)
        if known and known[1] >= revision:
            return
        self._times[name] = until, revision
        self._push(max(until, min(self._not_before, time.time() + _GRACE)), name)

    def _push(self, at: float, name: str) -> None:
        heapq.heappush(self._heap, (at + self._rank(name) * _STAGGER, name))
        if self._heap[0][1] == name:
            self._more.set()

    async def _run(self) -> None:
        while True:
            wait = self._heap[0][0] - time.time() if self._heap else None
            if wait is None or wait > 0:
                try:
                    async with asyncio.timeout(wait):
                        await self._more.wait()
                except TimeoutError:
                    pass
                self._more.clear()
                continue
            try:
                await self._expire(self._due())
            except StoreError as error:
                _log.warning("expired records cannot be read: %s", error)
                await asyncio.sleep(1.0)

    def _due(self) -> list[str]:
        """Those whose time is over. They are looked at again later, should they still be there."""
        now = time.time()
        due: dict[str, None] = {}
        while self._heap and self._heap[0][0] <= now and len(due) < 1_000:
            _, name = heapq.heappop(self._heap)
            known = self._times.get(name)
            if known and known[0] <= now:
                due[name] = None
        for name in due:
            self._push(now + _AGAIN, name)
        return list(due)

    async def _expire(self, due: list[str]) -> None:
        found = await read_many(self._etcd, due)
        for name in due:
            known = self._times.get(name)
            held = found.get(name)
            if known is None:
                continue
            if held is None:
                await self._etcd.delete(ttl_key(name))
            elif held.record.state != "removing":
                draft = Draft("end", held.record.kind, None, 0)
                draft.id, draft.record, draft.revision = name, held.record, held.revision
                draft.compares = [unchanged(ttl_key(name), known[1])]
                self._metrics.expired += 1
                self._intake.force(draft)
