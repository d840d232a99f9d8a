"""What keeps etcd from filling up: shared leases for what need not be kept, and compaction.

At thousands of requests a second, a lease for each finished record would be too many: all that
finish within a while share one.
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
    """Leases for keys that shall be gone some time after they were written.

    A key lives for `retention` seconds at least, and at most for `rotation` seconds longer.
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
        """Take a new lease next time: etcd has said that this one is gone."""
        self._until = 0.0


async def keep_compacted(
    etcd: Etcd, every: float = 30.0, keep: int = 10_000, stop: asyncio.Event | None = None
) -> None:
    """Compact etcd's history again and again, all but what is younger than `keep` revisions.

    Any number of processes may do so at once. The history stays until it is one turn old, too, so
    that slow readers and watchers can follow. Runs until `stop`; a failure is told and tried again.
    """
    stop = stop or asyncio.Event()
    oldest = 0  # the newest revision of the turn before
    while not stop.is_set():
        try:
            newest = await etcd.maintenance.revision()
            target = min(oldest, newest - keep)
            if target > 0:
                await etcd.maintenance.compact(target)
            oldest = newest
        except StoreError as trouble:
            _log.warning("etcd was not compacted: %s", trouble)
        try:
            await asyncio.wait_for(stop.wait(), every)
        except TimeoutError:
            continue


class Room(Struct, frozen=True):
    """How full the fullest member is, in bytes; `full` if etcd takes no more writes."""

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
    """Drop all history, give the space back to the disk, and let etcd take writes again.

    Every member stands still for a while, one after the other. Works under a user of etcd with
    the role root, if it has authentication.
    """
    await etcd.maintenance.compact(await etcd.maintenance.revision(), physical=True)
    await etcd.maintenance.defragment()
    await etcd.maintenance.disarm()
