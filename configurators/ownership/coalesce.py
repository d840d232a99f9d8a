"""Work that is done for many at once, asked for by each alone."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")


class Gathered(Generic[A, R]):
    """Does something for all who ask while the last time is under way, together.

    `do` gets what each asks with, by name, and returns a result for each.
    """

    def __init__(self, do: Callable[[Mapping[str, A]], Awaitable[Mapping[str, R]]]) -> None:
        self._do = do
        self._asking: dict[str, tuple[A, asyncio.Future[R]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def ask(self, name: str, what: A) -> R:
        """Ask for it to be done, from now on; the result."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._asking[name] = what, future
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await future

    async def close(self) -> None:
        """Stop what is under way."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        try:
            while self._asking:
                asking, self._asking = self._asking, {}
                await self._answer(asking)
        finally:
            self._task = None

    async def _answer(self, asking: "Mapping[str, tuple[A, asyncio.Future[R]]]") -> None:
        try:
            found = await self._do({name: what for name, (what, _) in asking.items()})
        except Exception as error:  # whoever asked gets it
            for _, future in asking.values():
                if not future.done():
                    future.set_exception(error)
            return
        for name, (_, future) in asking.items():
            if not future.done():
                future.set_result(found[name])
