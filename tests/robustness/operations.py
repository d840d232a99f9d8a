"""An operator who moves and cuts partitions and changes the number of configurators under faults.

All calls are recorded. That one is refused, or that a move or a plan fails, is no violation: what
counts is that nothing is lost by it, and that the service is as it was wanted in the end.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any
from urllib.parse import quote

import httpx
from msgspec import Struct

from tests.partition_maps import draw_map, plan_body
from tests.robustness.calls import TRY_SECONDS, Calls
from tests.robustness.disturbed_work import BITS
from tests.robustness.record import Operation, Recorder

_COUNTS = (1, 2, 2, 3)  # numbers of configurators, as often as they are drawn
_ABORTS = 0.2  # of all changes of the map
_WAIT = 5  # seconds that a call waits for the end of a move, if it waits


class _Habit(Struct, frozen=True):
    """Something that the operator does again and again, after pauses of up to `longest` seconds."""

    act: Callable[[], Awaitable[None]]
    shortest: float
    longest: float


class Operator:
    """Asks for moves (mode `sna`), maps and other numbers of configurators while it is at work."""

    def __init__(self, url: str, mode: str, random: Random, recorder: Recorder) -> None:
        self._url = url
        self._random = random
        self._recorder = recorder
        self._habits = [_Habit(self._scale, 1.0, 8.0), _Habit(self._cut, 0.5, 4.0)]
        self._assigns = mode == "sna"
        if self._assigns:
            self._habits.append(_Habit(self._move, 0.0, 1.0))

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Work as long as the context lasts; calls under way are waited for at its end."""
        stop = asyncio.Event()
        limits = httpx.Timeout(TRY_SECONDS)
        async with httpx.AsyncClient(base_url=self._url, timeout=limits, trust_env=False) as http:
            self._calls = Calls(http)
            async with asyncio.TaskGroup() as group:
                for habit in self._habits:
                    group.create_task(self._repeat(habit, stop))
                try:
                    yield
                finally:
                    stop.set()

    async def _repeat(self, habit: _Habit, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await habit.act()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._random.uniform(habit.shortest, habit.longest)):
                    await stop.wait()

    async def _scale(self) -> None:
        count = self._random.choice(_COUNTS)
        await self._ask("scale", "/configurators", {"count": count})

    async def _cut(self) -> None:
        """Go over to another partition map, or abort the plan that is being carried out."""
        if self._random.random() < _ABORTS:
            await self._ask("abort", "/partitions/plan", None, "DELETE")
            return
        shown = await self._calls.once("GET", "/partitions", None)
        workers = await self._calls.once("GET", "/configurators", None)
        if shown.outcome != "ok" or workers.outcome != "ok" or not shown.record["maps"]:
            return  # the service does not answer just now
        present = self._random.choice(shown.record["maps"])
        wanted = draw_map(self._random, present["map"]["plan"], BITS)
        names = [each["id"] for each in workers.record["items"]]
        assignment = {
            leaf: self._random.choice(names)
            for leaf in wanted.leaves()
            if self._assigns and names and self._random.random() < 0.5
        }
        await self._ask("plan", "/partitions/plan", plan_body(present, wanted, assignment))

    async def _move(self) -> None:
        """Move any partition to any other configurator, which may be one that leaves."""
        shown = await self._calls.once("GET", "/partitions", None)
        workers = await self._calls.once("GET", "/configurators", None)
        if shown.outcome != "ok" or workers.outcome != "ok" or not shown.record["items"]:
            return  # the service does not answer just now
        partition = self._random.choice(shown.record["items"])
        names = [each["id"] for each in workers.record["items"]]
        others = [name for name in names if name != partition["configurator"]]
        if others:
            body = {"to": self._random.choice(others), "wait": self._random.choice((0, _WAIT))}
            await self._ask("move", f"/partitions/{quote(partition['id'], safe='')}/migrate", body)

    async def _ask(
        self, what: str, path: str, body: dict[str, Any] | None, method: str = "POST"
    ) -> None:
        result = await self._calls.once(method, path, body)
        detail = f"{path} {body}"
        self._recorder.add(
            Operation(what, detail, result.start, result.end, result.status, result.detail)
        )
