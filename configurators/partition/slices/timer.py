"""A timer that partitions share, so that their slices begin at common moments."""

import asyncio


class SliceTimer:
    """Wakes all waiting partitions at once, so that their flow changes go out together."""

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._next: asyncio.Event | None = None

    async def wait(self) -> None:
        """Wait for the next moment: one pause after the first of the waiting partitions came."""
        if self._next is None:
            self._next = asyncio.Event()
            asyncio.get_running_loop().call_later(self._pause, self._wake_all)
        await self._next.wait()

    def _wake_all(self) -> None:
        assert self._next
        self._next.set()
        self._next = None
