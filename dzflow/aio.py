"""Small asyncio helpers: background tasks that never fail silently, and work once per loop turn."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_log = logging.getLogger(__name__)

T = TypeVar("T")


class BackgroundTasks:
    """Keeps references to running tasks, logs each one that fails, and cancels them at the end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T], name: str | None = None) -> "asyncio.Task[T]":
        """Start a task; if it raises, the error is logged under the task's name."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def cancel(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        log_failure(task)


def log_failure(task: "asyncio.Task[Any]") -> None:
    """Log the error that ended a task; for `add_done_callback`."""
    if not task.cancelled() and (error := task.exception()):
        _log.error("the task %r failed", task.get_name(), exc_info=error)


class OncePerTurn:
    """Coalesces calls: `schedule` any number of times, and `run` is called once, next loop turn."""

    __slots__ = ("_run", "_scheduled")

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        self._scheduled = False

    def schedule(self) -> None:
        """Have `run` called in the next turn of the running event loop."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._call)

    def _call(self) -> None:
        self._scheduled = False
        self._run()
