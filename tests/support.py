"""Helpers that tests of every layer use."""

import asyncio
from collections.abc import Callable

WAIT = 60.0  # seconds, after which a test has waited in vain


async def until(holds: Callable[[], object], within: float = WAIT) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(within):
        while not holds():
            await asyncio.sleep(0.001)
