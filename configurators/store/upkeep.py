"""Keeps etcd from filling up: shared leases for keys that expire, and compaction.

At thousands of requests a second, a lease for each finished record would be too many: all records
that finish within a minute share one.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from msgspec import Struct

from configurators.store.etcd.client import Etcd
from configurators.store.etcd.errors import StoreError

_log = logging.getLogger(__name__)


class SharedLeases:
    """Leases for keys that expire some time after they were written.

    A key lives for at least `retention` seconds, and at most for `rotation` seconds longer.
    """

    def __init__(
        self,
        etcd: Etcd,
        retention: float,
        rotation: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._etcd = etcd
        self._ttl = max(1, round(retention + rotation))
        self._rotation = rotation
        self._clock = clock
        self._lease = 0
        self._until = 0.0
        self._granting = asyncio.Lock()

    async def current(self) -> int:
        """The lease for keys that are written now; a call to etcd once per rotation."""
        if self._clock() < self._until:
            return self._lease
        async with self._granting:
            began = self._clock()
            if began >= self._until:
                self._lease = await self._etcd.grant(self._ttl)
                self._until = began + self._rotation
        return self._lease

    def forget(self) -> None:
        """Take a new lease next time, because etcd says that this one has ended."""
        self._until = 0.0


async def keep_compacted(
    etcd: Etcd, every: float = 30.0, keep: int = 10_000, stop: asyncio.Event | None = None
) -> None:
    """Compact etcd's history regularly, except the newest `keep` revisions.

    Any number of processes may do so at once. History is kept for at least one period, so that slow
    readers and watchers can follow. Runs until `stop` is set; logs failures, and tries again.
    """
    stop = stop or asyncio.Event()
    oldest = 0  # the newest revision of the period before
    while not stop.is_set():
        try:
            newest = await etcd.maintenance.revision()
            target = min(oldest, newest - keep)
            if target > 0:
                await etcd.maintenance.compact(target)
            oldest = newest
        except StoreError as trouble:
            _log.warning("cannot compact etcd, retrying: %s", trouble)
        try:
            await asyncio.wait_for(stop.wait(), every)
        except TimeoutError:
            continue


class Room(Struct, frozen=True):
    """How full the fullest member is, in bytes; `full` if etcd accepts no more writes."""

    size: int
    in_use: int
    full: bool


async def room(etcd: Etcd) -> Room:
    """How full etcd is."""
    full = await etcd.maintenance.alarmed()
    states = [state for state in (await etcd.maintenance.states()).values() if state is not None]
    return Room(
        size=max((state.size for state in states), default=0),
        in_use=max((state.in_use for state in states), default=0),
        full=full,
    )


async def make_room(etcd: Etcd) -> None:
    """Drop all history, give the space back to the disk, and let etcd accept writes again.

    Each member is blocked for a while, one after the other. If etcd has authentication, the user
    needs the role root.
    """
    await etcd.maintenance.compact(await etcd.maintenance.revision(), physical=True)
    await etcd.maintenance.defragment()
    await etcd.maintenance.disarm()
