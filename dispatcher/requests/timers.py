"""Calls that are made after a while, unless their owner is closed before."""

import asyncio
from collections.abc import Callable

from dzflow.aio import BackgroundTasks


def call_after(tasks: BackgroundTasks, seconds: float, call: Callable[[], None]) -> None:
    """Call a function after some seconds, as one of the tasks."""

    async def wait() -> None:
        await asyncio.sleep(seconds)
        call()

    tasks.spawn(wait())
