"""Small asyncio helpers: background tasks that never fail silently, work by turn and by time."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

_log = logging.getLogger(__name__)

T = TypeVar("T")


class BackgroundTasks:
    """Keeps references to running tasks, logs each one that fails, and cancels them at the end."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in the order of their start

    def spawn(self, work: Coroutine[Any, Any, T], name: str | None = None) -> "asyncio.Task[T]":
        """Start a task; if it raises, the error is logged under the task's name."""
        task = asyncio.create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    async def cancel(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)
        log_failure(task)


def log_failure(task: "asyncio.Task[Any]") -> None:
    """Log the error that ended a task; for `add_done_callback`."""
    if not task.cancelled() and (error := task.exception()):
        _log.error("the task %r failed", task.get_name(), exc_info=error)


class CriticalTasks:
    """Tasks that a process cannot do without: the first one that fails ends `until`.

    Use as an async context manager; at exit all tasks are cancelled and have ended.
    """

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in the order of their start
        self._failed = asyncio.Event()
        self._error: BaseException | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def watch(self, task: "asyncio.Task[Any]") -> None:
        """Have a task's failure end `until`, too; the caller cancels the task itself."""
        task.add_done_callback(self._ended)

    async def until(self, stop: asyncio.Event) -> None:
        """Wait until `stop` is set; raises the error of the first task that fails before."""
        await wait_for_any(stop, self._failed)
        if self._error:
            raise self._error

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error and self._error is None:
            self._error = error
            self._failed.set()


async def wait_until_set(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait until an event is set; False if it is not within so many seconds (None: any time)."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def wait_for_any(*events: asyncio.Event, timeout: float | None = None) -> None:
    """Wait until one of the events is set, or for so many seconds."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def unless_set(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` returns; None, and `work` is cancelled, if `stop` is set before that."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        return None
    finally:
        stopping.cancel()
        working.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


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


def pause_until(now: float, every: float, offset: float = 0.0) -> float:
    """How long to pause for work that is due `offset` after each multiple of `every`.

    At least half of `every`, so that a timer which fires too early does not repeat the work.
    """
    pause = every - (now - offset) % every
    return pause if pause >= every / 2 else pause + every


class PauseByTime:
    """Says when a loop has kept the event loop busy for so long that other work should run."""

    __slots__ = ("_clock", "_since", "_time")

    def __init__(self, clock: Callable[[], float] = time.monotonic, seconds: float = 0.005) -> None:
        self._clock = clock
        self._time = seconds
        self._since = clock()

    @property
    def due(self) -> bool:
        """Whether it is time for a pause."""
        return self._clock() - self._since >= self._time

    async def let_others_run(self) -> None:
        """Let other work run."""
        await asyncio.sleep(0)
        self._since = self._clock()
