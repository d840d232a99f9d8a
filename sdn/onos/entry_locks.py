"""Locks on the entries of one switch: work on the same entry is done in the order it came."""

import asyncio
from collections.abc import AsyncIterator, Collection, Hashable
from contextlib import asynccontextmanager

from dzflow.errors import DzflowError


class TooManyWaiting(DzflowError):
    """So much work waits for a switch that no more is accepted."""


class EntryLocks:
    """Locks for work on entries; work on different entries overlaps, up to `limit` pieces."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # All work that waits or is in progress, in order, with its entries; None: all entries.
        self._holders: dict[asyncio.Future[None], frozenset[Hashable] | None] = {}

    @asynccontextmanager
    async def hold(self, keys: Collection[Hashable] | None = None) -> AsyncIterator[None]:
        """Wait for earlier work on one of these entries (None: on any), then hold them.

        Raises TooManyWaiting at once if too much work is there already.
        """
        if len(self._holders) >= self._limit:
            raise TooManyWaiting(f"{self._limit} pieces of work wait already; try again later")
        mine = None if keys is None else frozenset(keys)
        before = [done for done, theirs in self._holders.items() if _collide(mine, theirs)]
        done = asyncio.get_running_loop().create_future()
        self._holders[done] = mine
        try:
            if before:
                await asyncio.wait(before)
            yield
        finally:
            # Later work waits for all earlier work, so one that is cancelled lets none through.
            del self._holders[done]
            done.set_result(None)


def _collide(one: frozenset[Hashable] | None, other: frozenset[Hashable] | None) -> bool:
    return one is None or other is None or not one.isdisjoint(other)
