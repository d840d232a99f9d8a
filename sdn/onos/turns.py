"""Who may work on a switch when: whatever touches the same entry goes in the order it came."""

import asyncio
from collections.abc import AsyncIterator, Collection, Hashable
from contextlib import asynccontextmanager

from dzflow.errors import DzflowError


class TooManyWait(DzflowError):
    """So much work waits for a switch that no more is taken."""


class Turns:
    """Work on different entries goes on at the same time, at most so much in all."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # All who wait or work, in the order they came, with what they touch; None is everything.
        self._holders: dict[asyncio.Future[None], frozenset[Hashable] | None] = {}

    @asynccontextmanager
    async def take(self, keys: Collection[Hashable] | None = None) -> AsyncIterator[None]:
        """Wait until all who came before and touch one of these have finished; None: all of them.

        Raises TooManyWait at once if too many are there already.
        """
        if len(self._holders) >= self._limit:
            raise TooManyWait(f"{self._limit} pieces of work wait already; try again later")
        mine = None if keys is None else frozenset(keys)
        before = [done for done, theirs in self._holders.items() if _collide(mine, theirs)]
        done = asyncio.get_running_loop().create_future()
        self._holders[done] = mine
        try:
            if before:
                await asyncio.wait(before)
            yield
        finally:
            # Those behind wait for everybody before them, so one that gives up lets nobody through.
            del self._holders[done]
            done.set_result(None)


def _collide(one: frozenset[Hashable] | None, other: frozenset[Hashable] | None) -> bool:
    return one is None or other is None or not one.isdisjoint(other)
