"""Ends records whose time is up. Every dispatcher tries; etcd lets one of them succeed."""

import asyncio
import heapq
import logging
from collections.abc import Callable
from math import inf

from configurators.environment import Clock
from configurators.store.etcd.client import Etcd, StoreError, unchanged
from configurators.store.keys import ttl_key
from dispatcher.knowledge.expiry_times import ExpiryTimes
from dispatcher.knowledge.siblings import Siblings
from dispatcher.metrics import Metrics
from dispatcher.requests.intake.intake import Intake
from dispatcher.requests.operation import Operation
from dispatcher.requests.writing.stored_records import read_many
from dzflow.aio import BackgroundTasks, wait_until_set

_log = logging.getLogger(__name__)

_STAGGER = 1.0  # seconds between the attempts of different dispatchers
_RETRY = 15.0  # seconds before the next attempt to end a record
_PAUSE = 1.0  # seconds before etcd is read again
_GRACE = 10.0  # seconds after a time in which hosts could not renew: no dispatcher, or a full etcd
_AT_ONCE = 1_000
_SLACK = 1_000


class Expiry:
    """Ends each record when its expiry time is over and its host has not renewed it.

    `usable_since` tells the monotonic time since when etcd has accepted writes; inf while it does
    not. Until some time after that, no record is ended.
    """

    def __init__(
        self,
        etcd: Etcd,
        times: ExpiryTimes,
        intake: Intake,
        siblings: Siblings,
        metrics: Metrics,
        clock: Clock,
        usable_since: Callable[[], float],
    ) -> None:
        self._etcd = etcd
        self._times = times
        self._intake = intake
        self._siblings = siblings
        self._metrics = metrics
        self._clock = clock
        self._usable_since = usable_since
        self._heap: list[tuple[float, str]] = []  # may have entries that do not count any more
        self._scheduled: dict[str, float] = {}  # the entry that counts, by record
        self._sooner = asyncio.Event()  # something expires before all that was known
        self._starting = False
        self._tasks = BackgroundTasks()
        self._running: asyncio.Task[None] | None = None
        times.changed.subscribe(self._time_changed)
        times.gone.subscribe(self._time_gone)

    async def start(self) -> None:
        """Read all expiry times, and end records from now on."""
        self._starting = True
        await self._times.start()
        self._starting = False
        self._running = self._tasks.spawn(self._run(), "end expired records")

    async def close(self) -> None:
        """End no more records."""
        await self._times.stop()
        await self._tasks.cancel()

    def tasks(self) -> list["asyncio.Task[None]"]:
        """Background tasks; they never end by themselves."""
        return [*self._times.tasks(), *([self._running] if self._running else [])]

    @property
    def scheduled(self) -> int:
        """How many entries the schedule has; about as many as there are records with a ttl."""
        return len(self._heap)

    def _time_changed(self, id: str, until: float) -> None:
        grace = self._clock.wall() + _GRACE
        self._schedule(max(until, grace) if self._starting else until, id)

    def _time_gone(self, id: str) -> None:
        self._scheduled.pop(id, None)
        self._drop_old_entries()

    def _schedule(self, at: float, id: str) -> None:
        """Look at a record at this time; if it is looked at earlier, its time is read then."""
        at += self._siblings.rank(id) * _STAGGER
        if self._scheduled.get(id, inf) <= at:
            return
        self._scheduled[id] = at
        heapq.heappush(self._heap, (at, id))
        self._drop_old_entries()
        if self._heap[0][1] == id:
            self._sooner.set()

    def _drop_old_entries(self) -> None:
        """Keep the heap from growing with records that have ended long before their time."""
        if len(self._heap) > 2 * len(self._scheduled) + _SLACK:
            self._heap = [(at, id) for id, at in self._scheduled.items()]
            heapq.heapify(self._heap)

    async def _run(self) -> None:
        while True:
            wait = self._heap[0][0] - self._clock.wall() if self._heap else None
            if wait is None or wait > 0:
                await wait_until_set(self._sooner, wait)
                self._sooner.clear()
                continue
            grace = self._usable_since() + _GRACE - self._clock.monotonic()
            if grace > 0:
                await asyncio.sleep(min(grace, _PAUSE))
                continue
            try:
                await self._end(self._due())
            except StoreError as error:
                _log.warning("expired records cannot be read: %s", error)
                await asyncio.sleep(_PAUSE)

    def _due(self) -> list[str]:
        """The records whose time is over; each is scheduled again, in case it still exists."""
        now = self._clock.wall()
        due: dict[str, None] = {}
        while self._heap and self._heap[0][0] <= now and len(due) < _AT_ONCE:
            at, id = heapq.heappop(self._heap)
            if self._scheduled.get(id) != at:
                continue
            del self._scheduled[id]
            until = self._times.get(id)
            if until is not None and until <= now:
                due[id] = None
            elif until is not None:  # it was renewed
                self._schedule(until, id)
        for id in due:
            self._schedule(now + _RETRY, id)
        return list(due)

    async def _end(self, due: list[str]) -> None:
        found = await read_many(self._etcd, due)
        for id in due:
            revision = self._times.revision(id)
            stored = found.get(id)
            if not revision:
                continue
            if stored is None:
                await self._etcd.delete(ttl_key(id))
            elif stored.record.state != "removing":
                not_renewed = unchanged(ttl_key(id), revision)
                now = self._clock.monotonic()
                self._metrics.expired += 1
                self._intake.force(Operation.end(stored, now, only_if=[not_renewed]))
