"""Helpers that tests of all layers share."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

WAIT = 30.0  # seconds that a test waits for something before it fails
_EVERY = 0.01


async def until(condition: Callable[[], object | Awaitable[object]], timeout: float = WAIT) -> None:
    """Wait until a condition (a plain or an async function) holds; TimeoutError if it does not."""
    async with asyncio.timeout(timeout):
        while True:
            found = condition()
            if await found if inspect.isawaitable(found) else found:
                return
            await asyncio.sleep(_EVERY)


def until_sync(condition: Callable[[], object], timeout: float = WAIT) -> None:
    """The same for tests without an event loop."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the condition did not come true in time")
        time.sleep(_EVERY)
