"""Coalesces calls that concern one partition each into calls for many partitions."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")


class Coalescer(Generic[A, R]):
    """Coalesces concurrent calls: callers that arrive during a run share the next run.

    `do` gets the arguments of all callers by name, and returns a result for each name.
    """

    def __init__(self, do: Callable[[Mapping[str, A]], Awaitable[Mapping[str, R]]]) -> None:
        self._do = do
        self._waiting: dict[str, tuple[A, asyncio.Future[R]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def call(self, name: str, argument: A) -> R:
        """The result for a name, of a run that begins after this call."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting[name] = argument, future
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await future

    async def close(self) -> None:
        """Cancel the run that is in progress."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._waiting:
                calls, self._waiting = self._waiting, {}
                await self._run_once(calls)
        finally:
            self._task = None

    async def _run_once(self, calls: "Mapping[str, tuple[A, asyncio.Future[R]]]") -> None:
        try:
            found = await self._do({name: argument for name, (argument, _) in calls.items()})
        except Exception as error:  # every caller gets it
            for _, future in calls.values():
                if not future.done():
                    future.set_exception(error)
            return
        for name, (_, future) in calls.items():
            if not future.done():
                future.set_result(found[name])
