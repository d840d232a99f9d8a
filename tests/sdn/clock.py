"""Time that passes at once, for timers that would have to be short or a test would be slow."""

import asyncio


async def leap(seconds: float) -> None:
    """Let time pass in the event loop of a test; returns when all that is due then was called.

    However long the machine stands still, nothing is due before a test leaps.
    """
    loop = asyncio.get_running_loop()
    now = loop.time
    passed: asyncio.Future[None] = loop.create_future()
    loop.call_later(seconds, passed.set_result, None)
    loop.time = lambda: now() + seconds  # type: ignore[method-assign]
    await passed
