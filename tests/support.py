"""Helpers that tests of all layers share."""

import asyncio
import inspect
import logging
import pickle
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest

WAIT = 60.0  # seconds that a test waits for something before it fails
_EVERY = 0.01


async def until(condition: Callable[[], object | Awaitable[object]], timeout: float = WAIT) -> None:
    """Wait until a condition (a plain or an async function) holds; TimeoutError if it does not."""
    async with asyncio.timeout(timeout):
        while True:
            found = condition()
            if await found if inspect.isawaitable(found) else found:
                return
            await asyncio.sleep(_EVERY)


def state_size(thing: object) -> int:
    """The size of all that an object keeps, in bytes: shows whether it forgets."""
    return len(pickle.dumps(thing))


def until_sync(condition: Callable[[], object], timeout: float = WAIT) -> None:
    """The same for tests without an event loop."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the condition did not come true in time")
        time.sleep(_EVERY)


def warnings_of(caplog: pytest.LogCaptureFixture, logger: str) -> list[str]:
    """The warnings and errors of one logger: control planes of other tests may log, too."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == logger and record.levelno >= logging.WARNING
    ]


@asynccontextmanager
async def running(
    run: Callable[[asyncio.Event], Coroutine[None, None, None]],
) -> AsyncIterator[None]:
    """Run a process of the service until the block ends."""
    stop = asyncio.Event()
    task = asyncio.create_task(run(stop))
    try:
        yield
    finally:
        stop.set()
        async with asyncio.timeout(WAIT):
            await task
