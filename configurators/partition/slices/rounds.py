"""Says when the partitions of a configurator begin their slices: at once, or together."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Rounds:
    """Lets partitions begin slices at once when none is in progress, and in rounds otherwise.

    A round begins when all slices in progress have ended, or `longest` seconds after the first
    partition began to wait for it: a partition that waits for a switch does not stop the others.
    Slices of one round have their flow changes sent together, which costs much less than to send
    them one by one, and requests that come meanwhile share slices.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._working = 0
        self._next: asyncio.Event | None = None  # set when the next round begins
        self._due: asyncio.Handle | None = None

    async def wait(self) -> None:
        """Wait for the next round."""
        if not self._longest:
            return
        if self._next is None:
            self._next = asyncio.Event()
            loop = asyncio.get_running_loop()
            if self._working:
                self._due = loop.call_later(self._longest, self._begin)
            else:
                # With the other partitions whose tasks came in the same message.
                self._due = loop.call_soon(self._begin)
        await self._next.wait()

    @contextmanager
    def working(self) -> Iterator[None]:
        """A slice is in progress."""
        self._working += 1
        try:
            yield
        finally:
            self._working -= 1
            if not self._working and self._next is not None:
                self._begin()

    def _begin(self) -> None:
        assert self._next
        assert self._due
        self._due.cancel()
        self._next.set()
        self._next = self._due = None
