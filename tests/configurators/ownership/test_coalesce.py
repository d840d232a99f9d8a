"""Concurrent calls are coalesced."""

import asyncio
from collections.abc import Mapping

import pytest

from configurators.ownership.coalesce import Coalescer


class Doubling:
    """Doubles numbers when the gate is open, and remembers for which names it ran."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.runs: list[set[str]] = []

    async def __call__(self, numbers: Mapping[str, int]) -> Mapping[str, int]:
        self.runs.append(set(numbers))
        await self.gate.wait()
        if any(number < 0 for number in numbers.values()):
            raise ValueError("negative")
        return {name: 2 * number for name, number in numbers.items()}


async def test_callers_that_arrive_during_a_run_share_the_next_run() -> None:
    double = Doubling()
    coalescer = Coalescer(double)
    first = asyncio.create_task(coalescer.call("a", 1))
    while not double.runs:
        await asyncio.sleep(0)
    others = [asyncio.create_task(coalescer.call(name, n)) for n, name in enumerate("bcd", 2)]
    await asyncio.sleep(0)
    double.gate.set()
    assert await first == 2
    assert await asyncio.gather(*others) == [4, 6, 8]
    assert double.runs == [{"a"}, {"b", "c", "d"}]


async def test_all_callers_of_a_run_that_fails_get_the_error_and_the_next_run_works() -> None:
    double = Doubling()
    double.gate.set()
    coalescer = Coalescer(double)
    calls = [asyncio.create_task(coalescer.call(name, -1)) for name in "ab"]
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(error) for error in found] == [ValueError, ValueError]
    assert await coalescer.call("a", 3) == 6


async def test_closing_cancels_the_run() -> None:
    double = Doubling()
    coalescer = Coalescer(double)
    call = asyncio.create_task(coalescer.call("a", 1))
    while not double.runs:
        await asyncio.sleep(0)
    await coalescer.close()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
